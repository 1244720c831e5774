//! Quorum membership: status of the members, and changes of the membership.

use crate::{
    Revision, VoterId,
    principal::Principal,
    rpc::{Role, Rpc, StreamRpc},
    wire::Unavailable,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr};

/// Incarnation of a cluster. A cluster restored from a backup has the same name, members and perhaps addresses as the
/// original one, but another history from then on. Members of different incarnations must never communicate.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Incarnation {
    /// 1 for a newly founded cluster, increased with each restore, by default by one. 0: the member's data directory is
    /// blank, and the member belongs to no incarnation yet.
    pub number: u64,
    /// Origin of a restored cluster: the first eight bytes of the blake3 over the backup's digest and the numbers of
    /// the members. 0 for a newly founded cluster.
    pub origin: u64,
}

impl Incarnation {
    /// Incarnation of a member with a blank data directory.
    pub const NONE: Self = Self {
        number: 0,
        origin: 0,
    };
    /// Incarnation of a newly founded cluster.
    pub const FIRST: Self = Self {
        number: 1,
        origin: 0,
    };
    /// Checks whether the member belongs to no incarnation yet.
    pub fn is_none(self) -> bool {
        self.number == 0
    }
}

impl fmt::Display for Incarnation {
    /// Formats as `2 (restored from 1a2b3c4d5e6f7081)`, `1` or `none yet`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, self.origin) {
            (0, _) => f.write_str("none yet"),
            (number, 0) => write!(f, "{number}"),
            (number, origin) => write!(f, "{number} (restored from {origin:016x})"),
        }
    }
}

/// Role of a member within the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberRole {
    /// The member orders the commands.
    Leader,
    /// The member votes.
    Voter,
    /// The member is being brought up to date and does not vote yet.
    Learner,
}

impl MemberRole {
    /// Lower-case name as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "voter",
            Self::Learner => "learner",
        }
    }
}

/// A member as the committed membership names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownMember {
    /// Number of the member.
    pub id: VoterId,
    /// Mesh address of the member.
    pub addr: String,
    /// Whether the member votes; otherwise it is a learner.
    pub votes: bool,
}

/// Replication state of one follower or learner, as the leader holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    /// Number of the member.
    pub id: VoterId,
    /// Last log entry known to be on the member's disk.
    pub matched: Option<u64>,
    /// Milliseconds since the member last answered; `None`: not since the leader's process started.
    pub last_contact_ms: Option<u64>,
    /// Error of the last call to the member; `None` if the call succeeded.
    pub fault: Option<String>,
}

/// State of the files of the append-only tables on one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounts {
    /// Files that were missing at start and have not been fetched from another member yet. Their records cannot be read
    /// on this member.
    pub missing: u64,
    /// Files that the member's scrubber has read and found intact since the start.
    pub checked: u64,
    /// Files fetched from another member since the start, because they were missing or damaged.
    pub replaced: u64,
}

/// Status of a member, as the member itself reports it. Not linearizable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Number of the member.
    pub id: VoterId,
    /// Leader, as the member sees it; `None` if not known.
    pub leader: Option<VoterId>,
    /// Raft term.
    pub term: u64,
    /// Index of the last applied log entry.
    pub applied_index: u64,
    /// Revision of the member's state.
    pub revision: Revision,
    /// All members with their mesh addresses.
    pub members: Vec<(VoterId, String)>,
    /// Incarnation of the cluster that the member belongs to.
    pub incarnation: Incarnation,
    /// Index of the log entry that holds this membership.
    pub membership_index: u64,
}

/// Requests a member's status, as the member itself reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetMemberStatus;
impl Rpc for GetMemberStatus {
    const METHOD: &'static str = "quorum.status";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Quorum];
    type Reply = MemberStatus;
}

