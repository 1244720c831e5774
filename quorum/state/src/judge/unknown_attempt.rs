//! Attempts of allocations without a record: a node runs them because they were submitted after the backup from which
//! the cluster was restored. See `../../../0009-backup.md`.

use super::{Case, audited, element, invalid};
use crate::change::Verdict;
use lattice_quorum_types::{
    AllocationId, NodeId, Refusal, audit::AuditAction, origin::AttemptOrigin,
};

/// Writes the audit entry of an attempt that its node is ending. Rejects an allocation with a record: its attempts end
/// with reports. A node without a record is accepted: it may have been registered after the backup, as the allocation was.
pub(super) fn note(
    case: Case<'_>,
    node: &NodeId,
    (allocation, attempt): (AllocationId, u32),
    origin: Option<&AttemptOrigin>,
) -> Result<Verdict, Refusal> {
    let state = case.state;
    let has_record = state.hot.contains_key(&allocation)
        || state.archive.ended(allocation).is_some()
        || state.order.array_of(allocation).is_some();
    if has_record {
        let name = element::name_of(case, allocation);
        let reason = format!("allocation {name} has a record; report the end of its attempt");
        return Err(invalid("allocation", reason));
    }
    if let Some(field) = origin.and_then(AttemptOrigin::invalid_field) {
        let reason = "is empty, too long, or has control characters; report no origin";
        return Err(invalid(&format!("origin.{field}"), reason));
    }
    let action = AuditAction::UnknownAttemptEnded {
        node: node.clone(),
        allocation,
        attempt,
        origin: origin.cloned(),
    };
    Ok(Verdict::done(audited(case, action, Vec::new())))
}
