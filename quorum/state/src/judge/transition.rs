//! Transition of an allocation between states.

use super::Case;
use lattice_quorum_types::{Allocation, AllocationState};

/// Returns `present` in state `state`. `state_since` is now, unless the allocation was in that state already.
pub(super) fn in_state(case: Case<'_>, present: &Allocation, state: AllocationState) -> Allocation {
    let state_since = if present.state == state {
        present.state_since
    } else {
        case.now
    };
    let mut next = present.clone();
    // An allocation that leaves `Checkpointing` early produces no checkpoint.
    if state != AllocationState::Checkpointing && next.progress.writing.take().is_some() {
        next.progress.failed_checkpoints += 1;
        let reason = "the allocation was stopped before the checkpoint was complete";
        next.progress.failed_because = Some(reason.to_owned());
    }
    Allocation {
        state,
        state_since,
        ..next
    }
}
