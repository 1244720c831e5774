//! What was done to the quorum itself: nothing of it is state, all of it is written down.

use super::{Case, audited, invalid};
use crate::change::Verdict;
use lattice_quorum_types::{Refusal, audit::AuditAction};

/// Only what a leader does itself: other entries are made by what they tell of.
pub(super) fn note(case: Case<'_>, action: &AuditAction) -> Result<Verdict, Refusal> {
    match action {
        AuditAction::MemberAdded { .. }
        | AuditAction::MemberRemoved { .. }
        | AuditAction::SteppedDown { .. }
        | AuditAction::BackedUp { .. }
        | AuditAction::Restored { .. } => {
            Ok(Verdict::done(audited(case, action.clone(), Vec::new())))
        }
        other => Err(invalid(
            "action",
            format!("{} is not written down by itself", other.word()),
        )),
    }
}
