//! Work that keeps to the nodes of its own vCluster: nobody could stop it for the owner of others, or its rule
//! says so (`control/placement`, `movement::lend`).

use crate::view::View;
use lattice_placement::{PendingView, movement::lend::may_run_borrowed};
use lattice_quorum_types::spec::AllocationSpec;

/// By what it is judged. Which owner would ask for its node is not known beforehand: the strictest of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    near_completion_ms: u64,
}

impl Home {
    /// By what is set in a view.
    pub(crate) fn of(view: &View) -> Self {
        let all = view.vclusters.keys();
        let near = all.map(|name| view.movement_of(name).room.policy.near_completion_ms);
        Self {
            near_completion_ms: near.max().unwrap_or(0),
        }
    }

    /// Whether such work keeps to them, for so many nodes and with so much walltime left, milliseconds.
    pub(crate) fn keeps(self, spec: &AllocationSpec, nodes: u32, walltime_ms: Option<u64>) -> bool {
        let nature = (spec.class, spec.sensitive, spec.terms.checkpoint.is_some());
        is_least_of_service(spec, nodes)
            || may_run_borrowed(nature, walltime_ms, self.near_completion_ms).is_err()
    }

    /// Tells the solver of it.
    pub(crate) fn tell(self, spec: &AllocationSpec, pending: &mut PendingView) {
        pending.home_only = self.keeps(spec, pending.nodes, pending.walltime_ms);
    }
}

/// Whether so many nodes are no more than the least that a service runs on: those come from its home, and what it
/// has beyond may lie anywhere.
pub(crate) fn is_least_of_service(spec: &AllocationSpec, nodes: u32) -> bool {
    let scale = spec.terms.scale.as_ref();
    scale.is_some_and(|scale| nodes <= scale.min_nodes)
}
