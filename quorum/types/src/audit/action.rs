//! What can be written down. A new action goes to the end of [`AuditAction`], its word to the end of
//! [`AuditAction::WORDS`], and what it is about into `subjects.rs`.

use super::{CheckpointOf, Hex};
use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision, VclusterName, VoterId,
    id::{BaselineName, ReservationName},
    limit::{Limits, Resource},
    node::Lifecycle,
    rpc::Role,
};
use serde::{Deserialize, Serialize};

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// A node was taken from its holder by force.
    ForceReleased {
        /// The node.
        node: NodeId,
        /// Who held it.
        allocation: Option<AllocationId>,
        /// Of that allocation.
        attempt: u32,
        /// As given.
        reason: String,
    },
    /// A join token was made.
    TokenCreated {
        /// First 12 characters of its hash.
        id: String,
        /// The role it enrols.
        role: Role,
        /// How often.
        uses: u32,
        /// Whether it may take names.
        replace: bool,
    },
    /// A join token was withdrawn.
    TokenRevoked {
        /// First 12 characters of its hash.
        id: String,
    },
    /// Somebody became a member.
    Enrolled {
        /// Its role.
        role: Role,
        /// Its name.
        name: String,
        /// First 12 characters of the token's hash.
        token: String,
        /// The name was another member's before.
        replaced: bool,
        /// What held that node then: it goes on by the word of who runs under the name now.
        held: Option<AllocationId>,
    },
    /// Certificates were declared void.
    CertificatesRevoked {
        /// Whose role.
        role: Role,
        /// Whose name.
        name: String,
        /// As given.
        reason: String,
    },
    /// One more authority is trusted.
    AuthorityAdded {
        /// blake3 of its certificate.
        pin: String,
    },
    /// Another authority issues.
    AuthorityPromoted {
        /// blake3 of its certificate.
        pin: String,
    },
    /// An authority is trusted no more.
    AuthorityRetired {
        /// blake3 of its certificate.
        pin: String,
    },
    /// Drain reasons of a node were cleared without asking its health gate.
    GateSkipped {
        /// The node.
        node: NodeId,
        /// What was cleared: each reason behind its owner.
        cleared: Vec<String>,
    },
    /// What nodes are meant to be was decided.
    BaselineSet {
        /// Which.
        name: BaselineName,
        /// Its new version.
        version: u32,
        /// The classes, each with its policy.
        classes: Vec<String>,
        /// blake3 of the definition (postcard).
        digest: [u8; 32],
    },
    /// Nobody is judged by a baseline any more.
    BaselineDeleted {
        /// Which.
        name: BaselineName,
        /// The last version.
        version: u32,
    },
    /// Automatic draining was stopped.
    BrakeHeld {
        /// What was about to happen.
        reason: String,
    },
    /// A person lets automatic draining go on.
    BrakeReleased {
        /// As given.
        reason: String,
        /// Why it stood still.
        held_for: String,
    },
    /// Nodes were claimed for one person's sensitive work, through the quorum.
    NodesClaimed {
        /// Which.
        nodes: Vec<NodeId>,
        /// For whom.
        user: String,
        /// Where they count.
        project: ProjectPath,
        /// What for, in the user's words.
        purpose: String,
        /// What each conforms to: `name v3`, of every baseline that was asked.
        baselines: Vec<String>,
    },
    /// Claimed nodes were given back. They are wiped before anybody else gets them.
    NodesReleased {
        /// Which.
        nodes: Vec<NodeId>,
        /// Whose claim it was.
        user: String,
        /// Where they counted.
        project: ProjectPath,
        /// As given, or why it was done without being asked for.
        reason: String,
    },
    /// A node was wiped, by its own word: it is in the pool again.
    NodeWiped {
        /// Which.
        node: NodeId,
        /// Who had it.
        user: Option<String>,
        /// What was run and how it ended.
        evidence: String,
    },
    /// A node is out of use until a person has looked at it.
    NodeQuarantined {
        /// Which.
        node: NodeId,
        /// Who had it, where it failed to be wiped.
        user: Option<String>,
        /// Why: how the wipe ended, or as given.
        reason: String,
    },
    /// Sensitive work got its nodes.
    SensitiveAssigned {
        /// Which.
        allocation: AllocationId,
        /// Its attempt.
        attempt: u32,
        /// Whose.
        user: String,
        /// Where it counts.
        project: ProjectPath,
        /// In rank order.
        nodes: Vec<NodeId>,
    },
    /// Sensitive work runs on all its nodes.
    SensitiveStarted {
        /// Which.
        allocation: AllocationId,
        /// Its attempt.
        attempt: u32,
        /// Whose.
        user: String,
        /// Where it counts.
        project: ProjectPath,
        /// In rank order.
        nodes: Vec<NodeId>,
    },
    /// Every process of an attempt of sensitive work is gone.
    SensitiveEnded {
        /// Which.
        allocation: AllocationId,
        /// Its attempt.
        attempt: u32,
        /// Whose.
        user: String,
        /// Where it counted.
        project: ProjectPath,
        /// Those of the attempt, in rank order.
        nodes: Vec<NodeId>,
        /// Where the allocation stands since: `pending` when it is tried again.
        state: AllocationState,
        /// Why it was stopped; `None`: it came to its end.
        cause: Option<String>,
    },
    /// Sensitive work has more nodes, or fewer.
    SensitiveResized {
        /// Which.
        allocation: AllocationId,
        /// Its attempt.
        attempt: u32,
        /// Whose.
        user: String,
        /// Where it counts.
        project: ProjectPath,
        /// New ones.
        taken: Vec<NodeId>,
        /// Those it has no more.
        given_back: Vec<NodeId>,
    },
    /// Limits of projects were changed, by one command.
    LimitsChanged {
        /// Each level whose limits are others now.
        levels: Vec<LevelLimits>,
    },
    /// What a limit means was changed.
    LimitPolicyChanged {
        /// `strict`, `flat`.
        before: String,
        /// The same, now.
        after: String,
    },
    /// Limits of the whole cluster were changed, by one command.
    SystemLimitsChanged {
        /// Each that is another now.
        limits: Vec<ChangedLimit>,
    },
    /// A tenant or a project came to be.
    ProjectCreated {
        /// Which.
        project: ProjectPath,
        /// Its limits.
        limits: Vec<NamedLimit>,
        /// Who may set the limits of its children.
        admins: Vec<String>,
    },
    /// A tenant or a project is gone.
    ProjectDeleted {
        /// Which.
        project: ProjectPath,
        /// Its limits were.
        limits: Vec<NamedLimit>,
    },
    /// A person decided what is intended for a node.
    LifecycleSet {
        /// Which.
        node: NodeId,
        /// Before.
        before: Lifecycle,
        /// Now. `drained` instead of `ready` where reasons stand against it.
        after: Lifecycle,
        /// What an administrator overrode: each drain reason behind its owner.
        cleared: Vec<String>,
    },
    /// A person drained a node.
    Drained {
        /// Which.
        node: NodeId,
        /// As given.
        reason: String,
    },
    /// A person took their own drain reason back.
    Undrained {
        /// Which.
        node: NodeId,
        /// What it was.
        reason: String,
    },
    /// An operator or administrator acted on somebody else's allocation.
    AllocationActedOn {
        /// Which.
        allocation: AllocationId,
        /// Whose.
        user: String,
        /// Where it counts.
        project: ProjectPath,
        /// `cancel`, `hold`, `release`, `suspend`, …
        what: String,
    },
    /// What a vCluster is was decided, the first time too.
    VclusterSet {
        /// Which.
        vcluster: VclusterName,
        /// As it was, one `key: value` each; empty: it is new.
        before: Vec<String>,
        /// As it is.
        after: Vec<String>,
    },
    /// A vCluster is gone.
    VclusterDeleted {
        /// Which.
        vcluster: VclusterName,
    },
    /// Nodes serve another vCluster.
    NodesMoved {
        /// Which.
        nodes: Vec<NodeId>,
        /// Before.
        from: VclusterName,
        /// Now.
        to: VclusterName,
        /// They belong there now; otherwise they are lent, or given back.
        home: bool,
    },
    /// Somebody became a member of the quorum.
    MemberAdded {
        /// Its number.
        member: VoterId,
        /// Where it is.
        addr: String,
    },
    /// Somebody is a member of the quorum no more.
    MemberRemoved {
        /// Its number.
        member: VoterId,
        /// Where it was.
        addr: String,
        /// Why, as given.
        reason: String,
    },
    /// The leader was told to let another member lead.
    SteppedDown {
        /// Who led.
        member: VoterId,
        /// Who was asked to lead; `None`: anybody.
        to: Option<VoterId>,
    },
    /// A backup was written.
    BackedUp {
        /// Revision that it holds.
        revision: Revision,
        /// Last entry of the audit in it.
        number: u64,
        /// blake3 of the backup.
        digest: Hex,
    },
    /// This cluster begins with what a backup held.
    Restored {
        /// Cluster that it is a backup of.
        cluster: String,
        /// Revision that it holds.
        revision: Revision,
        /// Last entry of the audit in it: what came after is not in this cluster.
        number: u64,
        /// blake3 of the backup.
        digest: Hex,
    },
    /// The leader signed the chain as far as it reached then. Every entry up to `of.number` is
    /// covered by this signature.
    Checkpoint {
        /// What is signed: postcard of it, for [`CheckpointOf::CONTEXT`].
        of: CheckpointOf,
        /// By whom: `quorum/2`.
        signer: String,
        /// By the first certificate's key.
        signature: Hex,
        /// Certificates (DER): the signer's own first, that of the authority last.
        certificates: Vec<Hex>,
    },
    /// A node is wiped again.
    WipeRepeated {
        /// Which.
        node: NodeId,
        /// Who had it.
        user: String,
        /// As given.
        reason: String,
    },
    /// A node that was not wiped is nobody's any more, on a person's word.
    UnwipedAccepted {
        /// Which.
        node: NodeId,
        /// Who had it.
        user: String,
        /// As given.
        reason: String,
    },
    /// Something was asked of sensitive work, by its user or by somebody else, and granted. What
    /// comes of it on nodes is in entries of its own.
    SensitiveAsked {
        /// Which.
        allocation: AllocationId,
        /// Its attempt; 0 before the first.
        attempt: u32,
        /// Whose.
        user: String,
        /// Where it counts.
        project: ProjectPath,
        /// `submit`, `hold`, `release`, `cancel`, `suspend`, `resume`, `stop`, `shrink`.
        what: String,
        /// Those it had when it was asked, in rank order; where it had none, those that its submit
        /// names.
        nodes: Vec<NodeId>,
        /// Where it stands since.
        state: AllocationState,
        /// Why it is stopped.
        cause: Option<String>,
    },
    /// Limits of projects were changed although they overbook a level, by one command.
    LimitsForced {
        /// Each level whose limits are others now.
        levels: Vec<LevelLimits>,
        /// Those at which the children's limits add up to more than its own by this.
        overcommitted: Vec<ProjectPath>,
    },
    /// Nodes are kept for some for a time, or what is kept has changed.
    ReservationSet {
        /// Under which name.
        name: ReservationName,
        /// Which.
        nodes: Vec<NodeId>,
        /// As it was, one `key: value` each; empty: it is new.
        before: Vec<String>,
        /// As it is.
        after: Vec<String>,
    },
    /// Nothing is kept under this name any more.
    ReservationDeleted {
        /// Which.
        name: ReservationName,
        /// Which nodes were kept.
        nodes: Vec<NodeId>,
    },
    /// Sensitive work has written a checkpoint.
    SensitiveCheckpointed {
        /// Which.
        allocation: AllocationId,
        /// Its attempt.
        attempt: u32,
        /// Whose.
        user: String,
        /// Where it counts.
        project: ProjectPath,
        /// The checkpoint's number.
        number: u32,
        /// Its bytes, where every rank said.
        bytes: Option<u64>,
    },
}

