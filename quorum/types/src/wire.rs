//! Messages to quorum members, except those of Raft, which are in the quorum daemon.

use crate::{
    Applied, Envelope, Refusal, Revision,
    audit::AuditHead,
    rpc::{Role, Rpc, StreamRpc},
    view::{Answer, Query, WatchItem},
};
use serde::{Deserialize, Serialize};

/// Reasons why a quorum member returns no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unavailable {
    /// The member is not the leader. The caller sends the request to the leader.
    #[error("not the leader; the leader is {}", .leader.as_deref().unwrap_or("not known"))]
    NotLeader {
        /// Mesh address of the leader, if known.
        leader: Option<String>,
    },
    /// There is no majority, or the member is still starting.
    #[error("the quorum has no majority at present")]
    NoMajority,
    /// The proposal queue is full. The caller backs off.
    #[error("too many proposals are pending")]
    Busy,
    /// It is not known whether the proposal was committed. The caller repeats it with the same idempotency key.
    #[error("the outcome is unknown; repeat with the same idempotency key")]
    OutcomeUnknown,
    /// Records that the answer needs cannot be read on this member, and no other member supplied them.
    #[error("records of this member cannot be read: {reason}")]
    Unreadable {
        /// The records and the error.
        reason: String,
    },
    /// Every repetition would be rejected: the sender's role does not permit the request, the versions of the daemons
    /// differ, or the request is too large. Control reports it; a member never answers it.
    #[error(
        "the quorum rejects this request: {reason}; check the role and the version of this daemon"
    )]
    Rejected {
        /// Error of the request.
        reason: String,
    },
}

/// Longest request that a member accepts and that control sends, bytes: the content of one log entry, and signatures,
/// which are not logged.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Longest command, with its envelope, that fits in such a request, bytes.
pub const MAX_COMMAND_BYTES: usize = MAX_REQUEST_BYTES - 64;

/// Proposes commands; each has its own result. Quorum members propose only enrolments, renewals and authorities.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Propose {
    /// Commands in order.
    pub envelopes: Vec<Envelope>,
}
impl Rpc for Propose {
    const METHOD: &'static str = "quorum.propose";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Reply = Result<Vec<Result<Applied, Refusal>>, Unavailable>;
}

/// A linearizable read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Read {
    /// The query.
    pub query: Query,
}
impl Rpc for Read {
    const METHOD: &'static str = "quorum.read";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Reply = Result<Answer, Unavailable>;
}

/// Requests the leader to sign the audit up to its present end. No effect if everything is signed already.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SignAudit;
impl Rpc for SignAudit {
    const METHOD: &'static str = "quorum.sign_audit";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The audit head afterwards. The inner error is the reason why the head is not signed.
    type Reply = Result<Result<AuditHead, String>, Unavailable>;
}

/// Streams all events after a revision, as they are committed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watch {
    /// Last revision that the watcher has.
    pub since: Revision,
}
impl StreamRpc for Watch {
    const METHOD: &'static str = "quorum.watch";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Item = WatchItem;
}
