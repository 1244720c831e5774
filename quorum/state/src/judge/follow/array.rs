//! Arrays: elements that wait for those of another array, and the end of the whole.

use super::{
    Desk, Standing,
    standing::{Met, met},
};
use crate::judge::{Case, people::entering};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, UnixMillis,
    allocation::StopCause,
    course::{Element, Tally},
    event::AllocationChange,
    terms::{Condition, Dependency},
};
use std::ops::RangeInclusive;

/// What an element waits for.
enum Fate {
    Ready,
    Waits,
    Lost(StopCause),
}

impl Desk<'_, '_> {
    /// The numbers of the elements of an array of which some were cancelled before they had a record: nothing
    /// else tells of their end.
    pub(super) fn lost_elements(&self, id: AllocationId) -> Option<RangeInclusive<AllocationId>> {
        let cancelled = |record: Option<&Allocation>| {
            let tally = record?.course.tally.as_ref()?;
            Some(tally.cancelled.len())
        };
        let now = cancelled(self.record(id))?;
        if now == cancelled(self.before(id)).unwrap_or(0) {
            return None;
        }
        Some(self.record(id)?.element_numbers()?.range())
    }

    /// One element of an array has ended.
    pub(super) fn count_element(&mut self, id: AllocationId, array: AllocationId) {
        let (Some(element), Some(array)) = (self.record(id), self.record(array)) else {
            return;
        };
        let mut next = array.clone();
        let Some(tally) = next.course.tally.as_mut() else {
            return;
        };
        tally.alive = tally.alive.saturating_sub(1);
        match element.state {
            AllocationState::Completed => tally.completed += 1,
            AllocationState::Failed => tally.failed += 1,
            _ => tally.stopped += 1,
        }
        if element.state == AllocationState::Cancelled && next.stop.is_none() {
            next.stop.clone_from(&element.stop);
        }
        let goes_on = next.state == AllocationState::Pending;
        let (what, next) = settled(self.case, next, goes_on);
        self.put(what, next);
    }

    /// All that may have changed for an array that waits.
    pub(super) fn reconsider_array(&mut self, id: AllocationId) {
        use AllocationState::{Blocked, Held, Pending};
        let Some(record) = self.record(id) else {
            return;
        };
        if !matches!(record.state, Blocked | Held | Pending) {
            return;
        }
        let goes_on = match self.standing(record) {
            Standing::Never(cause) => {
                let next = self.never(record, cause);
                return self.put(AllocationChange::Ended, next);
            }
            Standing::Waits => false,
            Standing::Ready => true,
        };
        let blocked: Vec<u32> = match &record.course.tally {
            Some(tally) => tally.blocked.iter().collect(),
            None => return,
        };
        self.decide(id, &blocked, goes_on);
    }

    /// An element that this array's element of the same index waits for has ended.
    pub(super) fn reconsider_element(&mut self, id: AllocationId, element: Element) {
        let Some(record) = self.record(id) else {
            return;
        };
        let tally = record.course.tally.as_ref();
        if tally.is_some_and(|tally| tally.blocked.contains(element.index)) {
            let goes_on = matches!(self.standing(record), Standing::Ready);
            self.decide(id, &[element.index], goes_on);
        }
    }

    /// Of these blocked elements of an array some never will be placed, and where the array as a whole waits
    /// for nothing some may be.
    fn decide(&mut self, id: AllocationId, indices: &[u32], goes_on: bool) {
        let Some(record) = self.record(id) else {
            return;
        };
        let goes_on = goes_on && record.state != AllocationState::Held;
        let mut next = record.clone();
        let Some(tally) = next.course.tally.as_mut() else {
            return;
        };
        for index in indices {
            let into = match self.fate(record, *index) {
                Fate::Lost(cause) => {
                    next.stop.get_or_insert(cause);
                    &mut tally.cancelled
                }
                Fate::Ready if goes_on => &mut tally.pending,
                Fate::Ready | Fate::Waits => continue,
            };
            into.insert(*index);
            tally.blocked.remove(*index);
        }
        let (what, next) = settled(self.case, next, goes_on);
        if Some(&next) != self.record(id) {
            self.put(what, next);
        }
    }