/// Limits of one level that are others now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelLimits {
    /// Which.
    pub project: ProjectPath,
    /// Each that is another now.
    pub limits: Vec<ChangedLimit>,
}

/// A limit, before and after. By name and not as a record: what records look like changes, what
/// was written down does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedLimit {
    /// Its public name: `max_nodes`, `sensitive_pool_size`.
    pub name: String,
    /// As it was; `None`: no limit.
    pub before: Option<u64>,
    /// As it is.
    pub after: Option<u64>,
}

impl ChangedLimit {
    /// Those of a level that are others now.
    pub fn of(before: &Limits, after: &Limits) -> Vec<Self> {
        let each = Resource::ALL.map(|resource| Self {
            name: resource.limit_name().to_owned(),
            before: before.get(resource),
            after: after.get(resource),
        });
        each.into_iter()
            .filter(|limit| limit.before != limit.after)
            .collect()
    }
}

/// A limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLimit {
    /// Its public name.
    pub name: String,
    /// `None`: no limit.
    pub value: Option<u64>,
}

impl NamedLimit {
    /// Those of a level.
    pub fn of(limits: &Limits) -> Vec<Self> {
        let each = Resource::ALL.map(|resource| Self {
            name: resource.limit_name().to_owned(),
            value: limits.get(resource),
        });
        each.into()
    }
}

