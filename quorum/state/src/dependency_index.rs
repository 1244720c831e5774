//! Index of dependencies, mutexes, arrays and promised nodes.
//!
//! The index finds the allocations that the end of an allocation affects, without a scan of all allocations. It is
//! derived from allocations and nodes, and is not part of the encoding.

use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId,
    index::{ArrayIndex, PromiseIndex},
    node::Node,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeBounds,
};

/// User and mutex name.
type MutexKey = (String, String);

/// Index of dependencies, mutexes, arrays and promised nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct DependencyIndex {
    /// Allocations that wait for the end of an allocation, by the id of the latter.
    dependents: BTreeMap<AllocationId, BTreeSet<AllocationId>>,
    mutexes: BTreeMap<MutexKey, MutexQueue>,
    promises: PromiseIndex,
    arrays: ArrayIndex,
}

/// Allocations of one user that share a mutex; one is eligible at a time.
#[derive(Debug, Clone, Default)]
struct MutexQueue {
    /// Allocations that hold the mutex: eligible or in a later state.
    holders: BTreeSet<AllocationId>,
    /// Waiting allocations, in the order of submission.
    waiting: BTreeSet<AllocationId>,
}

impl DependencyIndex {
    pub(crate) fn of<'a>(
        allocations: impl Iterator<Item = &'a Allocation>,
        nodes: impl Iterator<Item = &'a Node>,
    ) -> Self {
        let mut order = Self::default();
        allocations.for_each(|record| order.follow_allocation(None, record));
        nodes.for_each(|node| order.follow_node(None, node));
        order
    }

    /// Allocations that depend on this one, as a whole or element by element.
    pub(crate) fn dependents(&self, id: AllocationId) -> impl Iterator<Item = AllocationId> {
        self.dependents.get(&id).into_iter().flatten().copied()
    }

    /// Returns whether any allocation depends on this one.
    pub(crate) fn has_dependents(&self, id: AllocationId) -> bool {
        self.dependents.contains_key(&id)
    }

    /// Allocations that depend on one of these.
    pub(crate) fn dependents_within(
        &self,
        ids: impl RangeBounds<AllocationId>,
    ) -> impl Iterator<Item = AllocationId> {
        let all = self.dependents.range(ids);
        all.flat_map(|(_, dependents)| dependents).copied()
    }

    /// Allocations of the user that hold the mutex: eligible ones and later states.
    pub(crate) fn mutex_holders(
        &self,
        user: &str,
        mutex: &str,
    ) -> impl Iterator<Item = AllocationId> {
        let found = self.mutexes.get(&(user.to_owned(), mutex.to_owned()));
        let holders = found.map(|mutex| &mutex.holders);
        holders.into_iter().flatten().copied()
    }

    /// Allocations of the user that wait for the mutex, or still for something else.
    pub(crate) fn mutex_waiting(
        &self,
        user: &str,
        mutex: &str,
    ) -> impl Iterator<Item = AllocationId> {
        let found = self.mutexes.get(&(user.to_owned(), mutex.to_owned()));
        let waiting = found.map(|mutex| &mutex.waiting);
        waiting.into_iter().flatten().copied()
    }

    /// Nodes promised to an allocation.
    pub(crate) fn promised(&self, id: AllocationId) -> impl Iterator<Item = &NodeId> {
        self.promises.nodes_of(id).into_iter().flatten()
    }

    /// Returns whether any node is promised to the allocation.
    pub(crate) fn is_promised(&self, id: AllocationId) -> bool {
        self.promises.is_promised(id)
    }

    /// Array that has an element with this id.
    pub(crate) fn array_of(&self, id: AllocationId) -> Option<AllocationId> {
        self.arrays.array_of(id)
    }

    /// Updates the index after a change of an allocation.
    pub(crate) fn follow_allocation(&mut self, before: Option<&Allocation>, after: &Allocation) {
        let (waited, waits) = (before.is_some_and(is_waiting), is_waiting(after));
        let terms = &after.spec.terms;
        if waited != waits {
            for dependency in &terms.after {
                set_in_map(&mut self.dependents, dependency.on, after.id, waits);
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

    /// Updates the index after a change of a node.
    pub(crate) fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        self.promises.follow(before, after);
    }
}

/// Returns whether the end of another allocation may affect this one. Such an end does not start a held allocation, but
/// may cancel it because a dependency can no longer be met.
fn is_waiting(record: &Allocation) -> bool {
    use AllocationState::{Blocked, Held};
    let elements = record.progress.tally.as_ref();
    let blocked = elements.is_some_and(|tally| !tally.blocked.is_empty());
    !record.state.is_terminal() && (matches!(record.state, Blocked | Held) || blocked)
}

/// Returns whether this allocation holds its mutex, so that no other allocation with that mutex may be eligible.
pub(crate) fn has_mutex(record: &Allocation) -> bool {
    use AllocationState::{Blocked, Held};
    let began = record.progress.tally.as_ref().is_some_and(|tally| {
        // The elements of an array run concurrently under the mutex of the array.
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

fn set_in_map<K: Ord + Clone, T: Ord>(
    all: &mut BTreeMap<K, BTreeSet<T>>,
    key: K,
    one: T,
    is_in: bool,
) {
    let entry = all.entry(key.clone()).or_default();
    set(entry, one, is_in);
    if entry.is_empty() {
        all.remove(&key);
    }
}
