//! Arrays: element-wise dependencies, and the end of the array.

use super::{
    PendingRecords, WaitStanding,
    dependency_standing::{DependencyVerdict, is_by_index, met},
};
use crate::judge::array::{id_of, with_derived_state};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, allocation::StopCause, event::AllocationChange,
    progress::ArrayElement, terms::Dependency,
};
use std::ops::RangeInclusive;

/// Standing of one element towards the elements that it depends on.
enum ElementStanding {
    Ready,
    Waits,
    Never(StopCause),
}

impl PendingRecords<'_, '_> {
    /// Range of element ids of an array in which some elements were cancelled before they had a record. No other change
    /// announces the end of such elements.
    pub(super) fn lost_elements(&self, id: AllocationId) -> Option<RangeInclusive<AllocationId>> {
        let cancelled = |record: Option<&Allocation>| {
            let tally = record?.progress.tally.as_ref()?;
            Some(tally.cancelled.len())
        };
        let now = cancelled(self.record(id))?;
        if now == cancelled(self.before(id)).unwrap_or(0) {
            return None;
        }
        Some(self.record(id)?.element_numbers()?.range())
    }

    /// Counts an ended element in the record of its array.
    pub(super) fn count_element(&mut self, id: AllocationId, array: AllocationId) {
        let (Some(element), Some(array)) = (self.record(id), self.record(array)) else {
            return;
        };
        let mut next = array.clone();
        let Some(tally) = next.progress.tally.as_mut() else {
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
        let (what, next) = with_derived_state(self.case, next, goes_on);
        self.put(what, next);
    }

    /// Re-evaluates a waiting array as a whole, with all its blocked elements.
    pub(super) fn reconsider_array(&mut self, id: AllocationId) {
        use AllocationState::{Blocked, Held, Pending};
        let Some(record) = self.record(id) else {
            return;
        };
        if !matches!(record.state, Blocked | Held | Pending) {
            return;
        }
        let goes_on = match self.standing(record) {
            WaitStanding::Never(cause) => {
                let next = self.cancelled_record(record, cause);
                return self.put(AllocationChange::Ended, next);
            }
            WaitStanding::Waits => false,
            WaitStanding::Ready => true,
        };
        let blocked: Vec<u32> = match &record.progress.tally {
            Some(tally) => tally.blocked.iter().collect(),
            None => return,
        };
        self.update_elements(id, &blocked, goes_on);
    }

    /// Re-evaluates the element of this array that waits for the ended element of the same index.
    pub(super) fn reconsider_element(&mut self, id: AllocationId, element: ArrayElement) {
        let Some(record) = self.record(id) else {
            return;
        };
        let tally = record.progress.tally.as_ref();
        if tally.is_some_and(|tally| tally.blocked.contains(element.index)) {
            let goes_on = matches!(self.standing(record), WaitStanding::Ready);
            self.update_elements(id, &[element.index], goes_on);
        }
    }

    /// Updates the tally for each of these blocked elements. An element that can never start is cancelled. A ready
    /// element becomes pending if the array as a whole waits for nothing (`goes_on`).
    fn update_elements(&mut self, id: AllocationId, indices: &[u32], goes_on: bool) {
        let Some(record) = self.record(id) else {
            return;
        };
        let goes_on = goes_on && record.state != AllocationState::Held;
        let mut next = record.clone();
        let Some(tally) = next.progress.tally.as_mut() else {
            return;
        };
        for index in indices {
            let into = match self.element_standing(record, *index) {
                ElementStanding::Never(cause) => {
                    next.stop.get_or_insert(cause);
                    &mut tally.cancelled
                }
                ElementStanding::Ready if goes_on => &mut tally.pending,
                ElementStanding::Ready | ElementStanding::Waits => continue,
            };
            into.insert(*index);
            tally.blocked.remove(*index);
        }
        let (what, next) = with_derived_state(self.case, next, goes_on);
        if Some(&next) != self.record(id) {
            self.put(what, next);
        }
    }

    fn element_standing(&self, record: &Allocation, index: u32) -> ElementStanding {
        let mut waits = false;
        let by_index = |dependency: &&Dependency| is_by_index(record, dependency);
        for dependency in record.spec.terms.after.iter().filter(by_index) {
            let Some(other) = self.awaited(record, dependency.on) else {
                continue;
            };
            // If the other array has no such index, there is nothing to wait for.
            let Some(on) = id_of(other, index) else {
                continue;
            };
            let of_element = Dependency { on, ..*dependency };
            match met(&of_element, self.end_of_element(other, index)) {
                DependencyVerdict::Yes => {}
                DependencyVerdict::NotYet => waits = true,
                DependencyVerdict::Never(cause) => return ElementStanding::Never(cause),
            }
        }
        match waits {
            true => ElementStanding::Waits,
            false => ElementStanding::Ready,
        }
    }

    /// Record of the array that this array depends on, element by element.
    ///
    /// Dependencies on an ended array are evaluated when that array ends, or when this array is submitted. Elements
    /// that are not cancelled then no longer wait for the ended array, and its record may have left memory.
    fn awaited(&self, record: &Allocation, other: AllocationId) -> Option<&Allocation> {
        let is_new = self.before(record.id).is_none();
        let ended = || self.case.state.archive.get(other).filter(|_| is_new);
        self.record(other).or_else(ended)
    }
}
