//! Work that runs on nodes of its own vCluster only: it could not be stopped for the owner of a borrowed node, or a
//! rule binds it (`control/placement`, `movement::lend`).

use crate::settings::movement::movement_of;
use lattice_placement::{PendingView, movement::lend::may_run_borrowed};
use lattice_quorum_types::{VclusterName, spec::AllocationSpec, vcluster::Vcluster};
use std::collections::BTreeMap;

/// The rule. It is not known beforehand which owner will ask for a node, so the strictest setting of all vClusters holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeRule {
    near_completion_ms: u64,
}

impl HomeRule {
    /// By the settings of these vClusters.
    pub fn of(vclusters: &BTreeMap<VclusterName, Vcluster>) -> Self {
        let all = vclusters.values();
        let near = all.map(|known| {
            let movement = movement_of(&known.definition.scheduler);
            movement.room.policy.near_completion_ms
        });
        Self {
            near_completion_ms: near.max().unwrap_or(0),
        }
    }

    /// Whether such work keeps to them, for so many nodes and with so much walltime left, milliseconds.
    pub fn keeps(self, spec: &AllocationSpec, nodes: u32, walltime_ms: Option<u64>) -> bool {
        let nature = (spec.class, spec.sensitive, spec.terms.checkpoint.is_some());
        is_least_of_service(spec, nodes)
            || may_run_borrowed(nature, walltime_ms, self.near_completion_ms).is_err()
    }

    /// Marks a waiting allocation that keeps to the vCluster's own nodes.
    pub fn tell(self, spec: &AllocationSpec, pending: &mut PendingView) {
        pending.home_only = self.keeps(spec, pending.nodes, pending.walltime_ms);
    }
}

/// Whether so many nodes are no more than the least that a service runs on: those come from its home, and what it
/// has beyond may lie anywhere.
pub fn is_least_of_service(spec: &AllocationSpec, nodes: u32) -> bool {
    let scale = spec.terms.scale.as_ref();
    scale.is_some_and(|scale| nodes <= scale.min_nodes)
}
