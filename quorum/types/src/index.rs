//! Indexes of arrays and promised nodes. The quorum's state and control's view both update these indexes with each
//! change.

use crate::{Allocation, AllocationId, NodeId, node::Node};
use std::collections::{BTreeMap, BTreeSet};

/// Job arrays that have not ended, each with the number of its last element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrayIndex(BTreeMap<AllocationId, AllocationId>);

impl ArrayIndex {
    /// Updates the index after a change of an allocation's record. A record that is not a job array changes nothing.
    pub fn follow(&mut self, after: &Allocation) {
        let Some(numbers) = after.element_numbers() else {
            return;
        };
        match after.state.is_terminal() {
            true => self.0.remove(&after.id),
            false => self.0.insert(after.id, numbers.last()),
        };
    }

    /// Job arrays, by number.
    pub fn ids(&self) -> impl Iterator<Item = AllocationId> {
        self.0.keys().copied()
    }

    /// Job array that contains the element with this number.
    pub fn array_of(&self, number: AllocationId) -> Option<AllocationId> {
        let (array, last) = self.0.range(..number).next_back()?;
        (number <= *last).then_some(*array)
    }
}

/// Promised nodes by allocation: nodes bound to an allocation that does not hold them yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromiseIndex(BTreeMap<AllocationId, BTreeSet<NodeId>>);

impl PromiseIndex {
    /// Checks whether [`PromiseIndex::follow`] would change the index.
    pub fn is_concerned(before: Option<&Node>, after: &Node) -> bool {
        before.and_then(|node| node.promised) != after.promised
    }

    /// Updates the index after a change of a node's record.
    pub fn follow(&mut self, before: Option<&Node>, after: &Node) {
        if !Self::is_concerned(before, after) {
            return;
        }
        if let Some(id) = before.and_then(|node| node.promised)
            && let Some(nodes) = self.0.get_mut(&id)
        {
            nodes.remove(&after.id);
            if nodes.is_empty() {
                self.0.remove(&id);
            }
        }
        if let Some(id) = after.promised {
            self.0.entry(id).or_default().insert(after.id.clone());
        }
    }

    /// Nodes promised to an allocation; `None` if there are none.
    pub fn nodes_of(&self, id: AllocationId) -> Option<&BTreeSet<NodeId>> {
        self.0.get(&id)
    }

    /// Checks whether any node is promised to an allocation.
    pub fn is_promised(&self, id: AllocationId) -> bool {
        self.0.contains_key(&id)
    }

    /// Allocations with promised nodes, by number.
    pub fn ids(&self) -> impl Iterator<Item = AllocationId> {
        self.0.keys().copied()
    }

    /// Allocations with promised nodes, and these nodes.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationId, &BTreeSet<NodeId>)> {
        self.0.iter().map(|(id, nodes)| (*id, nodes))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        AllocationState, ProjectPath, Revision, UnixMillis, VclusterName,
        node::Lifecycle,
        spec::{AllocationSpec, Workload},
    };

    fn array(id: u64, indices: &str, state: AllocationState) -> Allocation {
        let (path, vcluster) = (ProjectPath::new("t"), VclusterName::new("main"));
        let mut spec =
            AllocationSpec::new(path.unwrap(), vcluster.unwrap(), 1, Workload::default());
        spec.terms.array = Some(indices.parse().unwrap());
        Allocation {
            id: AllocationId(id),
            user: "alice".to_owned(),
            spec,
            state,
            state_since: UnixMillis(0),
            submitted_at: UnixMillis(0),
            eligible_at: UnixMillis(0),
            started_at: None,
            ended_at: None,
            attempt: 0,
            ranks: Vec::new(),
            stop: None,
            revision: Revision(1),
            progress: Default::default(),
        }
    }

    #[test]
    fn finds_the_array_of_an_element_until_the_array_ends() {
        let mut index = ArrayIndex::default();
        index.follow(&array(3, "0-4", AllocationState::Pending));
        index.follow(&array(20, "7", AllocationState::Blocked));
        let of = |index: &ArrayIndex, number| index.array_of(AllocationId(number)).map(|id| id.0);
        for (number, expected) in [
            (3, None),
            (4, Some(3)),
            (8, Some(3)),
            (9, None),
            (20, None),
            (21, Some(20)),
            (22, None),
        ] {
            assert_eq!(of(&index, number), expected, "{number}");
        }
        index.follow(&array(3, "0-4", AllocationState::Completed));
        assert_eq!(of(&index, 4), None);
        assert_eq!(of(&index, 21), Some(20));
    }

    fn node(name: &str, promised: Option<u64>) -> Node {
        let main = VclusterName::new("main").unwrap();
        Node {
            id: NodeId::new(name).unwrap(),
            lifecycle: Lifecycle::Ready,
            drain: Vec::new(),
            holder: None,
            version: 1,
            home: main.clone(),
            current: main,
            registered_at: UnixMillis(0),
            revision: Revision(1),
            node_claim: None,
            promised: promised.map(AllocationId),
            reclaimed_at: None,
        }
    }

    #[test]
    fn promises_move_between_allocations_and_go() {
        let mut index = PromiseIndex::default();
        let (free, first, second) = (node("a", None), node("a", Some(1)), node("a", Some(2)));
        let other = node("b", Some(1));
        index.follow(None, &free);
        assert_eq!(index, PromiseIndex::default());
        index.follow(Some(&free), &first);
        index.follow(None, &other);
        assert_eq!(index.nodes_of(AllocationId(1)).unwrap().len(), 2);
        index.follow(Some(&first), &second);
        assert_eq!(
            index.nodes_of(AllocationId(1)),
            Some(&[other.id.clone()].into())
        );
        assert!(index.is_promised(AllocationId(2)));
        index.follow(Some(&second), &free);
        index.follow(Some(&other), &node("b", None));
        assert_eq!(index, PromiseIndex::default());
    }
}
