//! The cluster in numbers.

use lattice_quorum_types::Revision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Header of every answer: milliseconds since the control that gives it last heard the quorum. What
/// it shows may be that old.
pub const VIEW_AGE_HEADER: &str = "lattice-view-age-ms";

/// Counts and the state of the services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// The cluster's name.
    pub cluster: String,
    /// Version of this control service.
    pub version: String,
    /// Revision of the view this was made from.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Milliseconds since the quorum was last heard.
    pub view_age_ms: u64,
    /// Whether this control acts: it dispatches, or schedules a vCluster (holds such a lease).
    pub leader: bool,
    /// Registered nodes.
    pub nodes: u64,
    /// Nodes held by an allocation.
    pub nodes_held: u64,
    /// Nodes by liveness.
    pub nodes_by_liveness: BTreeMap<String, u64>,
    /// Nodes by lifecycle.
    pub nodes_by_lifecycle: BTreeMap<String, u64>,
    /// Gossip cells with their members seen.
    pub cells: BTreeMap<String, u64>,
    /// Allocations by state, ended ones included. While the quorum does not answer only those that
    /// have not ended: a state that is not here is not known to be empty.
    pub allocations_by_state: BTreeMap<String, u64>,
    /// Nodes that differ from their baseline, or else from the majority of their cohort, of those that
    /// were judged; left out while none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_drifted: Option<u64>,
    /// Nodes of which it is not known, or not yet, whether they differ.
    #[serde(default)]
    pub nodes_not_judged: u64,
    /// Who asks, as the token says.
    pub principal: String,
    /// With these roles.
    pub roles: Vec<String>,
}
