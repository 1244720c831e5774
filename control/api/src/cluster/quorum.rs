//! Quorum: members, their progress, and membership changes.

use lattice_quorum_types::membership::{
    ChangeProgress, Incarnation, MemberRow, QuorumView as Known,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All members, as the leader reports them, or as any member reports them while there is no leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumView {
    /// Cluster name.
    pub cluster: String,
    /// Incarnation of the cluster: 1 when it was founded, one more with each restore from a backup.
    pub incarnation: u64,
    /// Identifier of the restore that began this incarnation, 16 hex digits; absent for the first incarnation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,
    /// Member that answered, after it had queried the others.
    pub answered_by: u64,
    /// Leader; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u64>,
    /// Newest term.
    pub term: u64,
    /// Number of voters that a change needs.
    pub majority: u32,
    /// Number of voters that answered.
    pub reachable: u32,
    /// Warnings for the operator, the worst first; empty if all is well.
    pub warnings: Vec<String>,
    /// Members, by number.
    pub members: Vec<QuorumMemberView>,
}

/// Quorum member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumMemberView {
    /// Member number.
    pub id: u64,
    /// Mesh address.
    pub address: String,
    /// `leader`, `voter`, or `learner`: a member without a vote that is catching up.
    pub role: String,
    /// Why the member did not answer; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Raft term of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Last log entry of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_log_index: Option<u64>,
    /// Last log entry that the member applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_index: Option<u64>,
    /// Last log entry in the member's newest snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_index: Option<u64>,
    /// Revision of the member's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Log entries behind the leader; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Milliseconds since the leader received a message from the member. Absent for the leader, and for a member
    /// without a message since the leader's term began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_ms: Option<u64>,
    /// Version of the member's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Format of the member's data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_format: Option<u32>,
}

fn origin(incarnation: Incarnation) -> Option<String> {
    (incarnation.origin != 0).then(|| format!("{:016x}", incarnation.origin))
}

impl From<Known> for QuorumView {
    fn from(known: Known) -> Self {
        Self {
            cluster: known.cluster,
            incarnation: known.incarnation.number,
            restored_from: origin(known.incarnation),
            answered_by: known.answered_by,
            leader: known.leader,
            term: known.term,
            majority: known.majority,
            reachable: known.reachable,
            warnings: known.warnings,
            members: known.members.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<MemberRow> for QuorumMemberView {
    fn from(row: MemberRow) -> Self {
        let account = row.account.as_ref();
        Self {
            id: row.id,
            address: row.addr,
            role: row.role.as_str().to_owned(),
            fault: row.fault,
            term: account.map(|a| a.term),
            last_log_index: account.map(|a| a.last_log_index),
            applied_index: account.map(|a| a.applied_index),
            snapshot_index: account.map(|a| a.snapshot_index),
            revision: account.map(|a| a.revision.0),
            lag: row.lag,
            last_contact_ms: row.last_contact_ms,
            build: account.map(|a| a.build.clone()),
            data_format: account.map(|a| a.data_format),
        }
    }
}

/// Request to add a member. The member must be running with `join: true`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMemberRequest {
    /// Member number. The member's certificate identity is `spiffe://<cluster>/quorum/<id>`.
    #[schema(minimum = 1)]
    pub id: u64,
    /// Mesh address, `ip:port`.
    pub address: String,
}

/// Request to transfer leadership.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDownRequest {
    /// Number of the voter that is to lead; left out: any voter with a complete log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// Progress of a membership change. Repeat the request with the same key until the change is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumStep {
    /// `done`, `catching_up` or `under_way`.
    pub state: String,
    /// Whether the change was already in effect, so that this request changed nothing.
    pub unchanged: bool,
    /// Leader after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u64>,
    /// Last log entry of the new member, while it catches up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Last log entry of the leader, while the new member catches up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// Why the last call to the new member failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl QuorumStep {
    /// Whether the change is complete.
    pub fn is_done(&self) -> bool {
        self.state == "done"
    }
}

impl From<ChangeProgress> for QuorumStep {
    fn from(progress: ChangeProgress) -> Self {
        match progress {
            ChangeProgress::Done { already, leader } => Self {
                state: "done".to_owned(),
                unchanged: already,
                leader,
                ..Self::default()
            },
            ChangeProgress::CatchingUp { at, of, fault } => Self {
                state: "catching_up".to_owned(),
                at: Some(at),
                of: Some(of),
                fault,
                ..Self::default()
            },
            ChangeProgress::UnderWay => Self {
                state: "under_way".to_owned(),
                ..Self::default()
            },
        }
    }
}
