//! Quorum maintenance: audit entries of actions that change no state.

use super::{Case, audited, invalid};
use crate::change::Verdict;
use lattice_quorum_types::{Refusal, audit::AuditAction};

/// Appends the audit entry of a membership change, handover, backup or restore, or of the numbers that a restore skips.
/// Rejects all other actions: the commands
/// that perform them write their entries.
pub(super) fn note(case: Case<'_>, action: &AuditAction) -> Result<Verdict, Refusal> {
    match action {
        AuditAction::MemberAdded { .. }
        | AuditAction::MemberRemoved { .. }
        | AuditAction::SteppedDown { .. }
        | AuditAction::BackedUp { .. }
        | AuditAction::Restored { .. }
        | AuditAction::NumbersSkipped { .. } => {
            Ok(Verdict::done(audited(case, action.clone(), Vec::new())))
        }
        other => Err(invalid(
            "action",
            format!(
                "{} is recorded only by the command that performs it",
                other.word()
            ),
        )),
    }
}
