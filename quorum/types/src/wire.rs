//! Messages between Lattice processes, except those of Raft, which are in the quorum daemon.

pub mod checkpoint;
mod usage;
mod walltime;

pub use crate::claim::Claim;
use crate::{
    AllocationId, Applied, Envelope, NodeId, Refusal, Revision, UnixMillis,
    audit::AuditHead,
    checkpoint::CheckpointSetup,
    command::RankReport,
    rpc::{Role, Rpc, StreamRpc},
    spec::Workload,
    tenure::WipeOutcome,
    view::{Answer, MemberStatus, Query, WatchItem},
};
use bytes::Bytes;
pub use checkpoint::{CheckpointRefused, WriteCheckpoint};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
pub use usage::{GetUsage, Part};
pub use walltime::{SetWalltime, WalltimeRefused, WalltimeStatus};

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
}

/// Longest request that a member accepts and that control sends, bytes: the content of one log entry, and signatures,
/// which are not logged.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Longest command, with its envelope, that fits in such a request, bytes.
pub const MAX_COMMAND_BYTES: usize = MAX_REQUEST_BYTES - 64;

/// Proposes commands; each has its own result. Quorum members propose only for enrolment.
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

/// Requests a member's status, as the member itself reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetMemberStatus;
impl Rpc for GetMemberStatus {
    const METHOD: &'static str = "quorum.status";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Reply = MemberStatus;
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

/// Identifies one attempt of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// Number of the allocation.
    pub allocation: AllocationId,
    /// Number of the attempt.
    pub attempt: u32,
}

/// Starts one rank. The agent answers a repeat with the existing status and refuses lower epochs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease.
    pub epoch: u64,
    /// Revision of the assignment.
    pub revision: Revision,
    /// User that submitted the allocation.
    pub user: String,
    /// Project, as text for the environment.
    pub project: String,
    /// Nodes of the allocation in rank order, without those that it releases.
    pub nodes: Vec<NodeId>,
    /// Rank number on this node.
    pub rank: u32,
    /// Program to run.
    pub workload: Workload,
    /// Longest run time, milliseconds.
    pub walltime_ms: Option<u64>,
    /// Boot id of the node at assignment. The agent does not start the rank under another boot id.
    pub boot: Option<String>,
    /// Whether the allocation is sensitive. Its traces are wiped before the node is released.
    pub sensitive: bool,
    /// Number of GPUs for the rank, which the agent selects; 0: all GPUs of the node.
    pub gpus: u32,
    /// Checkpoint setup of the rank; `None`: the rank writes no checkpoints.
    pub checkpoint: Option<CheckpointSetup>,
}
impl Rpc for Launch {
    const METHOD: &'static str = "agent.launch";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<AttemptStatus, LaunchRefused>;
}

/// Reasons why an agent does not start or end a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LaunchRefused {
    /// A dispatcher with a newer epoch has already called the agent.
    #[error("stale lease epoch {given}; current is {current}")]
    StaleEpoch {
        /// Epoch of the request.
        given: u64,
        /// Highest epoch that the agent has received.
        current: u64,
    },
    /// The agent may not run processes of this user.
    #[error("this agent does not run jobs of {user}: {reason}")]
    UserNotAllowed {
        /// The user.
        user: String,
        /// Description of the reason.
        reason: String,
    },
    /// The journal could not be written.
    #[error("the attempt could not be recorded: {reason}")]
    JournalFailed {
        /// Description of the error.
        reason: String,
    },
    /// The node has rebooted since the assignment, so no process of the rank is left.
    #[error("node has rebooted since assignment (boot id {current}, expected {expected})")]
    OtherBoot {
        /// Boot id at assignment.
        expected: String,
        /// Present boot id.
        current: String,
    },
}

/// Status of an attempt on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// The attempt.
    pub key: AttemptKey,
    /// Last report; `None`: the attempt is recorded, but its process has not been seen yet.
    pub report: Option<RankReport>,
}

/// Ends one rank: SIGTERM, grace period, SIGKILL. An unknown attempt is recorded as stopped, so that a late launch has
/// no effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Terminate {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease.
    pub epoch: u64,
}
impl Rpc for Terminate {
    const METHOD: &'static str = "agent.terminate";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<AttemptStatus, LaunchRefused>;
}

/// Lists the recorded attempts without an acknowledged end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListAttempts;
impl Rpc for ListAttempts {
    const METHOD: &'static str = "agent.attempts";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Vec<AttemptStatus>;
}

/// Liveness check by control, and independent evidence for other agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ping;
impl Rpc for Ping {
    const METHOD: &'static str = "agent.ping";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Agent];
    type Reply = Pong;
}

/// Requests an agent to ping another agent, as independent evidence of whether a node answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PingPeer {
    /// Node expected at the address.
    pub node: NodeId,
    /// Mesh address of that node.
    pub addr: SocketAddr,
    /// Timeout, milliseconds; at most 5000.
    pub timeout_ms: u64,
}
impl Rpc for PingPeer {
    const METHOD: &'static str = "agent.ping_peer";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The pong, or a description of the failure.
    type Reply = Result<Pong, String>;
}

/// Runs the site's health gate before a node returns to service. Succeeds if the site has none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckHealth;
impl Rpc for CheckHealth {
    const METHOD: &'static str = "agent.gate";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<(), GateFailed>;
}

/// The site's health gate failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the health gate failed: {reason}")]
pub struct GateFailed {
    /// Exit code, signal or timeout, and the last line of output.
    pub reason: String,
}

