//! Audited actions.
//!
//! Append a new action at the end of [`AuditAction`] and its word at the end of [`AuditAction::WORDS`]. Add the
//! subjects of the action to `subjects.rs`.

use super::{Hex, SignedHeadContent};
use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision, VclusterName, VoterId,
    accounting_month::AccountingMonth,
    id::{BaselineName, ReservationName},
    limit::{Limits, Resource},
    node::Lifecycle,
    origin::AttemptOrigin,
    progress::ArrayElement,
    rpc::Role,
};
use serde::{Deserialize, Serialize};

/// An audited action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// A node was taken from its holder by force.
    ForceReleased {
        /// Name of the node.
        node: NodeId,
        /// Allocation that held the node.
        allocation: Option<AllocationId>,
        /// Place of that allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of that allocation.
        attempt: u32,
        /// Reason as given.
        reason: String,
    },
    /// A join token was created.
    TokenCreated {
        /// First 12 characters of the token's hash.
        id: String,
        /// Role that the token enrols.
        role: Role,
        /// Number of permitted uses.
        uses: u32,
        /// Whether the token may replace the holder of a name.
        replace: bool,
    },
    /// A join token was revoked.
    TokenRevoked {
        /// First 12 characters of the token's hash.
        id: String,
    },
    /// A name was enrolled.
    Enrolled {
        /// Enrolled role.
        role: Role,
        /// Enrolled name.
        name: String,
        /// First 12 characters of the token's hash.
        token: String,
        /// Whether the enrolment replaced an earlier holder of the name.
        replaced: bool,
        /// Allocation that held the node at that time. Later reports on this allocation come from the new holder of the
        /// name.
        held: Option<AllocationId>,
        /// Place of that allocation in a job array.
        element: Option<ArrayElement>,
    },
    /// Certificates were revoked.
    CertificatesRevoked {
        /// Role of the certificates' holder.
        role: Role,
        /// Name of the certificates' holder.
        name: String,
        /// Reason as given.
        reason: String,
    },
    /// A certificate authority was added to the trusted ones.
    AuthorityAdded {
        /// blake3 of the authority's certificate.
        pin: String,
    },
    /// A certificate authority became the issuing one.
    AuthorityPromoted {
        /// blake3 of the authority's certificate.
        pin: String,
    },
    /// A certificate authority was removed from the trusted ones.
    AuthorityRetired {
        /// blake3 of the authority's certificate.
        pin: String,
    },
    /// Drain reasons of a node were cleared without running the health gate.
    GateSkipped {
        /// Name of the node.
        node: NodeId,
        /// Cleared drain reasons, each as `owner: reason`.
        cleared: Vec<String>,
    },
    /// A baseline got a new version.
    BaselineSet {
        /// Name of the baseline.
        name: BaselineName,
        /// New version.
        version: u32,
        /// Conformance classes of the baseline, each with its kind of rule and drift policy.
        classes: Vec<String>,
        /// blake3 of the definition (postcard), under the key derivation context `lattice baseline 1`.
        digest: [u8; 32],
    },
    /// A baseline was deleted.
    BaselineDeleted {
        /// Name of the baseline.
        name: BaselineName,
        /// Last version.
        version: u32,
    },
    /// Automatic draining was stopped.
    BrakeHeld {
        /// Numbers of drained and blocked nodes for each cause, and the limit that would have been exceeded.
        reason: String,
    },
    /// An operator resumed automatic draining.
    BrakeReleased {
        /// Cause that the operator found, as given.
        reason: String,
        /// Reason for the stop.
        held_for: String,
    },
    /// Nodes were claimed for one user's sensitive allocations.
    NodesClaimed {
        /// Claimed nodes.
        nodes: Vec<NodeId>,
        /// User that claimed the nodes.
        user: String,
        /// Project that the nodes count against.
        project: ProjectPath,
        /// Purpose, as stated by the user.
        purpose: String,
        /// Baselines that the nodes conform to: `name v3` for every compared strict baseline.
        baselines: Vec<String>,
    },
    /// Claimed nodes were released. Each node is wiped before another user gets it.
    NodesReleased {
        /// Released nodes.
        nodes: Vec<NodeId>,
        /// Former claimant.
        user: String,
        /// Project that the nodes counted against.
        project: ProjectPath,
        /// Reason as given; empty if the claimant gave none.
        reason: String,
    },
    /// A released node was wiped, or needed no wipe, and its claim has ended.
    NodeWiped {
        /// Name of the node.
        node: NodeId,
        /// Former claimant.
        user: Option<String>,
        /// `wiped` with the last output line of the wipe hook, or a note that no wipe was needed.
        evidence: String,
    },
    /// A node was quarantined because its wipe failed.
    NodeQuarantined {
        /// Name of the node.
        node: NodeId,
        /// Former claimant.
        user: Option<String>,
        /// Reason for the failure of the wipe.
        reason: String,
    },
    /// Nodes were assigned to a sensitive allocation.
    SensitiveAssigned {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of the allocation.
        attempt: u32,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Nodes in rank order.
        nodes: Vec<NodeId>,
    },
    /// A sensitive allocation runs on all its nodes.
    SensitiveStarted {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of the allocation.
        attempt: u32,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Nodes in rank order.
        nodes: Vec<NodeId>,
    },
    /// Every process of an attempt of a sensitive allocation is gone, or the allocation ended while it held no nodes.
    SensitiveEnded {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of the allocation.
        attempt: u32,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Nodes of the attempt that were not released earlier, in rank order. Empty if the allocation held no nodes.
        nodes: Vec<NodeId>,
        /// State of the allocation afterwards: `pending` if it is requeued.
        state: AllocationState,
        /// Cause of the stop; `None` if the allocation ended by itself.
        cause: Option<String>,
    },
    /// A sensitive allocation got or released nodes.
    SensitiveResized {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of the allocation.
        attempt: u32,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Added nodes.
        taken: Vec<NodeId>,
        /// Released nodes.
        given_back: Vec<NodeId>,
    },
    /// One command changed limits of projects, soft limits of a tenant, or the handling of its submits above limits.
    LimitsChanged {
        /// Levels with changed limits.
        levels: Vec<LevelLimits>,
    },
    /// The limit policy changed.
    LimitPolicyChanged {
        /// Previous policy: `strict` or `flat`.
        before: String,
        /// New policy.
        after: String,
    },
    /// One command changed limits of the whole cluster.
    SystemLimitsChanged {
        /// Changed limits.
        limits: Vec<ChangedLimit>,
    },
    /// A tenant or project was created.
    ProjectCreated {
        /// Path of the project.
        project: ProjectPath,
        /// Limits of the project.
        limits: Vec<NamedLimit>,
        /// Administrators, which may set the limits of the project's children.
        admins: Vec<String>,
    },
    /// A tenant or project was deleted.
    ProjectDeleted {
        /// Path of the project.
        project: ProjectPath,
        /// Limits at the time of deletion.
        limits: Vec<NamedLimit>,
    },
    /// An operator or administrator set the lifecycle of a node, or a service set or ended its quarantine.
    LifecycleSet {
        /// Name of the node.
        node: NodeId,
        /// Lifecycle before.
        before: Lifecycle,
        /// Lifecycle afterwards: `drained` instead of `ready` if drain reasons prevent `ready`.
        after: Lifecycle,
        /// Drain reasons that an administrator overrode, each as `owner: reason`.
        cleared: Vec<String>,
    },
    /// An operator or administrator drained a node. Drains by services are not audited.
    Drained {
        /// Name of the node.
        node: NodeId,
        /// Reason as given.
        reason: String,
    },
    /// An operator or administrator cleared their own drain reason.
    Undrained {
        /// Name of the node.
        node: NodeId,
        /// The cleared reason.
        reason: String,
    },
    /// An operator or administrator acted on another user's allocation.
    AllocationActedOn {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Action, as in [`AuditAction::SensitiveAsked`], or `assign`, `grow` or `force release`.
        what: String,
    },
    /// A vCluster was defined, or its definition or scheduler settings changed.
    VclusterSet {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// Content before, as lines `key: value` or, for scheduler settings, `key=value`; empty if there was none.
        before: Vec<String>,
        /// Content afterwards, in the same form.
        after: Vec<String>,
    },
    /// The definition and the scheduler settings of a vCluster were deleted.
    VclusterDeleted {
        /// Name of the vCluster.
        vcluster: VclusterName,
    },
    /// Nodes moved to another vCluster.
    NodesMoved {
        /// Moved nodes.
        nodes: Vec<NodeId>,
        /// Former home vCluster if `home` is true, otherwise the vCluster that the nodes leave.
        from: VclusterName,
        /// vCluster afterwards.
        to: VclusterName,
        /// Whether `to` is the new home of the nodes; `false` if the nodes are lent, or returned after a loan.
        home: bool,
    },
    /// The addition of a member to the quorum was requested and passed the checks; recorded before the membership
    /// changes.
    MemberAdded {
        /// Number of the member.
        member: VoterId,
        /// Address of the member.
        addr: String,
    },
    /// The removal of a member from the quorum was requested and passed the checks; recorded before the membership
    /// changes.
    MemberRemoved {
        /// Number of the member.
        member: VoterId,
        /// Address of the member.
        addr: String,
        /// Reason as given, after `by force: ` for a forced removal.
        reason: String,
    },
    /// The leader was requested to transfer the leadership.
    SteppedDown {
        /// Number of the leader.
        member: VoterId,
        /// Requested new leader; `None`: any member.
        to: Option<VoterId>,
    },
    /// A backup was written.
    BackedUp {
        /// Revision of the backup.
        revision: Revision,
        /// Number of the last audit entry in the backup.
        number: u64,
        /// blake3 of the backup.
        digest: Hex,
    },
    /// This cluster was restored from a backup.
    Restored {
        /// Cluster of the backup.
        cluster: String,
        /// Revision of the backup.
        revision: Revision,
        /// Number of the last audit entry in the backup. Later entries are not in this cluster.
        number: u64,
        /// blake3 of the backup.
        digest: Hex,
    },
    /// The leader signed the head of the audit chain. The signature covers every entry up to `of.number`.
    SignedHead {
        /// Signed audit head. The signed bytes are the postcard encoding of this content, with the signature context
        /// [`SignedHeadContent::CONTEXT`].
        of: SignedHeadContent,
        /// Signing member: `quorum/2`.
        signer: String,
        /// Signature by the key of the first certificate.
        signature: Hex,
        /// Certificates (DER): the signer's own first, that of the authority last.
        certificates: Vec<Hex>,
    },
    /// Another wipe of a node was ordered.
    WipeRepeated {
        /// Name of the node.
        node: NodeId,
        /// Former claimant.
        user: String,
        /// Reason as given.
        reason: String,
    },
    /// An administrator ended the claim of a node that was not wiped.
    UnwipedAccepted {
        /// Name of the node.
        node: NodeId,
        /// Former claimant.
        user: String,
        /// Reason as given.
        reason: String,
    },
    /// A request for a sensitive allocation, by its user or another principal, was granted. The effects of the request
    /// on nodes are in separate entries.
    SensitiveAsked {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of the allocation; 0 before the first.
        attempt: u32,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Request: `submit`, `hold`, `release`, `cancel`, `requeue`, `suspend`, `resume`, `stop`, `shrink`,
        /// `checkpoint`, `move` or `set the walltime of`.
        what: String,
        /// Nodes of the allocation at the time of the request, in rank order. For `submit`: the nodes that the
        /// submission names.
        nodes: Vec<NodeId>,
        /// State of the allocation afterwards.
        state: AllocationState,
        /// Cause, if the allocation is being stopped.
        cause: Option<String>,
    },
    /// One command changed limits of projects by force, although they overcommit a level.
    LimitsForced {
        /// Levels with changed limits.
        levels: Vec<LevelLimits>,
        /// Levels that became overcommitted, or more so: their children's limits add up to more than their own.
        overcommitted: Vec<ProjectPath>,
    },
    /// A reservation was created or changed.
    ReservationSet {
        /// Name of the reservation.
        name: ReservationName,
        /// Reserved nodes.
        nodes: Vec<NodeId>,
        /// Content before, one line `key: value` each; empty if the reservation is new.
        before: Vec<String>,
        /// Content afterwards, in the same form.
        after: Vec<String>,
    },
    /// A reservation was deleted.
    ReservationDeleted {
        /// Name of the reservation.
        name: ReservationName,
        /// Nodes that were reserved.
        nodes: Vec<NodeId>,
    },
    /// A sensitive allocation wrote a checkpoint.
    SensitiveCheckpointed {
        /// Number of the allocation.
        allocation: AllocationId,
        /// Place of the allocation in a job array.
        element: Option<ArrayElement>,
        /// Attempt of the allocation.
        attempt: u32,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
        /// Number of the checkpoint.
        number: u32,
        /// Size of the checkpoint, bytes; `None` if a rank did not report its size.
        bytes: Option<u64>,
    },
    /// This cluster was restored from a backup, and skips the numbers of allocations that were submitted after it.
    NumbersSkipped {
        /// Highest number of an allocation, array element or DAG in the backup.
        after: AllocationId,
        /// Last skipped number.
        until: AllocationId,
        /// Revision of the backup.
        revision: Revision,
    },
    /// A node ran an attempt of an allocation that this cluster has no record of. The attempt is ended.
    UnknownAttemptEnded {
        /// Name of the node.
        node: NodeId,
        /// Number of the allocation.
        allocation: AllocationId,
        /// Attempt of the allocation.
        attempt: u32,
        /// Origin of the attempt, as the node reported it; `None` if it reported none.
        origin: Option<AttemptOrigin>,
    },
    /// An administrator accepted the differences that remain between the accounting system and the recorded usage of an
    /// ended month.
    MonthAccepted {
        /// The ended month.
        month: AccountingMonth,
        /// Number of totals that differed.
        differences: u32,
    },
}

