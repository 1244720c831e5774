//! Messages between our processes, except Raft's own (those live with the quorum daemon).

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

/// Why a quorum member did not answer with a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unavailable {
    /// Ask the leader.
    #[error("not the leader; the leader is {}", .leader.as_deref().unwrap_or("not known"))]
    NotLeader {
        /// Mesh address of the leader, when known.
        leader: Option<String>,
    },
    /// No majority, or still starting.
    #[error("the quorum has no majority at present")]
    NoMajority,
    /// The queue of proposals is full: back off.
    #[error("too many proposals are waiting")]
    Busy,
    /// Whether it was committed is not known. Repeat with the same idempotency key.
    #[error("the outcome is not known; repeat with the same idempotency key")]
    OutcomeUnknown,
    /// Records that the answer is in cannot be read on this member, and no other one gave them.
    #[error("records of this member cannot be read: {reason}")]
    Unreadable {
        /// Which, and why.
        reason: String,
    },
}

/// Longest request that a member takes and that control sends one, bytes: what comes in one log
/// entry, with the signatures that do not.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Longest command that fits in such a request, with its envelope.
pub const MAX_COMMAND_BYTES: usize = MAX_REQUEST_BYTES - 64;

/// Proposes commands; each gets its own answer. Quorum members propose for enrolment only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Propose {
    /// In order.
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
    /// The question.
    pub query: Query,
}
impl Rpc for Read {
    const METHOD: &'static str = "quorum.read";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Reply = Result<Answer, Unavailable>;
}

/// Has the leader sign the audit as far as it reaches now, where something in it is not signed yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SignAudit;
impl Rpc for SignAudit {
    const METHOD: &'static str = "quorum.sign_audit";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// Where the audit ends then; the inner error says why it is not signed.
    type Reply = Result<Result<AuditHead, String>, Unavailable>;
}

/// The member's own account of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetMemberStatus;
impl Rpc for GetMemberStatus {
    const METHOD: &'static str = "quorum.status";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Reply = MemberStatus;
}

/// Everything after a revision, as it is committed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watch {
    /// Last revision already seen.
    pub since: Revision,
}
impl StreamRpc for Watch {
    const METHOD: &'static str = "quorum.watch";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Item = WatchItem;
}

/// Identifies one attempt on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The allocation.
    pub allocation: AllocationId,
    /// Its attempt.
    pub attempt: u32,
}

/// Starts one rank. Repeats are answered with the existing outcome; lower epochs are refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    /// Which attempt.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease.
    pub epoch: u64,
    /// Revision of the assignment.
    pub revision: Revision,
    /// Who submitted it.
    pub user: String,
    /// The project, as text for the environment.
    pub project: String,
    /// The nodes it has, in rank order; what it is giving back is not among them.
    pub nodes: Vec<NodeId>,
    /// This node's rank.
    pub rank: u32,
    /// What to run.
    pub workload: Workload,
    /// Longest run time, milliseconds.
    pub walltime_ms: Option<u64>,
    /// The boot the rank was assigned under; under another one it is not started.
    pub boot: Option<String>,
    /// Its traces are wiped before the node goes back.
    pub sensitive: bool,
    /// Number of GPUs that the work uses, which the agent chooses; 0: all GPUs of the node.
    pub gpus: u32,
    /// How the work writes checkpoints; `None`: it writes none.
    pub checkpoint: Option<CheckpointSetup>,
}
impl Rpc for Launch {
    const METHOD: &'static str = "agent.launch";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<AttemptStatus, LaunchRefused>;
}

/// Why an agent does not start a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LaunchRefused {
    /// A newer dispatcher has spoken.
    #[error("epoch {given} is over; {current} was seen")]
    StaleEpoch {
        /// As given.
        given: u64,
        /// Highest seen.
        current: u64,
    },
    /// The agent may not run this user's work.
    #[error("this agent does not run work of {user}: {reason}")]
    UserNotAllowed {
        /// The user.
        user: String,
        /// Why.
        reason: String,
    },
    /// The journal could not be written.
    #[error("the attempt could not be recorded: {reason}")]
    JournalFailed {
        /// Why.
        reason: String,
    },
    /// The node was booted anew since the rank was assigned: nothing of it can be left.
    #[error("the node was booted anew since: {expected} was its boot, {current} is")]
    OtherBoot {
        /// As assigned.
        expected: String,
        /// As it is.
        current: String,
    },
}

/// Where an attempt stands on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// Which.
    pub key: AttemptKey,
    /// `None`: recorded, its process not seen yet.
    pub report: Option<RankReport>,
}

/// Ends one rank: SIGTERM, grace, SIGKILL. An attempt never seen is recorded as stopped, so that
/// a late launch of it does nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Terminate {
    /// Which attempt.
    pub key: AttemptKey,
    /// Fencing epoch.
    pub epoch: u64,
}
impl Rpc for Terminate {
    const METHOD: &'static str = "agent.terminate";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<AttemptStatus, LaunchRefused>;
}

/// All attempts the agent knows whose end is not acknowledged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListAttempts;
impl Rpc for ListAttempts {
    const METHOD: &'static str = "agent.attempts";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Vec<AttemptStatus>;
}

/// Are you there? Control's liveness check, and other agents' independent evidence.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ping;
impl Rpc for Ping {
    const METHOD: &'static str = "agent.ping";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Agent];
    type Reply = Pong;
}

/// Pings another agent: independent evidence whether a node answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PingPeer {
    /// Who is expected there.
    pub node: NodeId,
    /// Its mesh address.
    pub addr: SocketAddr,
    /// How long it may take, milliseconds; 5000 at most.
    pub timeout_ms: u64,
}
impl Rpc for PingPeer {
    const METHOD: &'static str = "agent.ping_peer";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The error says how it failed.
    type Reply = Result<Pong, String>;
}