/// Full status of a member, as the member itself reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Number of the member.
    pub id: VoterId,
    /// Name of the member's cluster.
    pub cluster: String,
    /// Incarnation of the cluster.
    pub incarnation: Incarnation,
    /// Raft term.
    pub term: u64,
    /// Leader, as the member sees it; `None` if not known.
    pub leader: Option<VoterId>,
    /// Index of the last log entry in the member's log.
    pub last_log_index: u64,
    /// Index of the last applied log entry.
    pub applied_index: u64,
    /// Index of the last log entry that the newest snapshot covers; 0 for none.
    pub snapshot_index: u64,
    /// Revision of the member's state.
    pub revision: Revision,
    /// Milliseconds since the last message from a leader; `None` if the member leads, or never received one.
    pub last_contact_ms: Option<u64>,
    /// Whether the member started without a log and has not been brought up to date since. Such a member does not vote.
    pub blank: bool,
    /// Whether another member has reported that this one was removed. Such a member does not campaign.
    pub removed: bool,
    /// Membership that the member holds, learners included.
    pub members: Vec<KnownMember>,
    /// Index of the log entry that holds this membership.
    pub membership_index: u64,
    /// Whether a membership change is incomplete. Majorities of both the old and the new voters are then required.
    pub changing: bool,
    /// Replication state of the other members; empty unless the member leads.
    pub followers: Vec<Follower>,
    /// Version of the member's program.
    pub build: String,
    /// Format of the member's data directory.
    pub data_format: u32,
    /// State of the files of the append-only tables.
    pub segments: SegmentCounts,
}

/// Requests the full status of a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetMember;
impl Rpc for GetMember {
    const METHOD: &'static str = "quorum.member";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    type Reply = MemberReport;
}

/// One row of the table of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Number of the member.
    pub id: VoterId,
    /// Mesh address of the member.
    pub addr: String,
    /// Role of the member within the quorum.
    pub role: MemberRole,
    /// Error of the status request, or reason why its answer is ignored; `None` if the answer is valid.
    pub fault: Option<String>,
    /// Milliseconds since the leader last received an answer from the member. `None` for the leader itself, without a
    /// leader, and if the member has not answered since the leader started.
    pub last_contact_ms: Option<u64>,
    /// Log entries that the member lags behind the leader; `None` if not known.
    pub lag: Option<u64>,
    /// Status that the member reported; `None` if it reported none.
    pub account: Option<MemberReport>,
}

/// Status of all members, as collected by the member that received the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumView {
    /// Name of the cluster.
    pub cluster: String,
    /// Incarnation of the cluster.
    pub incarnation: Incarnation,
    /// Number of the member that collected the status.
    pub answered_by: VoterId,
    /// Number of the leader, if there is one.
    pub leader: Option<VoterId>,
    /// The newest term.
    pub term: u64,
    /// Members, by number.
    pub members: Vec<MemberRow>,
    /// Number of voters required for a majority.
    pub majority: u32,
    /// Number of voters that answered.
    pub reachable: u32,
    /// Conditions that an operator should check, the most severe first.
    pub warnings: Vec<String>,
}

/// Requests the status of all members from any member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetQuorum;
impl Rpc for GetQuorum {
    const METHOD: &'static str = "quorum.overview";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    type Reply = QuorumView;
}

/// A change of the membership or of the leader. A caller may repeat a change until it is done; completed steps are not
/// repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipChange {
    /// Add a member: first as a learner, then as a voter once it is up to date.
    Add {
        /// Number of the new member.
        id: VoterId,
        /// Mesh address of the new member.
        addr: SocketAddr,
    },
    /// Remove a member.
    Remove {
        /// Number of the member.
        id: VoterId,
        /// Whether to remove the member even if fewer than a majority of the remaining voters is reachable.
        force: bool,
        /// Reason, for the audit.
        reason: String,
    },
    /// Transfer leadership to another member.
    StepDown {
        /// Number of the new leader; `None`: any member that is up to date.
        to: Option<VoterId>,
    },
}

/// Requests one step of a change from the leader. A step takes some seconds at most.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeQuorum {
    /// Principal that requests the change.
    pub by: Principal,
    /// Idempotency key. Requests with the same key are recorded once.
    pub key: String,
    /// The change.
    pub change: MembershipChange,
}
impl Rpc for ChangeQuorum {
    const METHOD: &'static str = "quorum.change";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Result<ChangeProgress, ChangeRefusal>, Unavailable>;
}

/// Progress of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeProgress {
    /// The change is done.
    Done {
        /// Whether the change was done before this request.
        already: bool,
        /// Present leader.
        leader: Option<VoterId>,
    },
    /// The new member is being brought up to date. The caller repeats the request.
    CatchingUp {
        /// Last log entry of the new member.
        at: u64,
        /// Last log entry of the leader.
        of: u64,
        /// Error of the last call to the new member.
        fault: Option<String>,
    },
    /// Another step is in progress. The caller repeats the request.
    UnderWay,
}