/// Changed limits of one level of the project tree: a tenant or a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelLimits {
    /// Path of the level.
    pub project: ProjectPath,
    /// Changed limits.
    pub limits: Vec<ChangedLimit>,
}

/// A limit before and after a change. Limits are stored by name, not as a record: the form of records changes, but
/// written entries must not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedLimit {
    /// Public name of the limit: `max_nodes`, `sensitive_pool_size`. Also `on_limit`, with the values of
    /// [`OnLimit::number`](crate::limit::OnLimit::number).
    pub name: String,
    /// Value before; `None`: no limit.
    pub before: Option<u64>,
    /// Value afterwards; `None`: no limit.
    pub after: Option<u64>,
}

impl ChangedLimit {
    /// Limits of a level that differ between `before` and `after`.
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

/// A limit with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLimit {
    /// Public name of the limit.
    pub name: String,
    /// Value; `None`: no limit.
    pub value: Option<u64>,
}

impl NamedLimit {
    /// All limits of a level.
    pub fn of(limits: &Limits) -> Vec<Self> {
        let each = Resource::ALL.map(|resource| Self {
            name: resource.limit_name().to_owned(),
            value: limits.get(resource),
        });
        each.into()
    }
}

impl AuditAction {
    /// Words of all actions, as filters use them, in the order of the encoding.
    pub const WORDS: [&'static str; 49] = [
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
        "signed_head",
        "wipe_repeated",
        "unwiped_accepted",
        "sensitive_asked",
        "limits_forced",
        "reservation_set",
        "reservation_deleted",
        "sensitive_checkpointed",
        "numbers_skipped",
        "unknown_attempt_ended",
        "month_accepted",
    ];

    /// Word of the action: the tag in its JSON.
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
            Self::SignedHead { .. } => "signed_head",
            Self::WipeRepeated { .. } => "wipe_repeated",
            Self::UnwipedAccepted { .. } => "unwiped_accepted",
            Self::SensitiveAsked { .. } => "sensitive_asked",
            Self::LimitsForced { .. } => "limits_forced",
            Self::ReservationSet { .. } => "reservation_set",
            Self::ReservationDeleted { .. } => "reservation_deleted",
            Self::SensitiveCheckpointed { .. } => "sensitive_checkpointed",
            Self::NumbersSkipped { .. } => "numbers_skipped",
            Self::UnknownAttemptEnded { .. } => "unknown_attempt_ended",
            Self::MonthAccepted { .. } => "month_accepted",
        }
    }
}