    fn fate(&self, record: &Allocation, index: u32) -> Fate {
        let mut waits = false;
        let by_index = |dependency: &&Dependency| goes_by_index(record, dependency);
        for dependency in record.spec.terms.after.iter().filter(by_index) {
            let Some(other) = self.awaited(record, dependency.on) else {
                continue;
            };
            // Where it has no such index there is nothing to wait for.
            let Some(on) = number_of(other, index) else {
                continue;
            };
            let of_element = Dependency { on, ..*dependency };
            match met(&of_element, self.end_of_element(other, index)) {
                Met::Yes => {}
                Met::NotYet => waits = true,
                Met::Never(cause) => return Fate::Lost(cause),
            }
        }
        match waits {
            true => Fate::Waits,
            false => Fate::Ready,
        }
    }

    /// The array whose elements this one's wait for. Those of one that has ended were looked at when it did,
    /// or when this one came: what it has not lost by that waits for it no more. (Its record may be at hand no
    /// longer.)
    fn awaited(&self, record: &Allocation, other: AllocationId) -> Option<&Allocation> {
        let is_new = self.before(record.id).is_none();
        let ended = || self.case.state.archive.get(other).filter(|_| is_new);
        self.record(other).or_else(ended)
    }
}

/// Whether each element of `record` waits for one of the other array, and not for the whole.
pub(super) fn goes_by_index(record: &Allocation, dependency: &Dependency) -> bool {
    // Of an array, it is on another array: submits are asked for that.
    dependency.condition == Condition::Corresponding && record.spec.terms.array.is_some()
}

/// The state that follows from an array's tally. `goes_on`: its elements may be placed, unless it is on hold.
pub(in crate::judge) fn settled(
    case: Case<'_>,
    record: Allocation,
    goes_on: bool,
) -> (AllocationChange, Allocation) {
    use AllocationState::{Blocked, Held, Pending};
    let Some(tally) = &record.course.tally else {
        return (AllocationChange::Counted, record);
    };
    if let Some(end) = end_of(tally) {
        let next = Allocation {
            ended_at: Some(case.now),
            ..entering(case, &record, end)
        };
        return (AllocationChange::Ended, next);
    }
    let has_pending = !tally.pending.is_empty();
    let state = match record.state {
        Held => Held,
        _ if goes_on && has_pending => Pending,
        _ => Blocked,
    };
    let begin_at = record.spec.terms.begin_at.unwrap_or(UnixMillis(0));
    let (what, eligible_at) = match (record.state, state) {
        (Pending, Blocked) if has_pending => (AllocationChange::Held, record.eligible_at),
        (Blocked, Pending) => (AllocationChange::Released, case.now.max(begin_at)),
        _ => (AllocationChange::Counted, record.eligible_at),
    };
    let next = Allocation {
        eligible_at,
        ..entering(case, &record, state)
    };
    (what, next)
}

/// What of an array is not placed by now never will be.
pub(in crate::judge) fn give_up_rest(tally: &mut Tally) {
    let left = tally.pending.union(&tally.blocked);
    tally.cancelled = tally.cancelled.union(&left);
    (tally.pending, tally.blocked) = Default::default();
}

/// The number of the element with this index.
pub(in crate::judge) fn number_of(array: &Allocation, index: u32) -> Option<AllocationId> {
    array.element_numbers()?.of(index)
}

/// How an array ends once nothing of it is left to run.
fn end_of(tally: &Tally) -> Option<AllocationState> {
    let left = tally.alive > 0 || !tally.pending.is_empty() || !tally.blocked.is_empty();
    if left {
        return None;
    }
    Some(if tally.failed > 0 {
        AllocationState::Failed
    } else if tally.stopped > 0 || !tally.cancelled.is_empty() {
        AllocationState::Cancelled
    } else {
        AllocationState::Completed
    })
}
