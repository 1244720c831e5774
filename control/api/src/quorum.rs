//! The quorum itself: its members, how far each is, and changes of them.

use lattice_quorum_types::membership::{Incarnation, MemberRow, Progress, QuorumView as Known};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All members, as the leader sees them, or any member while there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumView {
    /// The cluster's name.
    pub cluster: String,
    /// Which life of it: 1 as it was founded, one more with each restore from a backup.
    pub incarnation: u64,
    /// What it was restored from, 16 hex digits; absent for a cluster as it was founded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,
    /// The member that was asked, and asked the others.
    pub told_by: u64,
    /// Who leads; absent while nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u64>,
    /// The newest term.
    pub term: u64,
    /// Voters that must answer for anything to be changed.
    pub majority: u32,
    /// Voters that answered.
    pub reachable: u32,
    /// What somebody should look at, the worst first; empty when all is well.
    pub warnings: Vec<String>,
    /// By number.
    pub members: Vec<QuorumMemberView>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumMemberView {
    /// Its number.
    pub id: u64,
    /// Its mesh address.
    pub address: String,
    /// `leader`, `voter`, or `learner`: being brought up to date, without a vote.
    pub role: String,
    /// Why it did not answer; absent when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Its term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Last log entry it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_log_index: Option<u64>,
    /// Last log entry it applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_index: Option<u64>,
    /// Last log entry its newest snapshot covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_index: Option<u64>,
    /// Revision of its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Log entries behind the leader; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Milliseconds since the leader heard from it; absent for the leader, and when it was not heard
    /// since that one began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// Version of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Format of its data directory.
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
            told_by: known.told_by,
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
            heard_ms: row.heard_ms,
            build: account.map(|a| a.build.clone()),
            data_format: account.map(|a| a.data_format),
        }
    }
}

/// One more member. It must run, with `join: true`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMemberRequest {
    /// Its number; its certificate is `spiffe://<cluster>/quorum/<id>`.
    #[schema(minimum = 1)]
    pub id: u64,
    /// Its mesh address, `ip:port`.
    pub address: String,
}

/// Who is to lead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDownRequest {
    /// A voter's number; whoever has everything when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// How far a change is. Ask again, with the same key, until it is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumStep {
    /// `done`, `catching_up` or `under_way`.
    pub state: String,
    /// It was so before; nothing was done now.
    pub already: bool,
    /// Who leads, once it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u64>,
    /// Last log entry the new member has, while it catches up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Last log entry there is, while it catches up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// Why the last call to the new member failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl QuorumStep {
    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.state == "done"
    }
}

impl From<Progress> for QuorumStep {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Done { already, leader } => Self {
                state: "done".to_owned(),
                already,
                leader,
                ..Self::default()
            },
            Progress::CatchingUp { at, of, fault } => Self {
                state: "catching_up".to_owned(),
                at: Some(at),
                of: Some(of),
                fault,
                ..Self::default()
            },
            Progress::UnderWay => Self {
                state: "under_way".to_owned(),
                ..Self::default()
            },
        }
    }
}