/// Requests a [`Claim`] (attestation) with a reading of that moment. The answer is the postcard encoding of two values:
/// the postcard bytes of the claim, and the agent's signature of exactly these bytes for [`Claim::CONTEXT`]
/// (`lattice-mesh`'s `Signed`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetClaim {
    /// Random nonce.
    pub nonce: [u8; 16],
}
impl Rpc for GetClaim {
    const METHOD: &'static str = "agent.claim";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Bytes, String>;
}

/// Wipes the node with the site's hook, once for each number. A repeat returns the status of that wipe, also after a
/// restart of the agent or a reboot of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wipe {
    /// Number of the wipe. The agent refuses a lower number than the highest it has received.
    pub number: u64,
    /// User that released the node.
    pub user: String,
    /// Project of the former claim, for the environment.
    pub project: String,
}
impl Rpc for Wipe {
    const METHOD: &'static str = "agent.wipe";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The status, or the reason why the wipe cannot begin at present.
    type Reply = Result<WipeStatus, String>;
}

/// Status of a wipe on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WipeStatus {
    /// The hook is running.
    Running {
        /// Start time, by the node's clock.
        since: UnixMillis,
    },
    /// The wipe has ended, and its result is on the node's disk.
    Ended(WipeOutcome),
}

/// Answer to [`Ping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Name of the node.
    pub node: NodeId,
    /// Boot id of the host; changes with every reboot.
    pub boot_id: String,
    /// Time of the agent's clock.
    pub at: UnixMillis,
}

/// Requests the preimage with this blake3 digest. The peer returns it if it belongs to the peer's published records or
/// history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetPreimage {
    /// The digest, 32 bytes.
    pub digest: [u8; 32],
}
impl Rpc for GetPreimage {
    const METHOD: &'static str = "agent.preimage";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Agent];
    type Reply = Option<Bytes>;
}

/// Requests the node's complete inventory (JSON of `lattice-hwprobe`'s `Inventory`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetInventory {
    /// Whether to probe again instead of returning the last reading.
    pub fresh: bool,
    /// Requesting person or program. The node's history attributes changes found by a fresh read to this name. `None`:
    /// the read counts as a routine check.
    pub by: Option<String>,
}
impl Rpc for GetInventory {
    const METHOD: &'static str = "agent.inventory";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Bytes, String>;
}

/// Requests the findings of the node's health checks: JSON of `lattice-hwprobe`'s `health::Report` with some additional
/// fields, bounded in size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetHealth {
    /// Whether to run the checks again instead of returning the last result.
    pub fresh: bool,
    /// Findings to clear first, after a repair. Persisting problems are found again by the next check.
    pub clear: Option<ClearReason>,
    /// Requesting person or program. Required with `clear`.
    pub by: Option<String>,
}
impl Rpc for GetHealth {
    const METHOD: &'static str = "agent.health";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The report, or the reason why there is none.
    type Reply = Result<Bytes, String>;
}

/// Health findings of a node to clear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearReason {
    /// Stable code of the finding.
    pub code: String,
    /// Part of the node; `None`: all parts.
    pub entity: Option<String>,
}

/// Requests a page of the node's history, oldest first: records that the node published and other events on it.
/// Retention is bounded; see [`HistoryPage::first_kept`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetHistory {
    /// Only entries with a higher number; 0: from the beginning.
    pub since: u64,
    /// Largest number of entries. The agent also has its own limits, in entries and bytes.
    pub most: u32,
}
impl Rpc for GetHistory {
    const METHOD: &'static str = "agent.history";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The page, or the reason why the history cannot be read at present.
    type Reply = Result<HistoryPage, String>;
}

/// Answer to [`GetHistory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Identifier of the journal. If it differs from an earlier one, the node has lost its history (new or missing
    /// disk). Its numbers then start over, and the caller requests them from 0.
    pub journal: u64,
    /// JSON array of `lattice-hwprobe`'s `history::Record`, by number: changes and other events. The entries are on the
    /// node's disk and never change.
    pub entries: Bytes,
    /// Lowest retained number; 0 while the history is empty. Entries between `since` and this number are no longer on
    /// the node.
    pub first_kept: u64,
    /// Value of `since` for the next request. If it equals `last`, this page was the last one.
    pub next: u64,
    /// Highest number on the node's disk, as the node also gossips it.
    pub last: u64,
    /// JSON array of entries that could not be written yet, for example because of a full disk. For display only: the
    /// entries may be lost, and their numbers reused.
    pub unwritten: Bytes,
}

/// Output stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Streams the captured output of a rank from an offset on; with `follow`, until the rank ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadLog {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Output stream.
    pub stream: LogStream,
    /// Offset of the first byte.
    pub offset: u64,
    /// Whether to wait for further output.
    pub follow: bool,
}
impl StreamRpc for ReadLog {
    const METHOD: &'static str = "agent.log";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Item = Result<Bytes, String>;
}

/// An agent's report of one rank. The agent repeats it until it receives a [`ReportAnswer`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Content of the report.
    pub report: RankReport,
}
impl Rpc for Report {
    const METHOD: &'static str = "control.report";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = Result<ReportAnswer, Unavailable>;
}

/// Result of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportAnswer {
    /// The report is committed. The agent may delete the record of an ended attempt.
    Committed,
    /// The report is outdated: the allocation has another attempt, is unknown, or is terminal. The agent may delete its
    /// record.
    Superseded {
        /// Reason that the state machine gave.
        reason: String,
    },
}
