//! The quorum itself: who the members are, how far each is, and what is done to their number.

use crate::{
    Revision, VoterId,
    command::Principal,
    rpc::{Role, Rpc, StreamRpc},
    wire::Unavailable,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr};

/// Which life of a cluster. A cluster that is restored from a backup has the same name, the same
/// members and perhaps the same addresses as the one that was backed up, and another history from
/// then on: members of the two must never talk to each other.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Incarnation {
    /// 1 for a cluster as it was founded, one more with each restore. 0: a member that belongs to
    /// none yet, since its data directory is blank.
    pub number: u64,
    /// What it was restored from: the first eight bytes of the blake3 over the backup's digest and
    /// the numbers of the members. 0 for a cluster as it was founded.
    pub origin: u64,
}

impl Incarnation {
    /// Of a member whose data directory is blank.
    pub const NONE: Self = Self {
        number: 0,
        origin: 0,
    };
    /// Of a cluster as it was founded.
    pub const FIRST: Self = Self {
        number: 1,
        origin: 0,
    };
    /// Whether it belongs to none yet.
    pub fn is_none(self) -> bool {
        self.number == 0
    }
}

impl fmt::Display for Incarnation {
    /// `2 (restored from 1a2b3c4d5e6f7081)`, or `1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, self.origin) {
            (0, _) => f.write_str("none yet"),
            (number, 0) => write!(f, "{number}"),
            (number, origin) => write!(f, "{number} (restored from {origin:016x})"),
        }
    }
}

/// What a member is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberRole {
    /// It orders the commands.
    Leader,
    /// It votes.
    Voter,
    /// It is being brought up to date and does not vote yet.
    Learner,
}

impl MemberRole {
    /// As it is shown.
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
    /// Its number.
    pub id: VoterId,
    /// Its mesh address.
    pub addr: String,
    /// Whether it votes; else it is a learner.
    pub votes: bool,
}

/// What a leader knows of one it replicates to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    /// Which.
    pub id: VoterId,
    /// Last log entry known to be on its disk.
    pub matched: Option<u64>,
    /// Milliseconds since it last answered; `None`: not since this process began.
    pub heard_ms: Option<u64>,
    /// Why the last call to it failed; `None` when it did not.
    pub fault: Option<String>,
}

/// How the files of the append-only tables fare at one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounts {
    /// Not there when it began, and not brought from another member yet: what is in them cannot be
    /// read here.
    pub missing: u64,
    /// Read of itself and found as they were, since it began.
    pub checked: u64,
    /// Brought from another member since it began, because they were missing or damaged here.
    pub replaced: u64,
}

/// One member's own account of itself, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAccount {
    /// Its number.
    pub id: VoterId,
    /// Its cluster.
    pub cluster: String,
    /// Which life of the cluster it belongs to.
    pub incarnation: Incarnation,
    /// Raft term.
    pub term: u64,
    /// Who it believes leads.
    pub leader: Option<VoterId>,
    /// Last log entry it has.
    pub last_log_index: u64,
    /// Last log entry it applied.
    pub applied_index: u64,
    /// Last log entry its newest snapshot covers; 0 for none.
    pub snapshot_index: u64,
    /// Revision of its state.
    pub revision: Revision,
    /// Milliseconds since it heard a leader; `None` when it leads, or never did.
    pub heard_ms: Option<u64>,
    /// It began without a log and has not been brought up to date since: it does not vote.
    pub blank: bool,
    /// Another member told it that it is no member any more: it does not campaign.
    pub removed: bool,
    /// The membership it knows, learners included.
    pub members: Vec<KnownMember>,
    /// Log entry of that membership.
    pub membership_index: u64,
    /// A change of it stands half way: the voters of before and after are both needed.
    pub changing: bool,
    /// Where it leads, what it knows of the others.
    pub followers: Vec<Follower>,
    /// Version of its program.
    pub build: String,
    /// Format of its data directory.
    pub data_format: u32,
    /// How its history's files fare.
    pub segments: SegmentCounts,
}

/// Asks a member for its account of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetMember;
impl Rpc for GetMember {
    const METHOD: &'static str = "quorum.member";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    type Reply = MemberAccount;
}

/// One line of the table of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its number.
    pub id: VoterId,
    /// Its mesh address.
    pub addr: String,
    /// What it is to the others.
    pub role: MemberRole,
    /// Why it did not answer; `None`: it did.
    pub fault: Option<String>,
    /// Milliseconds since the leader heard from it; `None` for the leader itself, while none is
    /// known, and when it was not heard since that one began.
    pub heard_ms: Option<u64>,
    /// How many log entries it is behind the leader; `None` while that is not known.
    pub lag: Option<u64>,
    /// What it said of itself.
    pub account: Option<MemberAccount>,
}

/// All members, as the one that was asked and those it reached say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumView {
    /// The cluster's name.
    pub cluster: String,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Who was asked.
    pub told_by: VoterId,
    /// Who leads, when somebody does.
    pub leader: Option<VoterId>,
    /// The newest term.
    pub term: u64,
    /// By number.
    pub members: Vec<MemberRow>,
    /// Voters that are needed, and that answered.
    pub majority: u32,
    /// Voters that answered.
    pub reachable: u32,
    /// What somebody should look at, in words.
    pub warnings: Vec<String>,
}

