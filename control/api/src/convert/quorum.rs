//! Quorum: members and membership changes.

use crate::{
    cluster::quorum::{QuorumMemberView, QuorumStep, QuorumView},
    v1,
};

impl From<QuorumView> for v1::Quorum {
    fn from(view: QuorumView) -> Self {
        Self {
            cluster: view.cluster,
            incarnation: view.incarnation,
            restored_from: view.restored_from,
            answered_by: view.answered_by,
            leader: view.leader,
            term: view.term,
            majority: view.majority,
            reachable: view.reachable,
            warnings: view.warnings,
            members: view.members.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<QuorumMemberView> for v1::QuorumMember {
    fn from(view: QuorumMemberView) -> Self {
        Self {
            id: view.id,
            address: view.address,
            role: view.role,
            fault: view.fault,
            term: view.term,
            last_log_index: view.last_log_index,
            applied_index: view.applied_index,
            snapshot_index: view.snapshot_index,
            revision: view.revision,
            lag: view.lag,
            last_contact_ms: view.last_contact_ms,
            build: view.build,
            data_format: view.data_format,
        }
    }
}

impl From<QuorumStep> for v1::QuorumStep {
    fn from(step: QuorumStep) -> Self {
        Self {
            state: step.state,
            unchanged: step.unchanged,
            leader: step.leader,
            at: step.at,
            of: step.of,
            fault: step.fault,
        }
    }
}
