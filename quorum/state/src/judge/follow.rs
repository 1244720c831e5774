//! Consequences of an allocation change for other records, in the same command.
//!
//! Dependents become eligible or can never start, the array counts the element, the DAG may end, and promised nodes
//! become free. The code compares records before and after, so it covers every way to make such a change. See
//! `../../0008-what-follows.md`.

mod array;
mod dag;
mod dependency_standing;

use super::{Case, array::cancel_unplaced, transition::in_state};
use crate::{change::Change, dependency_index::has_mutex};
use dependency_standing::WaitStanding;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, UnixMillis,
    allocation::StopCause,
    dag::DagProgress,
    event::AllocationChange,
    id::DagId,
    node::{Lifecycle, Node},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Appends the consequences of `changes` to `changes`.
pub(super) fn add(case: Case<'_>, changes: &mut Vec<Change>) {
    for change in changes.iter_mut() {
        if let Change::Node(node) = change {
            clear_promise(node);
        }
    }
    if !changes.iter().any(|change| concerns_others(case, change)) {
        return;
    }
    let mut desk = PendingRecords::new(case, changes);
    desk.settle_new();
    while let Some(id) = desk.changed.pop_front() {
        desk.queued.remove(&id);
        desk.apply_consequences(id);
    }
    desk.free_promised();
    desk.finish_dags();
}

/// Clears the promise of a node that is out of service or reclaimed: no allocation can get such a node next.
fn clear_promise(node: &mut Node) {
    let is_had = node.lifecycle == Lifecycle::Ready && node.drain.is_empty();
    if !is_had || node.reclaimed_at.is_some() {
        node.promised = None;
    }
}

/// Checks whether a change can affect other records. Most allocations have no dependencies and no dependents; for those
/// nothing else is looked up.
fn concerns_others(case: Case<'_>, change: &Change) -> bool {
    use AllocationState::{Blocked, Held, Pending};
    let Change::Allocation { record, .. } = change else {
        return false;
    };
    let (order, terms, progress) = (&case.state.order, &record.spec.terms, &record.progress);
    let waits = matches!(record.state, Blocked | Held | Pending);
    let is_counted = progress.dag.is_some() || progress.element.is_some();
    terms.mutex.is_some()
        || terms.array.is_some()
        || (waits && !terms.after.is_empty())
        || (record.state != Pending && order.is_promised(record.id))
        || (record.state.is_terminal() && (is_counted || order.has_dependents(record.id)))
}

/// Records as the command leaves them, layered over the state.
struct PendingRecords<'a, 'c> {
    case: Case<'a>,
    changes: &'c mut Vec<Change>,
    /// Position of each allocation's record among the changes.
    places: BTreeMap<AllocationId, usize>,
    /// Changed records still to be examined, as others may depend on them.
    changed: VecDeque<AllocationId>,
    /// Ids in `changed`, as a set.
    queued: BTreeSet<AllocationId>,
    /// DAGs with a member that has ended in this command.
    dags: BTreeMap<DagId, DagProgress>,
}

impl<'a, 'c> PendingRecords<'a, 'c> {
    fn new(case: Case<'a>, changes: &'c mut Vec<Change>) -> Self {
        let mut desk = Self {
            case,
            changes,
            places: BTreeMap::new(),
            changed: VecDeque::new(),
            queued: BTreeSet::new(),
            dags: BTreeMap::new(),
        };
        for (place, change) in desk.changes.iter().enumerate() {
            if let Change::Allocation { record, .. } = change {
                desk.places.insert(record.id, place);
            }
        }
        desk
    }

    /// Record of an allocation with the changes so far; `None` if it had ended before this command.
    fn record(&self, id: AllocationId) -> Option<&Allocation> {
        let changed = self
            .places
            .get(&id)
            .and_then(|place| match &self.changes[*place] {
                Change::Allocation { record, .. } => Some(&**record),
                _ => None,
            });
        changed.or_else(|| self.before(id))
    }

