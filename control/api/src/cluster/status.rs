//! Cluster status: counts of nodes and allocations.

use lattice_quorum_types::Revision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Header of every answer: milliseconds since the answering control last received data from the quorum. The answer may
/// be that old.
pub const VIEW_AGE_HEADER: &str = "lattice-view-age-ms";

/// Counts of nodes and allocations, the state of the answering control, and the caller's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Cluster name.
    pub cluster: String,
    /// Version of this control service.
    pub version: String,
    /// Revision of the view that the answer is based on.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Milliseconds since this control last received data from the quorum; 2^64-1 if it never did.
    pub view_age_ms: u64,
    /// Whether this control is active: it holds the lease of the dispatcher or of a vCluster's scheduler.
    pub active: bool,
    /// Registered nodes.
    pub nodes: u64,
    /// Nodes held by an allocation.
    pub nodes_held: u64,
    /// Nodes by liveness.
    pub nodes_by_liveness: BTreeMap<String, u64>,
    /// Nodes by lifecycle.
    pub nodes_by_lifecycle: BTreeMap<String, u64>,
    /// Gossip cells that this control has joined, with their numbers of present agents.
    pub cells: BTreeMap<String, u64>,
    /// Allocations by state, including ended ones. While the quorum does not answer, only allocations that have not
    /// ended: a missing state is then unknown, not zero.
    pub allocations_by_state: BTreeMap<String, u64>,
    /// Compared nodes that differ from their baseline or, without a baseline, from the majority of their cohort. Left
    /// out if no node was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_drifted: Option<u64>,
    /// Nodes without a known comparison result: not compared yet, without a reference, or with an unknown class.
    #[serde(default)]
    pub nodes_not_compared: u64,
    /// Name of the caller, from the token.
    pub principal: String,
    /// Roles of the caller.
    pub roles: Vec<String>,
}
