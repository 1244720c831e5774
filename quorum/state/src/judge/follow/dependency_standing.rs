//! Standing of a waiting allocation towards its dependencies and its mutex.

use super::PendingRecords;
use crate::{
    dependency_index::has_mutex,
    judge::array::{id_of, index_of},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState,
    allocation::StopCause,
    terms::{Condition, Dependency},
};

/// Standing of a waiting allocation.
pub(super) enum WaitStanding {
    /// The allocation may be placed.
    Ready,
    /// The allocation waits for a dependency or the mutex.
    Waits,
    /// The allocation can never be placed.
    Never(StopCause),
}

impl PendingRecords<'_, '_> {
    /// Standing towards all dependencies that are not element by element, and the mutex. `Never` takes precedence over
    /// `Waits`: such an allocation would wait in vain.
    pub(super) fn standing(&self, record: &Allocation) -> WaitStanding {
        let mut waits = false;
        for dependency in &record.spec.terms.after {
            if is_by_index(record, dependency) {
                continue;
            }
            match self.met(dependency) {
                DependencyVerdict::Yes => {}
                DependencyVerdict::NotYet => waits = true,
                DependencyVerdict::Never(cause) => return WaitStanding::Never(cause),
            }
        }
        match waits || self.is_locked_out(record) {
            true => WaitStanding::Waits,
            false => WaitStanding::Ready,
        }
    }

    fn met(&self, dependency: &Dependency) -> DependencyVerdict {
        met(dependency, self.end_of(dependency.on))
    }

    /// Final state of an allocation that others depend on; `None` while it has not ended.
    pub(super) fn end_of(&self, id: AllocationId) -> Option<AllocationState> {
        if let Some(end) = self.known_end(id) {
            return end;
        }
        // An element without an allocation of its own.
        let array = self.case.state.order.array_of(id);
        match array.and_then(|array| self.record(array)) {
            Some(array) => end_of_unplaced(array, index_of(array, id)?),
            // The array has ended and the element was never placed, so the element counts as cancelled.
            None => Some(AllocationState::Cancelled),
        }
    }

    /// Final state of an element of this array; `None` while it has not ended.
    pub(super) fn end_of_element(&self, array: &Allocation, index: u32) -> Option<AllocationState> {
        let known = self.known_end(id_of(array, index)?);
        known.unwrap_or_else(|| end_of_unplaced(array, index))
    }

    /// Final state of an allocation that has, or had, a record; the outer `None` if there never was a record.
    fn known_end(&self, id: AllocationId) -> Option<Option<AllocationState>> {
        if let Some(record) = self.record(id) {
            return Some(record.state.is_terminal().then_some(record.state));
        }
        let ended = self.case.state.archive.ended(id)?;
        Some(Some(ended.state()))
    }

    /// Checks whether another allocation of the same user holds the mutex.
    fn is_locked_out(&self, record: &Allocation) -> bool {
        let Some(mutex) = &record.spec.terms.mutex else {
            return false;
        };
        let known = self.case.state.order.mutex_holders(&record.user, mutex);
        let mut known = known.filter(|id| *id != record.id);
        if known.any(|id| self.record(id).is_some_and(has_mutex)) {
            return true;
        }
        // Allocations that get the mutex by this command.
        let mut changed = self.places.keys().filter(|id| **id != record.id);
        changed.any(|id| {
            let other = self.record(*id).filter(|other| has_mutex(other));
            other.is_some_and(|other| {
                other.user == record.user
                    && other.spec.terms.mutex.as_ref() == Some(mutex)
                    // Of two that request the mutex in one command, the one with the lower id gets it.
                    && (other.id < record.id || self.before(*id).is_some())
            })
        })
    }
}

/// Checks whether each element of `record` depends on one element of the other array, not on the whole array.
pub(super) fn is_by_index(record: &Allocation, dependency: &Dependency) -> bool {
    // For an array, `Corresponding` refers to another array: submission checks that.
    dependency.condition == Condition::Corresponding && record.spec.terms.array.is_some()
}

/// Final state of an element that never had an allocation; `None` while it can still be placed.
fn end_of_unplaced(array: &Allocation, index: u32) -> Option<AllocationState> {
    let tally = array.progress.tally.as_ref()?;
    (tally.cancelled.contains(index)).then_some(AllocationState::Cancelled)
}

/// Evaluates a dependency for this final state (`None`: not ended).
pub(super) fn met(dependency: &Dependency, ended: Option<AllocationState>) -> DependencyVerdict {
    let Dependency { on, condition } = *dependency;
    let is_met = ended.and_then(|ended| Some((ended, condition.is_met(ended)?)));
    match is_met {
        None => DependencyVerdict::NotYet,
        Some((_, true)) => DependencyVerdict::Yes,
        Some((ended, false)) => DependencyVerdict::Never(StopCause::Unsatisfiable {
            on,
            condition,
            ended,
        }),
    }
}

/// Evaluation of one dependency.
pub(super) enum DependencyVerdict {
    Yes,
    NotYet,
    Never(StopCause),
}