    fn before(&self, id: AllocationId) -> Option<&'a Allocation> {
        self.case.state.hot.get(&id).map(|record| &**record)
    }

    /// Puts a changed record, and queues it so that the consequences of its change are applied.
    fn put(&mut self, what: AllocationChange, next: Allocation) {
        let id = next.id;
        match self.places.get(&id) {
            Some(place) => {
                if let Change::Allocation { change, record } = &mut self.changes[*place] {
                    // The change kind of the command itself stays, unless this change ends the allocation.
                    if next.state.is_terminal() {
                        *change = what;
                    }
                    **record = next;
                }
            }
            None => {
                self.places.insert(id, self.changes.len());
                self.changes.push(Change::Allocation {
                    change: what,
                    record: Box::new(next),
                });
            }
        }
        self.enqueue(id);
    }

    fn enqueue(&mut self, id: AllocationId) {
        if self.queued.insert(id) {
            self.changed.push_back(id);
        }
    }

    /// Blocks allocations that are new, or became eligible by this command, if they must wait.
    fn settle_new(&mut self) {
        let ids: Vec<AllocationId> = self.places.keys().copied().collect();
        for id in ids {
            let before = self.before(id).map(|before| before.state);
            let now = self.record(id).map(|record| record.state);
            let is_eligible = now == Some(AllocationState::Pending);
            if before.is_none() || (is_eligible && before != now) {
                self.reconsider(id);
            }
            self.enqueue(id);
        }
    }

    /// Applies every consequence of one changed record.
    fn apply_consequences(&mut self, id: AllocationId) {
        let Some(record) = self.record(id) else {
            return;
        };
        let has_ended = record.state.is_terminal();
        let element = record.progress.element.filter(|_| has_ended);
        let elements = self.lost_elements(id);
        // Hand over the mutex before waking dependents of this end: of two that could start now, the first waiter gets
        // it.
        if let Some(mutex) = self.freed_mutex(id) {
            self.hand_over(&mutex);
        }
        if let Some(element) = element {
            self.count_element(id, element.array);
        }
        if has_ended {
            self.count_member(id);
        }
        let order = &self.case.state.order;
        if has_ended || elements.is_some() {
            order.dependents(id).for_each(|id| self.reconsider(id));
        }
        if let Some(elements) = elements {
            let dependents = order.dependents_within(elements);
            dependents.for_each(|id| self.reconsider(id));
        }
        if let Some(element) = element {
            let dependents = order.dependents(element.array);
            dependents.for_each(|id| self.reconsider_element(id, element));
        }
    }

    /// User and mutex name, if the record held the mutex before this command and does not now.
    fn freed_mutex(&self, id: AllocationId) -> Option<(String, String)> {
        let record = self.record(id)?;
        let mutex = record.spec.terms.mutex.as_ref()?;
        let freed = self.before(id).is_some_and(has_mutex) && !has_mutex(record);
        freed.then(|| (record.user.clone(), mutex.clone()))
    }

    /// Gives this mutex to the first allocation that waits for nothing else.
    fn hand_over(&mut self, (user, mutex): &(String, String)) {
        for id in self.case.state.order.mutex_waiting(user, mutex) {
            self.reconsider(id);
            if self.record(id).is_some_and(has_mutex) {
                return;
            }
        }
    }

    /// Releases, blocks or cancels a waiting allocation, by its present standing. A held allocation stays held, unless
    /// it can never start.
    fn reconsider(&mut self, id: AllocationId) {
        use AllocationState::{Blocked, Held, Pending};
        let Some(record) = self.record(id) else {
            return;
        };
        if record.progress.tally.is_some() {
            return self.reconsider_array(id);
        }
        if !matches!(record.state, Blocked | Held | Pending) {
            return;
        }
        match (self.standing(record), record.state) {
            (WaitStanding::Ready, Blocked) => {
                let next = self.pending_record(record);
                self.put(AllocationChange::Released, next);
            }
            (WaitStanding::Waits, Pending) => {
                let next = in_state(self.case, record, Blocked);
                self.put(AllocationChange::Held, next);
            }
            (WaitStanding::Ready | WaitStanding::Waits, _) => {}
            (WaitStanding::Never(cause), _) => {
                let next = self.cancelled_record(record, cause);
                self.put(AllocationChange::Ended, next);
            }
        }
    }

    /// Returns the record in state pending, eligible from now or from its earliest begin time.
    fn pending_record(&self, record: &Allocation) -> Allocation {
        let begin_at = record.spec.terms.begin_at.unwrap_or(UnixMillis(0));
        Allocation {
            eligible_at: self.case.now.max(begin_at),
            ..in_state(self.case, record, AllocationState::Pending)
        }
    }

    fn cancelled_record(&self, record: &Allocation, cause: StopCause) -> Allocation {
        let mut next = in_state(self.case, record, AllocationState::Cancelled);
        if let Some(tally) = next.progress.tally.as_mut() {
            cancel_unplaced(tally);
        }
        Allocation {
            stop: Some(cause),
            ended_at: Some(self.case.now),
            ..next
        }
    }

    /// Frees nodes that were promised to allocations that do not wait for nodes any more.
    fn free_promised(&mut self) {
        let waits = |record: &Allocation| record.state == AllocationState::Pending;
        let ids = self.places.keys().copied();
        let left: Vec<AllocationId> = ids
            .filter(|id| {
                self.before(*id).is_some_and(waits) && !self.record(*id).is_some_and(waits)
            })
            .collect();
        for id in left {
            for node in self.case.state.order.promised(id) {
                self.free_node(node);
            }
        }
    }

    fn free_node(&mut self, id: &NodeId) {
        let changed = self.changes.iter_mut().find_map(|change| match change {
            Change::Node(node) if node.id == *id => Some(node),
            _ => None,
        });
        match changed {
            Some(node) => node.promised = None,
            None => {
                let Some(node) = self.case.state.nodes.get(id) else {
                    return;
                };
                let free = Node {
                    promised: None,
                    version: node.version + 1,
                    ..node.clone()
                };
                self.changes.push(Change::Node(Box::new(free)));
            }
        }
    }
}