/// Runs the site's health gate before a node goes back into service. Success when there is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckHealth;
impl Rpc for CheckHealth {
    const METHOD: &'static str = "agent.gate";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<(), GateFailed>;
}

/// The site's health gate does not let a node back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the health gate failed: {reason}")]
pub struct GateFailed {
    /// Exit code, signal or deadline, and the last line it wrote.
    pub reason: String,
}

/// Asks for a [`Claim`], read at that moment. The answer is the postcard of two things: the claim's
/// own postcard, as bytes, and the agent's signature of exactly these bytes for
/// [`Claim::CONTEXT`] (`lattice-mesh`'s `Signed`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetClaim {
    /// Random.
    pub nonce: [u8; 16],
}
impl Rpc for GetClaim {
    const METHOD: &'static str = "agent.claim";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Bytes, String>;
}

/// Wipes the node by the site's hook, once for each number. A repeat is answered with where it
/// stands, also after the agent or the node was started anew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wipe {
    /// Which; a lower one than was seen is refused.
    pub number: u64,
    /// Who gave the node back.
    pub user: String,
    /// For which project they had it, for the environment.
    pub project: String,
}
impl Rpc for Wipe {
    const METHOD: &'static str = "agent.wipe";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The error says why it cannot begin at present.
    type Reply = Result<WipeStatus, String>;
}

/// Where a wipe stands on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WipeStatus {
    /// It runs.
    Running {
        /// By the node's clock.
        since: UnixMillis,
    },
    /// It has ended, and that is written down.
    Ended(WipeOutcome),
}

/// Answer to [`Ping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The node.
    pub node: NodeId,
    /// The host's boot id; changes when it reboots.
    pub boot_id: String,
    /// The agent's clock.
    pub at: UnixMillis,
}

/// The preimage with this blake3 digest, if the peer has it: what it announces, or what its
/// history names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetPreimage {
    /// 32 bytes.
    pub digest: [u8; 32],
}
impl Rpc for GetPreimage {
    const METHOD: &'static str = "agent.preimage";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Agent];
    type Reply = Option<Bytes>;
}

/// The node's whole inventory, read directly (JSON of `lattice-hwprobe`'s `Inventory`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetInventory {
    /// Probe again instead of answering with the last reading.
    pub fresh: bool,
    /// The person or program who asks for it. A change that a fresh read finds is put down to
    /// them in the node's history; without one it counts as a routine check.
    pub by: Option<String>,
}
impl Rpc for GetInventory {
    const METHOD: &'static str = "agent.inventory";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Bytes, String>;
}

/// What is wrong with the node by its health checks: JSON of `lattice-hwprobe`'s `health::Report`
/// with some fields more, bounded in size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetHealth {
    /// Look at the node again instead of answering with the last pass.
    pub fresh: bool,
    /// Somebody repaired it: ends these reasons first. What is still wrong comes back with the next
    /// pass.
    pub clear: Option<ClearReason>,
    /// The person or program who asks; needed to clear.
    pub by: Option<String>,
}
impl Rpc for GetHealth {
    const METHOD: &'static str = "agent.health";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The error says why there is none.
    type Reply = Result<Bytes, String>;
}

/// Which reasons of a node are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearReason {
    /// The stable code.
    pub code: String,
    /// Of this part alone; of all of them without.
    pub entity: Option<String>,
}

/// A page of what the node published about itself and of what else happened on it, in the order in
/// which it was written down. What is kept is bounded; see
/// [`HistoryPage::first_kept`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetHistory {
    /// Entries after this one; 0 from the beginning.
    pub since: u64,
    /// At most so many; the agent has a bound of its own, also in bytes.
    pub most: u32,
}
impl Rpc for GetHistory {
    const METHOD: &'static str = "agent.history";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The error says why it cannot be read at present.
    type Reply = Result<HistoryPage, String>;
}

/// Answer to [`GetHistory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Names the journal. Another one than before means that the node lost its history, by a new
    /// disk or none: its numbers begin anew, and are asked for from 0.
    pub journal: u64,
    /// JSON array of `lattice-hwprobe`'s `history::Record`, in order of their numbers: what changed
    /// and what else happened. They are on the node's disk and never change.
    pub entries: Bytes,
    /// The lowest number that is kept; what lies between `since` and it is gone from the node. 0
    /// while there is none.
    pub first_kept: u64,
    /// The number to ask after next. The page was the last one where it is `last`.
    pub next: u64,
    /// The highest number on the node's disk; what gossip says.
    pub last: u64,
    /// JSON array of the same that could not be written yet, as on a full disk. To be shown, not to
    /// be kept: they may be lost, and their numbers used again.
    pub unwritten: Bytes,
}

/// Which output of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A rank's captured output from an offset on; with `follow`, until the rank ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadLog {
    /// Which attempt.
    pub key: AttemptKey,
    /// Which output.
    pub stream: LogStream,
    /// First byte wanted.
    pub offset: u64,
    /// Wait for more.
    pub follow: bool,
}
impl StreamRpc for ReadLog {
    const METHOD: &'static str = "agent.log";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Item = Result<Bytes, String>;
}

/// An agent's report of one rank. Repeated until answered with a [`ReportAnswer`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Which attempt.
    pub key: AttemptKey,
    /// What happened.
    pub report: RankReport,
}
impl Rpc for Report {
    const METHOD: &'static str = "control.report";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = Result<ReportAnswer, Unavailable>;
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportAnswer {
    /// It is committed; the agent may forget an ended attempt.
    Committed,
    /// The allocation has moved on (other attempt, unknown, already terminal); forget it.
    Superseded {
        /// Why, as the state machine said.
        reason: String,
    },
}