impl AuditAction {
    /// The words of all actions, as filters name them; in the order of the encoding.
    pub const WORDS: [&'static str; 46] = [
        "force_released",
        "token_created",
        "token_revoked",
        "enrolled",
        "certificates_revoked",
        "authority_added",
        "authority_promoted",
        "authority_retired",
        "gate_skipped",
        "baseline_set",
        "baseline_deleted",
        "brake_held",
        "brake_released",
        "nodes_claimed",
        "nodes_released",
        "node_wiped",
        "node_quarantined",
        "sensitive_assigned",
        "sensitive_started",
        "sensitive_ended",
        "sensitive_resized",
        "limits_changed",
        "limit_policy_changed",
        "system_limits_changed",
        "project_created",
        "project_deleted",
        "lifecycle_set",
        "drained",
        "undrained",
        "allocation_acted_on",
        "vcluster_set",
        "vcluster_deleted",
        "nodes_moved",
        "member_added",
        "member_removed",
        "stepped_down",
        "backed_up",
        "restored",
        "checkpoint",
        "wipe_repeated",
        "unwiped_accepted",
        "sensitive_asked",
        "limits_forced",
        "reservation_set",
        "reservation_deleted",
        "sensitive_checkpointed",
    ];

    /// Its word: the tag of its JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ForceReleased { .. } => "force_released",
            Self::TokenCreated { .. } => "token_created",
            Self::TokenRevoked { .. } => "token_revoked",
            Self::Enrolled { .. } => "enrolled",
            Self::CertificatesRevoked { .. } => "certificates_revoked",
            Self::AuthorityAdded { .. } => "authority_added",
            Self::AuthorityPromoted { .. } => "authority_promoted",
            Self::AuthorityRetired { .. } => "authority_retired",
            Self::GateSkipped { .. } => "gate_skipped",
            Self::BaselineSet { .. } => "baseline_set",
            Self::BaselineDeleted { .. } => "baseline_deleted",
            Self::BrakeHeld { .. } => "brake_held",
            Self::BrakeReleased { .. } => "brake_released",
            Self::NodesClaimed { .. } => "nodes_claimed",
            Self::NodesReleased { .. } => "nodes_released",
            Self::NodeWiped { .. } => "node_wiped",
            Self::NodeQuarantined { .. } => "node_quarantined",
            Self::SensitiveAssigned { .. } => "sensitive_assigned",
            Self::SensitiveStarted { .. } => "sensitive_started",
            Self::SensitiveEnded { .. } => "sensitive_ended",
            Self::SensitiveResized { .. } => "sensitive_resized",
            Self::LimitsChanged { .. } => "limits_changed",
            Self::LimitPolicyChanged { .. } => "limit_policy_changed",
            Self::SystemLimitsChanged { .. } => "system_limits_changed",
            Self::ProjectCreated { .. } => "project_created",
            Self::ProjectDeleted { .. } => "project_deleted",
            Self::LifecycleSet { .. } => "lifecycle_set",
            Self::Drained { .. } => "drained",
            Self::Undrained { .. } => "undrained",
            Self::AllocationActedOn { .. } => "allocation_acted_on",
            Self::VclusterSet { .. } => "vcluster_set",
            Self::VclusterDeleted { .. } => "vcluster_deleted",
            Self::NodesMoved { .. } => "nodes_moved",
            Self::MemberAdded { .. } => "member_added",
            Self::MemberRemoved { .. } => "member_removed",
            Self::SteppedDown { .. } => "stepped_down",
            Self::BackedUp { .. } => "backed_up",
            Self::Restored { .. } => "restored",
            Self::Checkpoint { .. } => "checkpoint",
            Self::WipeRepeated { .. } => "wipe_repeated",
            Self::UnwipedAccepted { .. } => "unwiped_accepted",
            Self::SensitiveAsked { .. } => "sensitive_asked",
            Self::LimitsForced { .. } => "limits_forced",
            Self::ReservationSet { .. } => "reservation_set",
            Self::ReservationDeleted { .. } => "reservation_deleted",
            Self::SensitiveCheckpointed { .. } => "sensitive_checkpointed",
        }
    }
}
