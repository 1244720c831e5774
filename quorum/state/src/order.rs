//! Who waits for whom, and who is promised what: kept beside allocations and nodes, so that an end finds
//! those that it concerns without walking all. It follows from them: nothing of it is written down.

use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId,
    index::{ArrayIndex, PromiseIndex},
    node::Node,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeBounds,
};

/// A user and the name of a mutex.
type MutexKey = (String, String);

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    /// By allocation, those that wait for its end.
    dependents: BTreeMap<AllocationId, BTreeSet<AllocationId>>,
    mutexes: BTreeMap<MutexKey, Mutex>,
    promises: PromiseIndex,
    arrays: ArrayIndex,
}

/// Work of one user of which one is eligible at a time.
#[derive(Debug, Clone, Default)]
struct Mutex {
    /// Eligible, or further.
    holders: BTreeSet<AllocationId>,
    /// In the order of their submits.
    waiting: BTreeSet<AllocationId>,
}

impl Order {
    pub(crate) fn of<'a>(
        allocations: impl Iterator<Item = &'a Allocation>,
        nodes: impl Iterator<Item = &'a Node>,
    ) -> Self {
        let mut order = Self::default();
        allocations.for_each(|record| order.follow_allocation(None, record));
        nodes.for_each(|node| order.follow_node(None, node));
        order
    }

    /// Those that wait for the end of this one, or each of their elements for one of it.
    pub(crate) fn dependents(&self, id: AllocationId) -> impl Iterator<Item = AllocationId> {
        self.dependents.get(&id).into_iter().flatten().copied()
    }

    /// Whether anybody does.
    pub(crate) fn has_dependents(&self, id: AllocationId) -> bool {
        self.dependents.contains_key(&id)
    }

    /// Those that wait for the end of one of these.
    pub(crate) fn dependents_within(
        &self,
        ids: impl RangeBounds<AllocationId>,
    ) -> impl Iterator<Item = AllocationId> {
        let all = self.dependents.range(ids);
        all.flat_map(|(_, dependents)| dependents).copied()
    }

    /// Who has the mutex that this one needs: the first of those that are eligible.
    pub(crate) fn mutex_holders(
        &self,
        user: &str,
        mutex: &str,
    ) -> impl Iterator<Item = AllocationId> {
        let found = self.mutexes.get(&(user.to_owned(), mutex.to_owned()));
        let holders = found.map(|mutex| &mutex.holders);
        holders.into_iter().flatten().copied()
    }

    /// Who waits for it, or for something else before.
    pub(crate) fn mutex_waiting(
        &self,
        user: &str,
        mutex: &str,
    ) -> impl Iterator<Item = AllocationId> {
        let found = self.mutexes.get(&(user.to_owned(), mutex.to_owned()));
        let waiting = found.map(|mutex| &mutex.waiting);
        waiting.into_iter().flatten().copied()
    }

    /// The nodes that are promised to an allocation.
    pub(crate) fn promised(&self, id: AllocationId) -> impl Iterator<Item = &NodeId> {
        self.promises.nodes_of(id).into_iter().flatten()
    }

    /// Whether an allocation is promised any node.
    pub(crate) fn is_promised(&self, id: AllocationId) -> bool {
        self.promises.is_promised(id)
    }

    /// The array that has an element with this number.
    pub(crate) fn array_of(&self, id: AllocationId) -> Option<AllocationId> {
        self.arrays.array_of(id)
    }

    /// An allocation's record became another.
    pub(crate) fn follow_allocation(&mut self, before: Option<&Allocation>, after: &Allocation) {
        let (waited, waits) = (before.is_some_and(is_waiting), is_waiting(after));
        let terms = &after.spec.terms;
        if waited != waits {
            for dependency in &terms.after {
                put(&mut self.dependents, dependency.on, after.id, waits);
            }
        }
        if let Some(mutex) = &terms.mutex {
            let key = (after.user.clone(), mutex.clone());
            let entry = self.mutexes.entry(key.clone()).or_default();
            set(&mut entry.holders, after.id, has_mutex(after));
            let waits = !after.state.is_terminal() && !has_mutex(after);
            set(&mut entry.waiting, after.id, waits);
            if entry.holders.is_empty() && entry.waiting.is_empty() {
                self.mutexes.remove(&key);
            }
        }
        self.arrays.follow(after);
    }

    /// A node's record became another.
    pub(crate) fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        self.promises.follow(before, after);
    }
}

/// Whether the end of another may change what this one may do. One on hold goes nowhere by that, but may
/// learn that it never will.
fn is_waiting(record: &Allocation) -> bool {
    use AllocationState::{Blocked, Held};
    let elements = record.course.tally.as_ref();
    let blocked = elements.is_some_and(|tally| !tally.blocked.is_empty());
    !record.state.is_terminal() && (matches!(record.state, Blocked | Held) || blocked)
}

/// Whether nobody else with its mutex may be eligible.
pub(crate) fn has_mutex(record: &Allocation) -> bool {
    use AllocationState::{Blocked, Held};
    let began = record.course.tally.as_ref().is_some_and(|tally| {
        // The elements of an array run one beside the other, under the array's mutex.
        tally.alive > 0
    });
    began || (!record.state.is_terminal() && !matches!(record.state, Blocked | Held))
}

fn set<T: Ord>(all: &mut BTreeSet<T>, one: T, is_in: bool) {
    match is_in {
        true => all.insert(one),
        false => all.remove(&one),
    };
}

fn put<K: Ord + Clone, T: Ord>(all: &mut BTreeMap<K, BTreeSet<T>>, key: K, one: T, is_in: bool) {
    let entry = all.entry(key.clone()).or_default();
    set(entry, one, is_in);
    if entry.is_empty() {
        all.remove(&key);
    }
}