/// Reason why a membership change is refused. Except for `NotCommitted`, nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ChangeRefusal {
    /// The number belongs to another member.
    #[error("member {id} exists already, at {addr}; give the new member another number")]
    IdTaken {
        /// The number.
        id: VoterId,
        /// Address of that member.
        addr: String,
    },
    /// The address belongs to another member.
    #[error("{addr} is the address of member {id}")]
    AddressTaken {
        /// The address.
        addr: String,
        /// Number of that member.
        id: VoterId,
    },
    /// The leader's configuration names another address for this member. The configuration takes precedence.
    #[error(
        "`members` of the leader's configuration has member {id} at {addr}; use another number, or \
         correct the configuration of every member and restart them one after the other"
    )]
    AddressConfigured {
        /// Number of the member.
        id: VoterId,
        /// Address in the configuration.
        addr: String,
    },
    /// The new member does not answer at the address, or another process answers.
    #[error(
        "member {id} is unreachable at {addr}: {reason}. Start it there with `join: true`, with \
         the certificate spiffe://{cluster}/quorum/{id}"
    )]
    NotReached {
        /// Number of the new member.
        id: VoterId,
        /// The address.
        addr: String,
        /// Description of the error.
        reason: String,
        /// Name of the cluster.
        cluster: String,
    },
    /// The new member has the data of another history.
    #[error(
        "member {id} has data of another history: incarnation {theirs} of cluster {cluster:?}; \
         this is incarnation {ours}. Stop it, move its data_dir away and start it with an empty \
         one"
    )]
    OtherHistory {
        /// Number of the new member.
        id: VoterId,
        /// Cluster of the member's data.
        cluster: String,
        /// Incarnation of the member's data.
        theirs: Incarnation,
        /// Incarnation of the leader.
        ours: Incarnation,
    },
    /// Another change must be finished first.
    #[error("{what}: repeat that change to finish it, or undo it, before another one begins")]
    UnderWay {
        /// Description of the unfinished change.
        what: String,
    },
    /// There is no member with this number.
    #[error("there is no member {id}; the members are {members}")]
    NoSuchMember {
        /// The number.
        id: VoterId,
        /// The present members.
        members: String,
    },
    /// The member is the only voter.
    #[error("member {id} is the only voter; add another one first")]
    LastMember {
        /// Number of the member.
        id: VoterId,
    },
    /// The remaining voters would have no majority.
    #[error(
        "without member {id} there would be {voters} voters, of which {reached} are reachable: no \
         majority, and no further change would be possible. Bring one back first, or use --force \
         to remove the member anyway"
    )]
    NoMajorityLeft {
        /// Number of the member to remove.
        id: VoterId,
        /// Number of voters after the removal.
        voters: u32,
        /// Number of these voters that are reachable.
        reached: u32,
    },
    /// No other member could take over the leadership.
    #[error(
        "leadership was not transferred from member {leader}: {reason}; `lattice admin quorum \
         status` shows the leader"
    )]
    NotHandedOver {
        /// Number of the present leader.
        leader: VoterId,
        /// Description of the failure.
        reason: String,
    },
    /// A change began and was not committed in time.
    #[error(
        "the change began and is not committed: {reason}. Check the status, and repeat the command \
         to finish it"
    )]
    NotCommitted {
        /// Description of what is known about the change.
        reason: String,
    },
    /// The state machine refused to record the change.
    #[error("{reason}")]
    NotAllowed {
        /// Reason for the refusal.
        reason: String,
    },
}

impl ChangeRefusal {
    /// Machine-readable code of the refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::IdTaken { .. } => "member_exists",
            Self::AddressTaken { .. } => "address_taken",
            Self::AddressConfigured { .. } => "address_configured",
            Self::NotReached { .. } => "member_not_reached",
            Self::OtherHistory { .. } => "other_history",
            Self::UnderWay { .. } => "change_under_way",
            Self::NoSuchMember { .. } => "no_such_member",
            Self::LastMember { .. } => "last_member",
            Self::NoMajorityLeft { .. } => "no_majority_left",
            Self::NotHandedOver { .. } => "not_handed_over",
            Self::NotCommitted { .. } => "not_committed",
            Self::NotAllowed { .. } => "not_allowed",
        }
    }
}

/// Requests a backup from the leader: the bytes of a file, see [`crate::backup`]. The audit records the backup before
/// it is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetBackup {
    /// Principal that requests the backup.
    pub by: Principal,
    /// Idempotency key of the request.
    pub key: String,
}
impl StreamRpc for GetBackup {
    const METHOD: &'static str = "quorum.backup";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Item = Bytes;
}
