//! Scaling inputs from the records of a service and its nodes.

use lattice_placement::movement::scale::{Damping, HeldNode, ScalePolicy};
use lattice_quorum_types::{
    Allocation, NodeId, ProjectPath, UnixMillis,
    allocation::{Rank, RankPhase},
    limit::Resource,
    node::Node,
};
use lattice_view::View;
use std::collections::BTreeMap;

const MILLION: f64 = 1e6;

/// Scaling policy of a service: its own settings, then those of its vCluster. `None` if the service does not scale.
pub(super) fn policy(service: &Allocation, vcluster: &Damping) -> Option<ScalePolicy> {
    let scale = service.spec.terms.scale.as_ref()?;
    let pace = &scale.pace;
    let threshold = pace.down_threshold_ppm.map(|ppm| f64::from(ppm) / MILLION);
    let damping = Damping {
        threshold: threshold.unwrap_or(vcluster.threshold),
        up_window_ms: pace.up_window_ms.unwrap_or(vcluster.up_window_ms),
        down_window_ms: pace.down_window_ms.unwrap_or(vcluster.down_window_ms),
        cooldown_ms: pace.cooldown_ms.unwrap_or(vcluster.cooldown_ms),
        ..vcluster.clone()
    };
    Some(ScalePolicy {
        min_nodes: scale.min_nodes,
        max_nodes: scale.max_nodes,
        target: scale.target_micro as f64 / MILLION,
        damping: damping.with_fitting_interval(),
    })
}

fn record<'a>(view: &'a View, node: &NodeId) -> Option<&'a Node> {
    view.node(node)?.record.as_ref()
}

fn is_reclaimed(view: &View, node: &NodeId) -> bool {
    record(view, node).is_some_and(|record| record.reclaimed_at.is_some())
}

/// Nodes that the service holds, each with its load if the node was queried.
pub(super) fn held(
    view: &View,
    service: &Allocation,
    loads: &BTreeMap<NodeId, f64>,
    now: UnixMillis,
) -> Vec<HeldNode> {
    let of = |rank: &Rank| {
        if matches!(rank.phase, RankPhase::Left { .. }) {
            return None;
        }
        let home = record(view, &rank.node).map(|record| &record.home);
        Some(HeldNode {
            node: rank.node.clone(),
            // A node without a running rank counts as the newest.
            added_at: rank.phase.running_since().unwrap_or(now),
            borrowed: home.is_some_and(|home| *home != service.spec.vcluster),
            leaving: !rank.phase.stays() || is_reclaimed(view, &rank.node),
            load: loads.get(&rank.node).copied(),
        })
    };
    service.ranks.iter().filter_map(of).collect()
}

/// Nodes that the service releases because their owners reclaim them. Empty if no other node would remain, because the
/// reclaim itself handles that case, or if the service is not running.
pub(super) fn reclaimed_nodes(view: &View, service: &Allocation) -> Vec<NodeId> {
    let resizable = service.state == lattice_quorum_types::AllocationState::Running;
    let staying = service.ranks.iter().filter(|rank| rank.phase.stays());
    let (back, rest): (Vec<&Rank>, Vec<&Rank>) =
        staying.partition(|rank| is_reclaimed(view, &rank.node));
    if !resizable || rest.is_empty() {
        return Vec::new();
    }
    back.into_iter().map(|rank| rank.node.clone()).collect()
}

/// When nodes of a service last changed, as far as its record shows, by the clocks of the nodes. A service starts with
/// its minimum number of nodes, and ranks keep their positions, so later positions were added later. A restart counts
/// as a change.
pub(super) fn changed_at(service: &Allocation, now: UnixMillis) -> Option<UnixMillis> {
    let scale = service.spec.terms.scale.as_ref()?;
    let first = usize::try_from(scale.min_nodes).unwrap_or(usize::MAX);
    let came = service.ranks.iter().skip(first);
    let came = came.map(|rank| match &rank.phase {
        RankPhase::Assigned => now,
        phase => phase.running_since().unwrap_or(now),
    });
    let went = service.ranks.iter().filter_map(|rank| match &rank.phase {
        RankPhase::Left { at, .. } => Some(*at),
        RankPhase::Leaving { .. } => Some(now),
        _ => None,
    });
    let anew = service.attempt_began_at().filter(|_| service.attempt > 1);
    came.chain(went).chain(anew).max()
}

/// Number of further nodes allowed by the limits of the project and its ancestors; `u32::MAX` without a limit.
pub(super) fn headroom(view: &View, project: &ProjectPath) -> u32 {
    let rules = view.system.limit_policy.rules();
    let levels = view
        .projects
        .values()
        .filter(|p| project.is_within(&p.path));
    let left = levels.filter_map(|p| {
        let limit = p.limits.get(Resource::Nodes)?;
        let used = rules.counted(&p.path, p.own, p.subtree, p.path == *project)?;
        Some(limit.saturating_sub(used.nodes))
    });
    left.min()
        .map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX))
}
