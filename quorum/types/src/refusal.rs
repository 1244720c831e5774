//! Refusals: expected negative answers of the state machine, as data with numbers.
//!
//! A refusal is not an error: the state machine understood the command, checked it and did not apply it. The texts are
//! the public contract. Each names the rule, the levels, the numbers and the remedy.

mod attestation_fault;
mod limit;
mod text;

use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision,
    cidr::Cidr,
    id::{BaselineName, DagId, LeaseName, ReservationName, VclusterName},
    limit_policy::LimitFault,
    node::UnavailableNode,
};
pub use attestation_fault::{NodeProofFault, ProofFault};
pub use limit::{LimitNumbers, LimitOwner, LimitRequest, SENSITIVE_POOL_LIMIT, ViolatedLevel};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A refusal of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Hard limits are exceeded. All violated levels are listed, from the project up to the tenant.
    LimitExceeded {
        /// Violated levels; never empty.
        levels: Vec<ViolatedLevel>,
        /// Kind of request that did not fit.
        asked: LimitRequest,
    },
    /// A limit change would violate the limit policy.
    LimitConflict {
        /// All violations found.
        faults: Vec<LimitFault>,
    },
    /// The project or tenant does not exist.
    UnknownProject {
        /// Path as given.
        path: ProjectPath,
    },
    /// The project or tenant exists already.
    ProjectExists {
        /// The existing path. For a name that is in use elsewhere in the tenant: that path.
        path: ProjectPath,
    },
    /// The project still has children or allocations.
    ProjectNotEmpty {
        /// Path of the project.
        path: ProjectPath,
        /// Number of child projects.
        children: u64,
        /// Number of allocations that are not terminal.
        allocations: u64,
    },
    /// The node does not exist.
    UnknownNode {
        /// Name as given.
        node: NodeId,
    },
    /// The allocation does not exist.
    UnknownAllocation {
        /// Number as given.
        id: AllocationId,
    },
    /// The action is not possible in the allocation's present state.
    WrongState {
        /// The allocation.
        id: AllocationId,
        /// Present state.
        state: AllocationState,
        /// Refused action, e.g. "assign".
        action: String,
    },
    /// Another allocation holds a node, or a node changed since the plan was made.
    OwnershipConflict {
        /// Each node that differs from the plan, with its present holder.
        nodes: Vec<(NodeId, Option<AllocationId>)>,
    },
    /// The lease epoch is stale: the lease was released, or granted again.
    StaleEpoch {
        /// Name of the lease.
        lease: LeaseName,
        /// Epoch in the command.
        given: u64,
        /// Present epoch.
        current: u64,
    },
    /// Another holder has the lease.
    LeaseHeld {
        /// Name of the lease.
        lease: LeaseName,
        /// Present holder.
        holder: String,
    },
    /// The command refers to an attempt that is not the current one.
    StaleAttempt {
        /// The allocation.
        id: AllocationId,
        /// Attempt in the command.
        given: u32,
        /// Current attempt.
        current: u32,
    },
    /// The principal lacks the permission.
    Forbidden {
        /// Name of the principal.
        principal: String,
        /// Required role or relation.
        needs: String,
    },
    /// A field has a value that is not valid, in general or in the present state.
    Invalid {
        /// Name of the field.
        field: String,
        /// Description of the error, with the remedy.
        reason: String,
    },
    /// The request exceeds the number of registered nodes.
    TooLarge {
        /// Number of requested nodes.
        requested: u32,
        /// Number of registered nodes, without retired ones.
        registered: u64,
    },
    /// The join token is unknown, expired, used up, or not for this enrolment.
    TokenRefused {
        /// Description of the reason.
        reason: String,
    },
    /// The idempotency key was used for another command.
    KeyReused {
        /// The key.
        key: String,
    },
    /// The member does not support the schema of the command.
    UnsupportedSchema {
        /// Schema of the command.
        given: u16,
        /// Schema that the member reads.
        supported: u16,
    },
    /// The name is enrolled already.
    NameTaken {
        /// The name.
        name: String,
        /// Requirements for a replacement.
        needs: String,
    },
    /// The certificates of the name are revoked.
    CertificateRevoked {
        /// The name.
        name: String,
    },
    /// The node changed since the proposer read it.
    NodeChanged {
        /// Name of the node.
        node: NodeId,
        /// Present holder of the node.
        holder: Option<AllocationId>,
    },
    /// The authority, token or certificate does not exist.
    UnknownTrust {
        /// Kind of object, e.g. "authority".
        kind: String,
        /// Identifier as given.
        id: String,
    },
    /// The join token is valid, but not for this source address.
    TokenNetwork {
        /// Source address of the request.
        from: IpAddr,
        /// Networks that the token permits.
        networks: Vec<Cidr>,
    },
    /// The baseline does not exist, or the version is not retained.
    UnknownBaseline {
        /// Name as given.
        name: BaselineName,
    },
    /// The baseline has another version than the proposer read.
    BaselineChanged {
        /// Name of the baseline.
        name: BaselineName,
        /// Version in the command; 0 for none.
        expected: u32,
        /// Present version; 0 if there is none.
        current: u32,
    },
    /// A bound on baselines is exceeded. Baselines are bounded because every member stores all of them.
    BaselineLimit {
        /// Name of the baseline that does not fit.
        name: BaselineName,
        /// Bounded quantity, e.g. "bytes of one baseline".
        resource: String,
        /// Resulting value.
        requested: u64,
        /// Largest permitted value.
        limit: u64,
    },
    /// Two baselines would apply to the same nodes and conformance class with equal rank.
    BaselineAmbiguous {
        /// Name of the refused baseline.
        name: BaselineName,
        /// Name of the present baseline.
        other: BaselineName,
        /// Class in both baselines.
        class: String,
        /// Nodes, or cohort, that both select.
        chosen: String,
    },
    /// A sensitive allocation would get nodes without a valid attestation, or nodes that contradict their baselines.
    Unproven {
        /// The allocation.
        id: AllocationId,
        /// The first faults, in rank order; never empty.
        faults: Vec<NodeProofFault>,
        /// Number of further faults.
        more: u64,
    },
    /// Requested nodes are not available. None of the nodes was given.
    NodesTaken {
        /// The unavailable nodes, with reasons.
        nodes: Vec<UnavailableNode>,
    },
    /// The nodes in sensitive use would exceed the sensitive pool.
    SensitivePool {
        /// Nodes in sensitive use before the request.
        current: u64,
        /// Number of requested nodes.
        requested: u64,
        /// Size of the sensitive pool.
        limit: u64,
    },
    /// A node claim would include nodes without a valid attestation, or nodes that contradict their baselines.
    NotConforming {
        /// The first faults, in the order of the nodes; never empty.
        faults: Vec<NodeProofFault>,
        /// Number of further faults.
        more: u64,
    },
    /// Claimed nodes cannot be released while allocations hold them.
    StillHeld {
        /// The held nodes, with their allocations.
        nodes: Vec<(NodeId, AllocationId)>,
    },
    /// The vCluster is not open to the tenant.
    VclusterClosed {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// The tenant.
        tenant: ProjectPath,
    },
    /// The vCluster has another version than the proposer read.
    VclusterChanged {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// Version in the command; 0 for none.
        expected: u32,
        /// Present version; 0 if there is none.
        current: u32,
    },
    /// The vCluster is not defined. Some commands also accept an undefined vCluster if it is `default` or has nodes.
    UnknownVcluster {
        /// Name as given.
        vcluster: VclusterName,
    },
    /// The vCluster cannot be deleted because it is the home or current vCluster of nodes.
    VclusterInUse {
        /// Name of the vCluster.
        vcluster: VclusterName,
        /// All these nodes.
        nodes: Vec<NodeId>,
    },
    /// The DAG has too many members.
    DagTooLarge {
        /// Number of members of the request.
        members: u64,
        /// Largest permitted number.
        limit: u64,
    },
    /// The DAG does not exist.
    UnknownDag {
        /// Number as given.
        id: DagId,
    },
    /// The allocation cannot be preempted or moved, in general or for this preemptor.
    NotMovable {
        /// The allocation.
        id: AllocationId,
        /// Description of the reason.
        reason: String,
    },
    /// A reservation keeps nodes for other users during the requested time.
    Reserved {
        /// The reserved nodes, with the names of the reservations.
        nodes: Vec<(NodeId, ReservationName)>,
    },
    /// The reservation does not exist.
    UnknownReservation {
        /// Name as given.
        name: ReservationName,
    },
    /// The reservation changed since the proposer read it.
    ReservationChanged {
        /// Name of the reservation.
        name: ReservationName,
        /// Revision in the command; 0 for none.
        expected: Revision,
        /// Present revision; 0 if there is none.
        current: Revision,
    },
    /// A DAG is refused because of one of its members.
    OfMember {
        /// Name of the member.
        member: String,
        /// Refusal of the member.
        refusal: Box<Refusal>,
    },
    /// The accounting system paused new allocations of the project in the vCluster.
    Paused {
        /// Path of the project.
        project: ProjectPath,
        /// The vCluster.
        vcluster: VclusterName,
    },
}

impl Refusal {
    /// Stable, machine-readable code of the kind. [`Refusal::OfMember`] has the code of the member's refusal.
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
