//! Commands: everything that can change the replicated state.

use crate::{
    AllocationId, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    allocation::StopCause,
    baseline::Definition,
    budget::{Credit, SoftPatch},
    claim::ClaimedNode,
    course::MoveReason,
    dag::DagSpec,
    id::{BaselineName, DagId, LeaseName, ReservationName},
    limit::{LimitPatch, LimitPolicy, Limits, SystemLimitPatch},
    node::Lifecycle,
    reservation::ReservationSpec,
    rpc::Role,
    scheduler::SchedulerPatch,
    spec::AllocationSpec,
    tenure::WipeOutcome,
    vcluster::VclusterPatch,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr};

mod envelope;
mod outcome;
mod parts;

pub use envelope::{Envelope, Fence, KEY_LIFETIME_MS, Power, Principal, SCHEMA};
pub use outcome::{Applied, Outcome};
pub use parts::{
    CheckpointAsked, ExpectedNode, IssuedCertificate, LimitChange, RankReport, TokenGrant, Victim,
};

/// Everything that can change the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Creates a tenant (a root) or a project below its parent.
    CreateProject {
        /// Where.
        path: ProjectPath,
        /// `None`: default closed.
        limits: Option<Limits>,
        /// Administrators.
        admins: Vec<String>,
        /// Text for people.
        description: String,
    },
    /// Deletes an empty project.
    DeleteProject {
        /// Which.
        path: ProjectPath,
    },
    /// Changes limits, all or none, judged on the resulting tree.
    SetLimits {
        /// At least one.
        changes: Vec<LimitChange>,
    },
    /// Submits an allocation, or an array of them.
    Submit {
        /// The request.
        spec: Box<AllocationSpec>,
    },
    /// Cancels: ends at once what holds nothing, stops what holds nodes.
    Cancel {
        /// Which.
        id: AllocationId,
    },
    /// Puts a pending allocation on hold.
    Hold {
        /// Which.
        id: AllocationId,
    },
    /// Takes it off hold.
    Release {
        /// Which.
        id: AllocationId,
    },
    /// Gives a pending allocation its nodes, in rank order. Fenced. Not for sensitive work, which
    /// [`Command::AssignSensitive`] assigns.
    Assign {
        /// Which.
        id: AllocationId,
        /// Its nodes with the versions they were planned on.
        nodes: Vec<ExpectedNode>,
    },
    /// Starts stopping a holding allocation. Fenced.
    Stop {
        /// Which.
        id: AllocationId,
        /// Why.
        cause: StopCause,
    },
    /// Commits what an agent reported of one rank.
    Report {
        /// The allocation.
        id: AllocationId,
        /// The attempt the report is of.
        attempt: u32,
        /// The node that speaks.
        node: NodeId,
        /// What it says.
        report: RankReport,
    },
    /// Registers a node, or does nothing when it is registered already.
    RegisterNode {
        /// Its name.
        node: NodeId,
        /// Its vCluster.
        vcluster: VclusterName,
    },
    /// Sets what is intended for a node.
    SetLifecycle {
        /// Which.
        node: NodeId,
        /// The new intent.
        lifecycle: Lifecycle,
    },
    /// Sets or clears the principal's own drain reason.
    Drain {
        /// Which node.
        node: NodeId,
        /// `None` clears the reason of this owner.
        reason: Option<String>,
        /// The node's revision that this rests on; refused when it has another by now. `None`
        /// rests on nothing.
        expected: Option<Revision>,
    },
    /// Takes, or renews, a lease. A new holder gets a new epoch.
    AcquireLease {
        /// Which.
        lease: LeaseName,
        /// Who.
        holder: String,
        /// For how long, milliseconds.
        ttl_ms: u64,
    },
    /// Gives a lease back.
    ReleaseLease {
        /// Which.
        lease: LeaseName,
        /// By whom.
        holder: String,
    },
    /// Stores a join token's hash; the token itself is never replicated.
    CreateToken {
        /// What it permits.
        grant: TokenGrant,
    },
    /// Withdraws a join token.
    RevokeToken {
        /// The first characters of its hash, 8 at least, as lists show it.
        id: String,
    },
    /// Uses a join token for one enrolment. Part of issuing a certificate; earlier certificates of
    /// a name that is taken over hold no more.
    ConsumeToken {
        /// blake3 of the secret part.
        hash: String,
        /// The name that enrols.
        name: String,
        /// The role that enrols.
        role: Role,
        /// Where it speaks from, as the member sees it.
        from: Option<IpAddr>,
        /// It asks to take over a name that is enrolled.
        replace: bool,
        /// What will be issued.
        certificate: IssuedCertificate,
    },
    /// Renews a certificate. Part of issuing it.
    RenewCertificate {
        /// Whose.
        name: String,
        /// Its role.
        role: Role,
        /// When the certificate it showed was issued.
        shown_issued_at: UnixMillis,
        /// What will be issued.
        certificate: IssuedCertificate,
    },
    /// Every certificate of this name issued until now holds no more.
    RevokeCertificates {
        /// Whose.
        name: String,
        /// Its role.
        role: Role,
        /// Why, for the audit.
        reason: String,
    },
    /// Trusts one more authority. The first one issues.
    AddAuthority {
        /// Its certificate (DER).
        certificate: Bytes,
    },
    /// From now on this authority issues; everybody renews.
    PromoteAuthority {
        /// blake3 of its certificate, lower-case hex.
        pin: String,
    },
    /// Trusts an authority no more. Refused for the one that issues.
    RetireAuthority {
        /// blake3 of its certificate.
        pin: String,
    },
    /// Takes a node from its holder although nobody knows that its processes are gone: a person
    /// answers for that. The node stays drained by that person.
    ForceRelease {
        /// Which.
        node: NodeId,
        /// Why, and how it is known that nothing runs there.
        reason: String,
        /// The node's revision at which its holder was looked at; refused when it has another by
        /// now, and so perhaps another holder.
        expected: Option<Revision>,
    },
    /// Clears the principal's own drain reason and that of a failed hook without the node's health
    /// gate having been asked: a person answers for that, and it is written down.
    UndrainUnchecked {
        /// Which node.
        node: NodeId,
        /// The node's revision that this rests on; refused when it has another by now.
        expected: Option<Revision>,
    },
    /// Makes a new version of a baseline, the first one too. What it is already is no new version.
    SetBaseline {
        /// Which.
        name: BaselineName,
        /// What nodes are meant to be.
        definition: Box<Definition>,
        /// The version this rests on, 0 for none; refused when there is another by now. `None`
        /// rests on nothing.
        expected_version: Option<u32>,
    },
    /// Nobody is judged by it any more. Its former versions are forgotten.
    DeleteBaseline {
        /// Which.
        name: BaselineName,
        /// As in [`Command::SetBaseline`].
        expected_version: Option<u32>,
    },
    /// Too many nodes are about to be drained automatically: none is from now on. Fenced.
    HoldBrake {
        /// What was about to happen, with the numbers.
        reason: String,
    },
    /// A person has looked: automatic draining goes on.
    ReleaseBrake {
        /// What was found, for the audit.
        reason: String,
    },
    /// Gives pending sensitive work its nodes, in rank order, on each node's own word: refused
    /// where that is too old or is not what the node's baselines ask. Fenced.
    AssignSensitive {
        /// Which.
        id: AllocationId,
        /// Its nodes, each with what speaks for it.
        nodes: Vec<ClaimedNode>,
    },
    /// Gives an allocation that holds nodes more of them, as ranks behind those it has. Fenced. Not
    /// for sensitive work.
    Grow {
        /// Which.
        id: AllocationId,
        /// What it gets, with the versions that were planned on.
        nodes: Vec<ExpectedNode>,
    },
    /// Gives nodes of an allocation back, each as soon as its rank is known to have ended. Fenced.
    Shrink {
        /// Which.
        id: AllocationId,
        /// What it gives back; at least one node is left.
        nodes: Vec<NodeId>,
    },
    /// Ends the processes of an allocation that holds nodes; afterwards it is suspended and holds
    /// nothing. Fenced.
    Suspend {
        /// Which.
        id: AllocationId,
    },
    /// A suspended allocation waits for nodes again, if limits allow it now. Fenced.
    Resume {
        /// Which.
        id: AllocationId,
    },
    /// Changes what is limited for the whole cluster.
    SetSystemLimits {
        /// What changes.
        patch: SystemLimitPatch,
    },
    /// From now on limits mean something else. Refused unless the tree as it is obeys.
    SetLimitPolicy {
        /// By which rules.
        policy: LimitPolicy,
    },
    /// As [`Command::CreateProject`], with each limit by itself: what is not named is closed.
    NewProject {
        /// Where.
        path: ProjectPath,
        /// Other than closed.
        limits: LimitPatch,
        /// Administrators.
        admins: Vec<String>,
        /// Text for people.
        description: String,
    },
    /// Writes down what was done to the quorum itself: its members, who leads, backups. By the leader
    /// that does it, on behalf of who asked for it.
    NoteQuorum {
        /// What.
        action: Box<crate::audit::AuditAction>,
    },
    /// Puts a signed checkpoint behind the audit's entries. By the leader, which has verified it.
    SignAudit {
        /// As it was signed.
        checkpoint: Box<crate::audit::Checkpoint>,
    },
    /// Nodes belong to the principal alone from now on, for sensitive work of one project, until they
    /// are given back: all of them or none, each on its own word, as for sensitive work.
    ClaimNodes {
        /// Against whose limits they count.
        project: ProjectPath,
        /// Which, each with what speaks for it.
        nodes: Vec<ClaimedNode>,
        /// What for; may be empty.
        purpose: String,
    },
    /// Gives claimed nodes back, all of them or none. Each is wiped before anybody else gets it.
    ReleaseNodes {
        /// Which.
        nodes: Vec<NodeId>,
        /// Needed from who is not the claimant: an administrator.
        reason: Option<String>,
    },
    /// What became of a node's wipe. Fenced.
    ReportWipe {
        /// Which node.
        node: NodeId,
        /// Which wipe; of another one than is waited for nothing is taken.
        wipe: u64,
        /// By the node's word.
        outcome: WipeOutcome,
    },
    /// A node whose wipe failed, or hangs, is wiped again.
    RepeatWipe {
        /// Which node.
        node: NodeId,
        /// What was done about it, for the audit.
        reason: String,
    },
    /// A node that was given back and is not wiped is nobody's any more: a person answers for that.
    /// It stays drained until its health gate has let it.
    AcceptUnwiped {
        /// Which node.
        node: NodeId,
        /// Why, for the audit.
        reason: String,
    },
    /// Says what a vCluster is, the first time too. What it is already is no new version.
    SetVcluster {
        /// Which.
        vcluster: VclusterName,
        /// What of it is to be another.
        change: Box<VclusterPatch>,
        /// The version this rests on, 0 for none; refused when there is another by now. `None`
        /// rests on nothing.
        expected_version: Option<u32>,
    },
    /// Nodes belong to this vCluster, and serve it, from now on: all of them or none.
    AssignVcluster {
        /// Which nodes.
        nodes: Vec<NodeId>,
        /// Where to.
        vcluster: VclusterName,
        /// The vCluster they may be taken from. Of one that nobody has defined they may be taken
        /// anyway.
        from: Option<VclusterName>,
    },
    /// An idle node serves another vCluster for now. Fenced.
    LendNode {
        /// Which.
        node: NodeId,
        /// Where to.
        to: VclusterName,
        /// [`crate::node::Node::version`] it was planned on.
        version: u64,
    },
    /// A node that nothing holds serves its own vCluster again. Fenced.
    ReturnNode {
        /// Which.
        node: NodeId,
        /// [`crate::node::Node::version`] it was planned on.
        version: u64,
    },
    /// What was said of a vCluster holds no more. Refused while nodes belong to it or serve it: they
    /// would be open to every tenant.
    DeleteVcluster {
        /// Which.
        vcluster: VclusterName,
        /// The version this rests on; refused when there is another by now.
        expected_version: Option<u32>,
    },
    /// As [`Command::SetLimits`], also where the limits of children then add up to more than their
    /// parent's, which is marked as overcommitted. For administrators.
    ForceLimits {
        /// At least one.
        changes: Vec<LimitChange>,
    },
    /// As [`Command::SetVcluster`], with settings of its scheduler. A change keeps the settings that it does not name, so
    /// that concurrent changes of different settings both apply. Settings alone are taken only for a vCluster that
    /// is there (defined, `default`, or one that nodes serve), and define none.
    SetScheduler {
        /// Which.
        vcluster: VclusterName,
        /// Change of its definition.
        change: Box<VclusterPatch>,
        /// Change of its scheduler settings.
        settings: Box<SchedulerPatch>,
        /// See [`Command::SetVcluster`].
        expected_version: Option<u32>,
    },
    /// Submits a graph: all its members, or none.
    SubmitDag {
        /// What is asked for.
        dag: Box<DagSpec>,
    },
    /// Cancels every member of a graph that has not ended.
    CancelDag {
        /// Which.
        id: DagId,
    },
    /// Ends the processes of an allocation that holds nodes; afterwards it waits for nodes again.
    Requeue {
        /// Which.
        id: AllocationId,
    },
    /// Gives an allocation that has not ended another walltime. Longer for operators alone, and never shorter
    /// than what has run. The agents of a present attempt are told
    /// ([`wire::SetWalltime`](crate::wire::SetWalltime)) until each has taken it; one that is being stopped
    /// for good is refused.
    SetWalltime {
        /// Which.
        id: AllocationId,
        /// In all, from the begin of the work on, milliseconds: what a checkpoint that it goes on from has in
        /// it counts.
        walltime_ms: u64,
    },
    /// Ends an allocation whose deadline has passed, or that could not end before it any more. Refused
    /// for others. Fenced.
    Expire {
        /// Which.
        id: AllocationId,
    },
    /// Has an allocation write a checkpoint, and go on. Its user asks for that, operators, and services under
    /// their lease.
    WriteCheckpoint {
        /// Which.
        id: AllocationId,
        /// Where to.
        directory: String,
        /// How long it may take, milliseconds.
        timeout_ms: u64,
    },
    /// Gives a checkpoint more time, once. Fenced.
    ExtendCheckpoint {
        /// Of which allocation.
        id: AllocationId,
        /// Which checkpoint.
        number: u32,
        /// By how much, milliseconds.
        by_ms: u64,
    },
    /// Waits for a checkpoint no more. What was to make room after it does without. Fenced.
    GiveUpCheckpoint {
        /// Of which allocation.
        id: AllocationId,
        /// Which checkpoint.
        number: u32,
    },
    /// An allocation that holds nodes gives all of them back, after a checkpoint where it can write one.
    /// Fenced.
    MakeRoom {
        /// Which, and how.
        victim: Victim,
        /// Why.
        reason: MoveReason,
    },
    /// Promises a pending allocation nodes, and has others make room there. All or nothing: each of these
    /// must be of a lower class, and may be moved. Fenced.
    Preempt {
        /// For which.
        id: AllocationId,
        /// The nodes it gets: free ones, and nodes that the victims hold.
        nodes: Vec<NodeId>,
        /// Who makes room.
        victims: Vec<Victim>,
    },
    /// A pending allocation is promised nothing any more. Fenced.
    WithdrawPromise {
        /// Which.
        id: AllocationId,
    },
    /// A lent node is wanted back, or not any more. Fenced.
    RecallNode {
        /// Which.
        node: NodeId,
        /// Whether it is.
        wanted: bool,
        /// [`crate::node::Node::version`] that this rests on.
        version: u64,
    },
    /// Keeps nodes for some for a time, or changes what is kept.
    SetReservation {
        /// Under which name.
        name: ReservationName,
        /// What is kept.
        spec: Box<ReservationSpec>,
        /// The revision of the reservation that this rests on, 0 for none; `None` rests on nothing.
        expected: Option<Revision>,
    },
    /// Nothing is kept under this name any more.
    DeleteReservation {
        /// Which.
        name: ReservationName,
    },
    /// An allocation on nodes that a vCluster has lent, and that writes a checkpoint in order to go on, makes room
    /// after it instead, or without it once the time is over. Nothing happens where that checkpoint is over, or is
    /// one to make room after already. Fenced.
    LeaveAfterCheckpoint {
        /// Which allocation.
        id: AllocationId,
        /// Which checkpoint.
        number: u32,
        /// Whose nodes it leaves.
        home: VclusterName,
        /// How long it may take from now on at most, milliseconds: no more than it has left.
        timeout_ms: u64,
    },
    /// Has an allocation write a checkpoint, and suspends it then, as its user or an operator asks. One that writes
    /// one already is suspended after that. Where it comes to nothing, it is suspended without.
    SuspendAfterCheckpoint {
        /// Which.
        id: AllocationId,
        /// The checkpoint, and how long it may take.
        checkpoint: CheckpointAsked,
    },
    /// Changes what a tenant may use and what it is meant to use, all of it or nothing.
    UpdateTenant {
        /// Which.
        tenant: ProjectPath,
        /// Its hard limits.
        limits: LimitPatch,
        /// Its soft ones.
        soft: SoftPatch,
        /// As in [`Command::ForceLimits`]; for administrators.
        force: bool,
    },
    /// Takes down what an accounting system says of tenants. Of one that is gone nothing is kept. Fenced.
    NoteCredits {
        /// By tenant; at least one.
        credits: BTreeMap<ProjectPath, Credit>,
    },
    /// An accounting system has the facts up to this one, or never will. Going back changes nothing. Fenced.
    AcknowledgeFacts {
        /// Number of the last one.
        through: u64,
        /// How many of them it does not get.
        dropped: u64,
    },
}
