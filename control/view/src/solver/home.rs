//! Allocations that run only on nodes of their own vCluster: they could not be stopped for the owner of a borrowed
//! node, or are services at their minimum of nodes (`control/placement`, `movement::lend`).

use crate::settings::movement::movement_of;
use lattice_placement::{PendingView, movement::lend::may_borrow_before_submission};
use lattice_quorum_types::{VclusterName, spec::AllocationSpec, vcluster::Vcluster};
use std::collections::BTreeMap;

/// Rule for allocations that must not use borrowed nodes. Any owner may reclaim a node, so the strictest setting of all
/// vClusters applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeRule {
    near_completion_ms: u64,
}

impl HomeRule {
    /// Rule that results from the settings of these vClusters.
    pub fn of(vclusters: &BTreeMap<VclusterName, Vcluster>) -> Self {
        let all = vclusters.values();
        let near = all.map(|known| {
            let movement = movement_of(&known.definition.scheduler);
            movement.preemption.policy.near_completion_ms
        });
        Self {
            near_completion_ms: near.max().unwrap_or(0),
        }
    }

    /// Whether an allocation must not use borrowed nodes. `nodes` is its number of nodes, and `walltime_ms` the
    /// remaining walltime in milliseconds.
    pub fn is_home_only(self, spec: &AllocationSpec, nodes: u32, walltime_ms: Option<u64>) -> bool {
        let nature = (spec.class, spec.sensitive, spec.terms.checkpoint.is_some());
        is_service_minimum(spec, nodes)
            || may_borrow_before_submission(nature, walltime_ms, self.near_completion_ms).is_err()
    }

    /// Sets whether a waiting allocation must be placed on nodes of its own vCluster only.
    pub fn apply(self, spec: &AllocationSpec, pending: &mut PendingView) {
        pending.home_only = self.is_home_only(spec, pending.nodes, pending.walltime_ms);
    }
}

/// Whether `nodes` is at most the minimum number of nodes of a service. Nodes up to the minimum must be of the
/// service's own vCluster; further ones may be borrowed.
pub fn is_service_minimum(spec: &AllocationSpec, nodes: u32) -> bool {
    let scale = spec.terms.scale.as_ref();
    scale.is_some_and(|scale| nodes <= scale.min_nodes)
}