/// Asks any member for all of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetQuorum;
impl Rpc for GetQuorum {
    const METHOD: &'static str = "quorum.overview";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    type Reply = QuorumView;
}

/// A change of who the members are, or of who leads. Each may be asked again until it is done:
/// what was done already is not done twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// One more member: a learner first, a voter once it has everything.
    Add {
        /// Its number.
        id: VoterId,
        /// Its mesh address.
        addr: SocketAddr,
    },
    /// One member less.
    Remove {
        /// Its number.
        id: VoterId,
        /// Also when fewer than a majority of the rest is reached.
        force: bool,
        /// Why, for the audit.
        reason: String,
    },
    /// Another member leads.
    StepDown {
        /// Who; `None`: whoever has everything.
        to: Option<VoterId>,
    },
}

/// Asks the leader for one step of a change, which takes some seconds at most.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeQuorum {
    /// On whose behalf.
    pub by: Principal,
    /// Names the request: what is asked under the same name is written down once.
    pub key: String,
    /// What.
    pub change: Change,
}
impl Rpc for ChangeQuorum {
    const METHOD: &'static str = "quorum.change";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Result<Progress, ChangeRefused>, Unavailable>;
}

/// How far a change is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It is done.
    Done {
        /// It was so before; nothing was done now.
        already: bool,
        /// Who leads now.
        leader: Option<VoterId>,
    },
    /// The new member is being brought up to date. Ask again.
    CatchingUp {
        /// Last entry it has.
        at: u64,
        /// Last entry there is.
        of: u64,
        /// Why the last call to it failed.
        fault: Option<String>,
    },
    /// Another step is under way at this moment. Ask again.
    UnderWay,
}

/// Why who the members are is not changed so. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ChangeRefused {
    /// The number is another member's.
    #[error("member {id} exists already, at {addr}; give the new one a number of its own")]
    IdTaken {
        /// The number.
        id: VoterId,
        /// Where that one is.
        addr: String,
    },
    /// The address is another member's.
    #[error("{addr} is the address of member {id}")]
    AddressTaken {
        /// The address.
        addr: String,
        /// Whose.
        id: VoterId,
    },
    /// The leader's configuration says another address for it, and that one wins.
    #[error(
        "`members` of the leader's configuration says that member {id} is at {addr}; use another \
         number, or correct the configuration of every member and restart them one after the other"
    )]
    AddressConfigured {
        /// The number.
        id: VoterId,
        /// As configured.
        addr: String,
    },
    /// The new member does not answer there, or is somebody else.
    #[error(
        "member {id} is not reached at {addr}: {reason}. Start it there with `join: true`, with \
         the certificate spiffe://{cluster}/quorum/{id}"
    )]
    NotReached {
        /// The number.
        id: VoterId,
        /// The address.
        addr: String,
        /// What happened.
        reason: String,
        /// The cluster's name.
        cluster: String,
    },
    /// The new member has a history of its own.
    #[error(
        "member {id} has data of another history: incarnation {theirs} of cluster {cluster:?}, \
         where this is incarnation {ours}. Stop it, move its data_dir away and start it with an \
         empty one"
    )]
    OtherHistory {
        /// The number.
        id: VoterId,
        /// Its cluster.
        cluster: String,
        /// Its incarnation.
        theirs: Incarnation,
        /// The leader's.
        ours: Incarnation,
    },
    /// Another change has to be finished first.
    #[error("{what}: repeat that change to finish it, or undo it, before another one begins")]
    UnderWay {
        /// What.
        what: String,
    },
    /// There is no such member.
    #[error("there is no member {id}; the members are {members}")]
    NoSuchMember {
        /// The number.
        id: VoterId,
        /// Those there are.
        members: String,
    },
    /// The only member.
    #[error("member {id} is the only one that votes; add another one first")]
    LastMember {
        /// Which.
        id: VoterId,
    },
    /// The rest would be without a majority.
    #[error(
        "without member {id} there would be {voters} voters, of which {reached} are reached: no \
         majority, and nothing could be changed any more, this included. Bring one back first. \
         With --force it is done all the same"
    )]
    NoMajorityLeft {
        /// Which.
        id: VoterId,
        /// Voters afterwards.
        voters: u32,
        /// Of these, reached.
        reached: u32,
    },
    /// Nobody could lead instead.
    #[error("leadership was not handed over: {reason}. Member {leader} still leads")]
    NotHandedOver {
        /// Who leads.
        leader: VoterId,
        /// Why.
        reason: String,
    },
    /// A change began and was not committed in time.
    #[error(
        "the change began and is not committed: {reason}. Look at the status, and repeat the \
         command to finish it"
    )]
    NotCommitted {
        /// What is known.
        reason: String,
    },
    /// The state refused to write it down.
    #[error("{reason}")]
    NotAllowed {
        /// Why.
        reason: String,
    },
}

impl ChangeRefused {
    /// A word for programs.
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

/// Asks the leader for a backup: the bytes of a file, see [`crate::backup`]. It is written down
/// first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetBackup {
    /// On whose behalf.
    pub by: Principal,
    /// Names the request.
    pub key: String,
}
impl StreamRpc for GetBackup {
    const METHOD: &'static str = "quorum.backup";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Item = Bytes;
}
