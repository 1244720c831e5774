//! Refusals: expected answers of the state machine, as data with numbers.
//!
//! A refusal is not an error: the command was understood, judged and not applied. The texts are
//! the public contract; each says which rule, which levels, the numbers, and what to do next.

mod limit;
mod text;
mod unproven;

use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision,
    cidr::Cidr,
    id::{BaselineName, DagId, LeaseName, ReservationName, VclusterName},
    tenure::Taken,
};
pub use limit::{Asked, Level, LimitFault};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
pub use unproven::{ProofFault, Unproven};

/// An expected "no".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Hard limits: every violated level, from the project up to the tenant.
    LimitExceeded {
        /// Never empty.
        levels: Vec<Level>,
        /// What did not fit.
        asked: Asked,
    },
    /// A limit change that would break the tree.
    LimitConflict {
        /// Every fault found.
        faults: Vec<LimitFault>,
    },
    /// No such project or tenant.
    UnknownProject {
        /// As asked for.
        path: ProjectPath,
    },
    /// It exists already.
    ProjectExists {
        /// The path that exists; for a name that is taken elsewhere in the tenant, that path.
        path: ProjectPath,
    },
    /// It still has children or allocations.
    ProjectNotEmpty {
        /// The project.
        path: ProjectPath,
        /// Child projects.
        children: u64,
        /// Allocations that are not terminal.
        allocations: u64,
    },
    /// No such node.
    UnknownNode {
        /// As asked for.
        node: NodeId,
    },
    /// No such allocation.
    UnknownAllocation {
        /// As asked for.
        id: AllocationId,
    },
    /// The allocation is in a state in which this cannot be done.
    WrongState {
        /// The allocation.
        id: AllocationId,
        /// Its state.
        state: AllocationState,
        /// What was to be done, e.g. "assign".
        action: String,
    },
    /// Somebody else holds the node, or it changed since the plan was made.
    OwnershipConflict {
        /// Each node that is not as expected, with its present holder.
        nodes: Vec<(NodeId, Option<AllocationId>)>,
    },
    /// The proposer's lease has passed to somebody else.
    StaleEpoch {
        /// Which lease.
        lease: LeaseName,
        /// The epoch the command carried.
        given: u64,
        /// The present one.
        current: u64,
    },
    /// Somebody else holds the lease.
    LeaseHeld {
        /// Which lease.
        lease: LeaseName,
        /// By whom.
        holder: String,
    },
    /// A report of an attempt that is not the current one.
    StaleAttempt {
        /// The allocation.
        id: AllocationId,
        /// The attempt reported.
        given: u32,
        /// The current one.
        current: u32,
    },
    /// The principal may not do this.
    Forbidden {
        /// Who asked.
        principal: String,
        /// What would be needed.
        needs: String,
    },
    /// A value that no state could accept.
    Invalid {
        /// The field.
        field: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The request can never fit this cluster.
    TooLarge {
        /// Nodes asked for.
        requested: u32,
        /// Nodes registered and not retired.
        registered: u64,
    },
    /// A join token that is unknown, expired, used up, or not for this name.
    TokenRefused {
        /// Which of these.
        reason: String,
    },
    /// The same idempotency key came before with another command.
    KeyReused {
        /// The key.
        key: String,
    },
    /// The command has another schema than this member reads.
    UnsupportedSchema {
        /// Schema of the command.
        given: u16,
        /// Schema that this member reads.
        supported: u16,
    },
    /// Somebody of that name is a member already.
    NameTaken {
        /// The name.
        name: String,
        /// What would allow to take it over.
        needs: String,
    },
    /// The certificates of that name hold no more.
    CertificateRevoked {
        /// The name.
        name: String,
    },
    /// The node is not as it was when the asker looked.
    NodeChanged {
        /// The node.
        node: NodeId,
        /// Who holds it now.
        holder: Option<AllocationId>,
    },
    /// No such authority, token or certificate.
    UnknownTrust {
        /// What it is, e.g. "authority".
        kind: String,
        /// As asked for.
        id: String,
    },
    /// A join token that is good, but not at this address.
    TokenNetwork {
        /// Where the request came from.
        from: IpAddr,
        /// What the token is for.
        networks: Vec<Cidr>,
    },
    /// No such baseline, or no such version of it any more.
    UnknownBaseline {
        /// As asked for.
        name: BaselineName,
    },
    /// The baseline is not at the version the asker saw.
    BaselineChanged {
        /// Which.
        name: BaselineName,
        /// The version the command rests on; 0 for none.
        expected: u32,
        /// The present one; 0 when there is none.
        current: u32,
    },
    /// Baselines are bounded, for every member keeps all of them.
    BaselineLimit {
        /// The one that does not fit.
        name: BaselineName,
        /// What is bounded, e.g. "bytes of one baseline".
        resource: String,
        /// What it would come to.
        requested: u64,
        /// The ceiling.
        limit: u64,
    },
    /// Two baselines would speak for the same nodes and class.
    BaselineAmbiguous {
        /// The one that is refused.
        name: BaselineName,
        /// The one that is there.
        other: BaselineName,
        /// The class of which both speak.
        class: String,
        /// The nodes, or the cohort, that both choose.
        chosen: String,
    },
    /// Sensitive work would rest on what its nodes do not say of themselves, or on nodes that are
    /// not what their baselines ask.
    Unproven {
        /// The allocation.
        id: AllocationId,
        /// The first faults, in the order of the ranks; never empty.
        faults: Vec<Unproven>,
        /// How many there are besides.
        more: u64,
    },
    /// Nodes that were asked for are somebody's, or not in service; none of them was given.
    NodesTaken {
        /// Each of them, with whose it is.
        nodes: Vec<Taken>,
    },
    /// More nodes would be in sensitive use than the cluster allows.
    SensitivePool {
        /// In sensitive use before the request.
        current: u64,
        /// What was asked for.
        requested: u64,
        /// The ceiling.
        limit: u64,
    },
    /// A claim would rest on what its nodes do not say of themselves, or on nodes that are not what
    /// their baselines ask.
    NotConforming {
        /// The first faults, in the order of the nodes; never empty.
        faults: Vec<Unproven>,
        /// How many there are besides.
        more: u64,
    },
    /// Claimed nodes that still run something cannot be given back.
    StillHeld {
        /// Each of them, with what runs there.
        nodes: Vec<(NodeId, AllocationId)>,
    },
    /// A vCluster that is not for this tenant.
    VclusterClosed {
        /// Which.
        vcluster: VclusterName,
        /// Whose.
        tenant: ProjectPath,
    },
    /// The vCluster is not at the version the asker saw.
    VclusterChanged {
        /// Which.
        vcluster: VclusterName,
        /// The version the command rests on; 0 for none.
        expected: u32,
        /// The present one; 0 when there is none.
        current: u32,
    },
    /// A vCluster of which nobody has said what it is.
    UnknownVcluster {
        /// As asked for.
        vcluster: VclusterName,
    },
    /// Nodes belong to the vCluster that is to go, or serve it.
    VclusterInUse {
        /// Which.
        vcluster: VclusterName,
        /// All of them.
        nodes: Vec<NodeId>,
    },
    /// A graph with more members than one may have.
    DagTooLarge {
        /// As asked for.
        members: u64,
        /// The ceiling.
        limit: u64,
    },
    /// No such graph.
    UnknownDag {
        /// As asked for.
        id: DagId,
    },
    /// An allocation that may not be moved for another, or not for this one.
    NotMovable {
        /// Which.
        id: AllocationId,
        /// Why not.
        reason: String,
    },
    /// Nodes that are kept for others while the work would run.
    Reserved {
        /// Each of them, with the name under which it is kept.
        nodes: Vec<(NodeId, ReservationName)>,
    },
    /// No such reservation.
    UnknownReservation {
        /// As asked for.
        name: ReservationName,
    },
    /// The reservation is not as it was when the asker looked.
    ReservationChanged {
        /// Which.
        name: ReservationName,
        /// The revision the command rests on; 0 for none.
        expected: Revision,
        /// The present one; 0 when there is none.
        current: Revision,
    },
    /// A graph is refused for one of its members.
    OfMember {
        /// What that is called.
        member: String,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// An accounting system asked that a project begins nothing more.
    Paused {
        /// Which.
        project: ProjectPath,
        /// In which vCluster.
        vcluster: VclusterName,
    },
}

impl Refusal {
    /// A stable, machine-readable word for the kind.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::LimitExceeded { .. } => "limit_exceeded",
            Refusal::LimitConflict { .. } => "limit_conflict",
            Refusal::UnknownProject { .. } => "unknown_project",
            Refusal::ProjectExists { .. } => "project_exists",
            Refusal::ProjectNotEmpty { .. } => "project_not_empty",
            Refusal::UnknownNode { .. } => "unknown_node",
            Refusal::UnknownAllocation { .. } => "unknown_allocation",
            Refusal::WrongState { .. } => "wrong_state",
            Refusal::OwnershipConflict { .. } => "ownership_conflict",
            Refusal::StaleEpoch { .. } => "stale_epoch",
            Refusal::LeaseHeld { .. } => "lease_held",
            Refusal::StaleAttempt { .. } => "stale_attempt",
            Refusal::Forbidden { .. } => "forbidden",
            Refusal::Invalid { .. } => "invalid",
            Refusal::TooLarge { .. } => "too_large",
            Refusal::TokenRefused { .. } => "token_refused",
            Refusal::KeyReused { .. } => "key_reused",
            Refusal::UnsupportedSchema { .. } => "unsupported_schema",
            Refusal::NameTaken { .. } => "name_taken",
            Refusal::CertificateRevoked { .. } => "certificate_revoked",
            Refusal::NodeChanged { .. } => "node_changed",
            Refusal::UnknownTrust { .. } => "unknown_trust",
            Refusal::TokenNetwork { .. } => "token_network",
            Refusal::UnknownBaseline { .. } => "unknown_baseline",
            Refusal::BaselineChanged { .. } => "baseline_changed",
            Refusal::BaselineLimit { .. } => "baseline_limit",
            Refusal::BaselineAmbiguous { .. } => "baseline_ambiguous",
            Refusal::Unproven { .. } => "unproven",
            Refusal::NodesTaken { .. } => "ownership_conflict",
            Refusal::SensitivePool { .. } => "sensitive_pool",
            Refusal::NotConforming { .. } => "not_conforming",
            Refusal::StillHeld { .. } => "still_held",
            Refusal::VclusterClosed { .. } => "vcluster_closed",
            Refusal::VclusterChanged { .. } => "vcluster_changed",
            Refusal::UnknownVcluster { .. } => "unknown_vcluster",
            Refusal::VclusterInUse { .. } => "vcluster_in_use",
            Refusal::DagTooLarge { .. } => "dag_too_large",
            Refusal::UnknownDag { .. } => "unknown_dag",
            Refusal::NotMovable { .. } => "not_movable",
            Refusal::Reserved { .. } => "reserved",
            Refusal::UnknownReservation { .. } => "unknown_reservation",
            Refusal::ReservationChanged { .. } => "reservation_changed",
            Refusal::OfMember { refusal, .. } => refusal.code(),
            Refusal::Paused { .. } => "paused",
        }
    }
}

impl std::error::Error for Refusal {}
