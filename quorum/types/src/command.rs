//! Commands: all requests that change the replicated state.

use crate::{
    AllocationId, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    accounting_month::AccountingMonth,
    allocation::StopCause,
    baseline::BaselineDefinition,
    budget::{Credit, SoftPatch},
    dag::DagSpec,
    id::{BaselineName, DagId, LeaseName, ReservationName},
    limit::{LimitPatch, Limits, OnLimit, SystemLimitPatch},
    limit_policy::LimitPolicy,
    node::Lifecycle,
    node_claim::WipeOutcome,
    origin::AttemptOrigin,
    progress::MoveReason,
    reservation::ReservationSpec,
    rpc::Role,
    scheduler::SchedulerPatch,
    spec::AllocationSpec,
    vcluster::VclusterPatch,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr};

mod envelope;
mod outcome;
mod parts;

pub use crate::principal::{Principal, Privilege};
pub use envelope::{Envelope, Fence, KEY_LIFETIME_MS, SCHEMA};
pub use outcome::{Applied, Outcome};
pub use parts::{
    AttestedNode, ExpectedNode, IssuedCertificate, LimitChange, RankReport, RequestedCheckpoint,
    TokenGrant, Victim,
};

/// A request to change the replicated state.
///
/// A service must propose a command marked "Fenced" with a [`Fence`]: the lease under which the service acts. Other
/// principals need no fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Create a tenant (a root of the tree) or a project below its parent.
    CreateProject {
        /// Path of the new tenant or project.
        path: ProjectPath,
        /// Limits of the project; `None`: closed, which is the default.
        limits: Option<Limits>,
        /// Names of the principals that administer the project.
        admins: Vec<String>,
        /// Free-text description.
        description: String,
    },
    /// Delete an empty project.
    DeleteProject {
        /// Path of the project.
        path: ProjectPath,
    },
    /// Change limits of projects: all or none. The resulting tree is checked as a whole.
    SetLimits {
        /// Changes, one for each project; at least one.
        changes: Vec<LimitChange>,
    },
    /// Submit an allocation or a job array. The tenant's setting ([`Command::SetTenant`]) determines whether a request
    /// that does not fit with the present usage is refused.
    Submit {
        /// The allocation request.
        spec: Box<AllocationSpec>,
    },
    /// Cancel an allocation. An allocation that holds no nodes ends at once; one that holds nodes is stopped.
    Cancel {
        /// Allocation to cancel.
        id: AllocationId,
    },
    /// Hold a pending or blocked allocation.
    Hold {
        /// Allocation to hold.
        id: AllocationId,
    },
    /// Release a held allocation.
    Release {
        /// Allocation to release.
        id: AllocationId,
    },
    /// Assign nodes to a pending allocation, in rank order. Fenced. Refused for sensitive allocations: see
    /// [`Command::AssignSensitive`].
    Assign {
        /// Pending allocation.
        id: AllocationId,
        /// Nodes in rank order, each with the version that the plan is based on.
        nodes: Vec<ExpectedNode>,
    },
    /// Stop an allocation that holds nodes. Fenced.
    Stop {
        /// Allocation to stop.
        id: AllocationId,
        /// Cause of the stop.
        cause: StopCause,
    },
    /// Commit an agent's report about one rank. Fenced if the report is
    /// [`NeverStarted`](crate::allocation::RankExit::NeverStarted).
    Report {
        /// Allocation of the rank.
        id: AllocationId,
        /// Attempt of the allocation that the report is about.
        attempt: u32,
        /// Node that reports.
        node: NodeId,
        /// Content of the report.
        report: RankReport,
    },
    /// Register a node. No change if the node is registered already.
    RegisterNode {
        /// Name of the node.
        node: NodeId,
        /// vCluster that the node belongs to.
        vcluster: VclusterName,
    },
    /// Set the lifecycle (intended state) of a node.
    SetLifecycle {
        /// Name of the node.
        node: NodeId,
        /// New lifecycle.
        lifecycle: Lifecycle,
    },
    /// Set or clear the principal's own drain reason of a node.
    Drain {
        /// Name of the node.
        node: NodeId,
        /// New drain reason; `None` clears the principal's own reason.
        reason: Option<String>,
        /// Node revision that the proposer read. The command is refused if the node has another revision. `None`: no
        /// check.
        expected: Option<Revision>,
    },
    /// Acquire or renew a lease. A new holder gets a new epoch.
    AcquireLease {
        /// Name of the lease.
        lease: LeaseName,
        /// Name of the holder.
        holder: String,
        /// Duration, milliseconds.
        ttl_ms: u64,
    },
    /// Release a lease.
    ReleaseLease {
        /// Name of the lease.
        lease: LeaseName,
        /// Name of the present holder.
        holder: String,
    },
    /// Store the hash of a join token. The token itself is never replicated.
    CreateToken {
        /// Hash and permissions of the token.
        grant: TokenGrant,
    },
    /// Revoke a join token.
    RevokeToken {
        /// First characters of the token's hash, at least 8, as token lists show them.
        id: String,
    },
    /// Use a join token for one enrolment, as part of issuing a certificate. If the enrolment replaces the former
    /// holder of a name, the earlier certificates of that name become invalid.
    ConsumeToken {
        /// blake3 of the token's secret part.
        hash: String,
        /// Name to enrol.
        name: String,
        /// Role to enrol.
        role: Role,
        /// Source address of the enrolment, as the member sees it.
        from: Option<IpAddr>,
        /// Whether the enrolment may replace the present holder of the name.
        replace: bool,
        /// Validity of the certificate to issue.
        certificate: IssuedCertificate,
    },
    /// Renew a certificate, as part of issuing it.
    RenewCertificate {
        /// Name of the certificate's holder.
        name: String,
        /// Role of the certificate's holder.
        role: Role,
        /// Issue time of the certificate that the holder presented.
        shown_issued_at: UnixMillis,
        /// Validity of the certificate to issue.
        certificate: IssuedCertificate,
    },
    /// Revoke all certificates of one name that were issued until now.
    RevokeCertificates {
        /// Name of the certificates' holder.
        name: String,
        /// Role of the certificates' holder.
        role: Role,
        /// Reason, for the audit.
        reason: String,
    },
    /// Trust another certificate authority. The first authority also issues certificates.
    AddAuthority {
        /// Certificate of the authority (DER).
        certificate: Bytes,
    },
    /// Make an authority the issuing one. All certificate holders renew.
    PromoteAuthority {
        /// blake3 of the authority's certificate, lower-case hex.
        pin: String,
    },
    /// Remove an authority from the trusted ones. Refused for the issuing authority.
    RetireAuthority {
        /// blake3 of the authority's certificate, lower-case hex.
        pin: String,
    },
    /// Take a node from its holder without confirmation that the holder's processes are gone. The operator takes
    /// responsibility for that. The node stays drained, with a drain reason of this operator.
    ForceRelease {
        /// Name of the node.
        node: NodeId,
        /// Reason, with the evidence that no process of the holder runs on the node.
        reason: String,
        /// Node revision at which the operator checked the holder. The command is refused if the node has another
        /// revision, since the holder may differ. `None`: no check.
        expected: Option<Revision>,
    },
    /// Clear the principal's own drain reason and the reason of a failed hook, without running the node's health gate.
    /// The administrator takes responsibility, and the audit records it.
    UndrainUnchecked {
        /// Name of the node.
        node: NodeId,
        /// Node revision that the proposer read. The command is refused if the node has another revision. `None`: no
        /// check.
        expected: Option<Revision>,
    },
    /// Create a version of a baseline, including the first one. An unchanged definition creates no new version.
    SetBaseline {
        /// Name of the baseline.
        name: BaselineName,
        /// Intended state of the nodes.
        definition: Box<BaselineDefinition>,
        /// Version that the proposer read, 0 for none. The command is refused if the baseline has another version.
        /// `None`: no check.
        expected_version: Option<u32>,
    },
    /// Delete a baseline and all its versions. No node is compared with it any more.
    DeleteBaseline {
        /// Name of the baseline.
        name: BaselineName,
        /// Version that the proposer read; see [`Command::SetBaseline`].
        expected_version: Option<u32>,
    },
    /// Stop automatic draining because too many nodes were about to be drained. Fenced.
    HoldBrake {
        /// Drains that were about to happen, with the numbers.
        reason: String,
    },
    /// Resume automatic draining after an operator has checked the cause.
    ReleaseBrake {
        /// Findings of the operator, for the audit.
        reason: String,
    },
    /// Assign nodes to a pending sensitive allocation, in rank order, based on each node's attestation. Refused if an
    /// attestation is too old or contradicts the node's baselines. Fenced.
    AssignSensitive {
        /// Pending allocation.
        id: AllocationId,
        /// Nodes in rank order, each with its attestation.
        nodes: Vec<AttestedNode>,
    },
    /// Add nodes to an allocation that holds nodes. The new nodes become the last ranks. Fenced. Refused for sensitive
    /// allocations.
    Grow {
        /// Allocation to grow.
        id: AllocationId,
        /// Nodes to add, each with the version that the plan is based on.
        nodes: Vec<ExpectedNode>,
    },
    /// Release nodes of an allocation. Each node is released as soon as its rank is confirmed to have ended. Fenced.
    Shrink {
        /// Allocation to shrink.
        id: AllocationId,
        /// Nodes to release. The allocation keeps at least one node.
        nodes: Vec<NodeId>,
    },
    /// Suspend an allocation that holds nodes: its processes are ended, and it then holds no nodes. Fenced.
    Suspend {
        /// Allocation to suspend.
        id: AllocationId,
    },
    /// Resume a suspended allocation: it waits for nodes again, provided that it fits the limits now. Fenced.
    Resume {
        /// Allocation to resume.
        id: AllocationId,
    },
    /// Change the limits of the whole cluster.
    SetSystemLimits {
        /// Changes to the limits.
        patch: SystemLimitPatch,
    },
    /// Change the limit policy. Refused if the present tree violates the new policy.
    SetLimitPolicy {
        /// New policy.
        policy: LimitPolicy,
    },
    /// Create a tenant or project as [`Command::CreateProject`] does, with each limit given separately. A limit that is
    /// not named is closed.
    NewProject {
        /// Path of the new tenant or project.
        path: ProjectPath,
        /// Limits that differ from the closed default.
        limits: LimitPatch,
        /// Names of the principals that administer the project.
        admins: Vec<String>,
        /// Free-text description.
        description: String,
    },
    /// Record an action on the quorum itself (members, leadership, backups) in the audit. The leader that performs the
    /// action proposes this command, on behalf of the requesting principal.
    NoteQuorum {
        /// Recorded action.
        action: Box<crate::audit::AuditAction>,
    },
    /// Append a signed audit head to the audit. The leader proposes this command, after verifying the signature.
    SignAudit {
        /// The audit head, as signed.
        signed_head: Box<crate::audit::SignedHead>,
    },
    /// Claim nodes for the principal's exclusive use, for sensitive allocations of one project, until released. All
    /// nodes or none. Each node needs a valid attestation, as for a sensitive allocation.
    ClaimNodes {
        /// Project that the nodes count against.
        project: ProjectPath,
        /// Nodes, each with its attestation.
        nodes: Vec<AttestedNode>,
        /// Purpose; may be empty.
        purpose: String,
    },
    /// Release claimed nodes, all or none. Each node is wiped before another user gets it.
    ReleaseNodes {
        /// Nodes to release.
        nodes: Vec<NodeId>,
        /// Reason. Required if the principal is not the claimant but an administrator.
        reason: Option<String>,
    },
    /// Report the result of a node's wipe. Fenced.
    ReportWipe {
        /// Name of the node.
        node: NodeId,
        /// Number of the wipe. The report has no effect if the node awaits another wipe.
        wipe: u64,
        /// Result that the node reported.
        outcome: WipeOutcome,
    },
    /// Repeat the wipe of a node after its wipe failed or hangs.
    RepeatWipe {
        /// Name of the node.
        node: NodeId,
        /// Remedy, for the audit.
        reason: String,
    },
    /// End the claim of a released node that was not wiped. The administrator takes responsibility. The node stays
    /// drained until its health gate passes.
    AcceptUnwiped {
        /// Name of the node.
        node: NodeId,
        /// Reason, for the audit.
        reason: String,
    },
    /// Define a vCluster or change its definition. An unchanged definition creates no new version.
    SetVcluster {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// Changes to the definition.
        change: Box<VclusterPatch>,
        /// Version that the proposer read, 0 for none. The command is refused if the vCluster has another version.
        /// `None`: no check.
        expected_version: Option<u32>,
    },
    /// Make a vCluster the home and current vCluster of nodes. All nodes or none.
    AssignVcluster {
        /// Nodes to assign.
        nodes: Vec<NodeId>,
        /// vCluster that the nodes move to.
        vcluster: VclusterName,
        /// vCluster that the nodes may be taken from. Nodes of an undefined vCluster may be taken in any case.
        from: Option<VclusterName>,
    },
    /// Lend an idle node to another vCluster. Fenced.
    LendNode {
        /// Node to lend.
        node: NodeId,
        /// Borrowing vCluster.
        to: VclusterName,
        /// [`crate::node::Node::version`] that the plan is based on.
        version: u64,
    },
    /// Return a lent node, which no allocation holds, to its home vCluster. Fenced.
    ReturnNode {
        /// Node to return.
        node: NodeId,
        /// [`crate::node::Node::version`] that the plan is based on.
        version: u64,
    },
    /// Delete the definition and the scheduler settings of a vCluster. Refused while it is the home or current vCluster
    /// of nodes: these nodes would be open to every tenant.
    DeleteVcluster {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// Version that the proposer read. The command is refused if the vCluster has another version. `None`: no
        /// check.
        expected_version: Option<u32>,
    },
    /// Change limits as [`Command::SetLimits`] does, even if the limits of children then add up to more than their
    /// parent's limit. Such a parent is marked as overcommitted. For administrators.
    ForceLimits {
        /// Changes, one for each project; at least one.
        changes: Vec<LimitChange>,
    },
    /// Change the definition of a vCluster, as [`Command::SetVcluster`] does, together with its scheduler settings.
    /// Settings that the change does not name stay, so that concurrent changes of different settings both apply.
    ///
    /// A change of settings alone does not define the vCluster. It is accepted only for an existing vCluster: one that
    /// is defined, `default`, or one with nodes.
    SetScheduler {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// Change of the definition.
        change: Box<VclusterPatch>,
        /// Change of the scheduler settings.
        settings: Box<SchedulerPatch>,
        /// Version that the proposer read; see [`Command::SetVcluster`].
        expected_version: Option<u32>,
    },
    /// Submit a DAG: all members or none.
    SubmitDag {
        /// The requested DAG.
        dag: Box<DagSpec>,
    },
    /// Cancel every member of a DAG that has not ended.
    CancelDag {
        /// DAG to cancel.
        id: DagId,
    },
    /// Requeue an allocation that holds nodes: its processes are ended, and it waits for nodes again. For a job array:
    /// each of its elements that holds nodes.
    Requeue {
        /// Allocation to requeue.
        id: AllocationId,
    },
    /// Change the walltime of an allocation that has not ended. Only operators and administrators may increase the
    /// walltime. The walltime must exceed the time already used. Refused for an allocation that is being stopped for
    /// good.
    ///
    /// If an attempt is under way, each of its agents receives the change (`agent.walltime`) until it has
    /// accepted the change.
    SetWalltime {
        /// Allocation to change.
        id: AllocationId,
        /// Total walltime, milliseconds. It includes the run time contained in the checkpoint that the allocation
        /// resumed from.
        walltime_ms: u64,
    },
    /// End an allocation that has passed its deadline, or a waiting one that cannot end before its deadline. Refused
    /// for all others. Fenced.
    Expire {
        /// Allocation to end.
        id: AllocationId,
    },
    /// Let an allocation write a checkpoint and continue. For its user, for operators and administrators, and for
    /// services under their lease. Fenced.
    WriteCheckpoint {
        /// Allocation that writes the checkpoint.
        id: AllocationId,
        /// Directory of the checkpoint.
        directory: String,
        /// Timeout of the checkpoint, milliseconds.
        timeout_ms: u64,
    },
    /// Extend the timeout of a checkpoint, at most once. Fenced.
    ExtendCheckpoint {
        /// Allocation that writes the checkpoint.
        id: AllocationId,
        /// Number of the checkpoint.
        number: u32,
        /// Extension, milliseconds.
        by_ms: u64,
    },
    /// Give up waiting for a checkpoint. An allocation that was to release its nodes or to be suspended after the
    /// checkpoint stops without it. Fenced.
    GiveUpCheckpoint {
        /// Allocation that writes the checkpoint.
        id: AllocationId,
        /// Number of the checkpoint.
        number: u32,
    },
    /// Let an allocation release all its nodes, after a checkpoint if the command names one. Fenced.
    MakeRoom {
        /// Allocation that releases its nodes, and its checkpoint.
        victim: Victim,
        /// Reason for the move.
        reason: MoveReason,
    },
    /// Promise nodes to a pending allocation (the preemptor), and preempt the victims that hold some of them. All or
    /// nothing. Each victim must be of a lower class and must be movable. Fenced.
    Preempt {
        /// Preemptor: the pending allocation that gets the nodes.
        id: AllocationId,
        /// Nodes to promise: free nodes, and nodes that the victims hold.
        nodes: Vec<NodeId>,
        /// Allocations to preempt.
        victims: Vec<Victim>,
    },
    /// Withdraw the promised nodes of a pending allocation. Fenced.
    WithdrawPromise {
        /// Allocation that loses its promised nodes.
        id: AllocationId,
    },
    /// Reclaim a lent node for its home vCluster, or withdraw the reclaim. Fenced.
    ReclaimNode {
        /// Lent node.
        node: NodeId,
        /// `true` to reclaim the node, `false` to withdraw the reclaim.
        wanted: bool,
        /// [`crate::node::Node::version`] that the proposer read.
        version: u64,
    },
    /// Create or change a reservation of nodes.
    SetReservation {
        /// Name of the reservation.
        name: ReservationName,
        /// Nodes, period, and permitted users and projects.
        spec: Box<ReservationSpec>,
        /// Revision of the reservation that the proposer read, 0 for none. The command is refused if the reservation
        /// has another revision. `None`: no check.
        expected: Option<Revision>,
    },
    /// Delete a reservation.
    DeleteReservation {
        /// Name of the reservation.
        name: ReservationName,
    },
    /// Let an allocation on borrowed nodes leave them after the checkpoint that it is writing, or without it on
    /// timeout. The allocation had started that checkpoint in order to continue. No change if the checkpoint has ended,
    /// or is already followed by a move or a suspension. Fenced.
    LeaveAfterCheckpoint {
        /// Allocation that writes the checkpoint.
        id: AllocationId,
        /// Number of the checkpoint.
        number: u32,
        /// vCluster that reclaims its nodes.
        home: VclusterName,
        /// Timeout from now on, milliseconds. The checkpoint's present deadline still applies if it is earlier.
        timeout_ms: u64,
    },
    /// Suspend an allocation after a checkpoint, on request of its user or an operator. A running allocation writes a
    /// new checkpoint; one that is writing a checkpoint is suspended after that one. If the checkpoint fails, the
    /// allocation is suspended without it. Refused if the checkpoint in progress precedes a move.
    SuspendAfterCheckpoint {
        /// Allocation to suspend.
        id: AllocationId,
        /// Directory and timeout of the checkpoint.
        checkpoint: RequestedCheckpoint,
    },
    /// Change the hard limits and soft limits of a tenant, all or none.
    UpdateTenant {
        /// Tenant to change.
        tenant: ProjectPath,
        /// Changes to the hard limits.
        limits: LimitPatch,
        /// Changes to the soft limits.
        soft: SoftPatch,
        /// Whether to accept overcommitted limits, as [`Command::ForceLimits`] does. For administrators.
        force: bool,
    },
    /// Store credits of tenants as the accounting system reports them. Entries of unknown tenants are ignored. Fenced.
    NoteCredits {
        /// Credits by tenant; at least one.
        credits: BTreeMap<ProjectPath, Credit>,
    },
    /// Acknowledge usage records: the accounting system has received them, or never will. An earlier number changes
    /// nothing. Fenced.
    AcknowledgeUsage {
        /// Number of the last acknowledged usage record.
        through: u64,
        /// Number of usage records, out of the newly acknowledged ones, that the accounting system never receives.
        dropped: u64,
    },
    /// Submit an allocation or a job array, with the handling of a request that does not fit with the present usage.
    /// A request that exceeds a limit by itself is always refused.
    SubmitOnLimit {
        /// The allocation request.
        spec: Box<AllocationSpec>,
        /// Handling of the request, instead of the tenant's setting.
        on_limit: OnLimit,
    },
    /// Change the handling of submits that do not fit with the present usage, and limits of a tenant, all or none.
    /// For administrators.
    SetTenant {
        /// Tenant to change.
        tenant: ProjectPath,
        /// Changes to the hard limits.
        limits: LimitPatch,
        /// Changes to the soft limits.
        soft: SoftPatch,
        /// Whether to accept overcommitted limits, as [`Command::ForceLimits`] does.
        force: bool,
        /// Handling of the tenant's submits that do not state one.
        on_limit: OnLimit,
    },
    /// Record in the audit that a node runs an attempt of an allocation without a record, and that the attempt is being
    /// ended: the allocation was submitted after the backup from which the cluster was restored. Refused for an
    /// allocation with a record. Fenced.
    NoteUnknownAttempt {
        /// Name of the node.
        node: NodeId,
        /// Number of the allocation, as the node reports it.
        allocation: AllocationId,
        /// Attempt of the allocation, as the node reports it.
        attempt: u32,
        /// Origin of the attempt, as the node reports it; `None` if the node has no record of it either.
        origin: Option<AttemptOrigin>,
    },
    /// Accept the differences that remain between the accounting system and the recorded usage of an ended month. For
    /// administrators.
    AcceptMonth {
        /// The ended month.
        month: AccountingMonth,
        /// Number of totals that differ; at least 1.
        differences: u32,
    },
    /// Note whether totals of an ended month differ in the accounting system. A month with accepted differences stays
    /// accepted. Fenced.
    NoteOpenMonth {
        /// The ended month.
        month: AccountingMonth,
        /// Whether totals differ.
        is_open: bool,
    },
}
