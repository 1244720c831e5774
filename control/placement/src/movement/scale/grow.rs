//! Node choice for a growing service.
//!
//! The solver chooses as for a separate job of that size: constraints, health, power, and the fewest groups. A service
//! has two further preferences: nodes that its vCluster owns before borrowed ones, and nodes that match the requested
//! spread. Both are expressed by offering the preferred nodes to the solver first.

use super::Source;
use crate::{
    explain::Blocker,
    planner::Planner,
    priority::policy::{PlannedReservations, Policy},
    view::{ClusterView, NodeView, PendingView},
};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, command::ExpectedNode, spec::Spread};
use std::collections::BTreeSet;

/// Request of a growing service.
#[derive(Debug, Clone)]
pub struct GrowthRequest<'a> {
    /// Allocation of the service.
    pub id: AllocationId,
    /// Node requirements and remaining walltime of the service. The number of nodes in the job is ignored.
    pub job: PendingView,
    /// Most nodes to add.
    pub nodes: u32,
    /// Permitted source of the nodes.
    pub from: Source,
    /// Nodes on which the service runs.
    pub runs_on: &'a BTreeSet<NodeId>,
    /// Nodes that have, or had, a rank of this attempt: a node never gets a second rank.
    pub rank_nodes: &'a BTreeSet<NodeId>,
    /// Nodes of the view that belong to another vCluster.
    pub borrowed: &'a BTreeSet<NodeId>,
    /// Nodes held for others: placed or reserved by the last plan.
    pub reserved: &'a BTreeSet<NodeId>,
    /// Solver policy of the vCluster.
    pub solver: &'a Policy,
    /// Present time.
    pub now: UnixMillis,
}

/// Filter of the nodes offered to the solver.
type NodeFilter<'a> = &'a dyn Fn(&NodeId, &NodeView) -> bool;

/// Chooses as many nodes as requested, or all available ones if these are fewer. `view` is a copy of the view of the
/// vCluster.
///
/// # Errors
/// Reason from the solver if no node can be added.
pub fn choose(
    mut view: ClusterView,
    growth: &GrowthRequest<'_>,
) -> Result<Vec<ExpectedNode>, Blocker> {
    let is_own = |name: &NodeId| !growth.borrowed.contains(name);
    let near = spread_filter(&view, growth);
    view.nodes.retain(|name, node| {
        let is_free = node.holder.is_none();
        let may = growth.from == Source::Any || is_own(name);
        is_free && may && !growth.rank_nodes.contains(name) && !growth.reserved.contains(name)
    });
    view.running.clear();
    // Growth adds no allocation.
    for level in view.levels.values_mut() {
        level.limits.max_concurrent_allocations = None;
    }
    let solver = Policy {
        // The service gets the nodes now or not at all.
        reservations: PlannedReservations::First(0),
        ..*growth.solver
    };
    let offers: [NodeFilter<'_>; 4] = [
        &|name, node| is_own(name) && near(node),
        &|name, _| is_own(name),
        &|name, node| is_own(name) || near(node),
        &|_, _| true,
    ];
    let has_last = view.nodes.values().any(NodeView::is_last_resort);
    for with_last in [false, true] {
        if with_last && !has_last {
            break;
        }
        // Each offer contains the previous one, so offers of equal size are equal.
        let mut tried = 0;
        for offer in offers {
            let mut offered = view.clone();
            let may = |node: &NodeView| with_last || !node.is_last_resort();
            offered
                .nodes
                .retain(|name, node| may(node) && offer(name, node));
            let size = offered.nodes.len();
            if size == tried {
                continue;
            }
            tried = size;
            if let Ok(nodes) = solve(offered, growth, &solver, growth.nodes) {
                return Ok(nodes);
            }
        }
    }
    choose_fewer(&view, growth, &solver)
}

/// Chooses the largest number of nodes up to the request: for a service below its minimum, some are better than none.
fn choose_fewer(
    view: &ClusterView,
    growth: &GrowthRequest<'_>,
    solver: &Policy,
) -> Result<Vec<ExpectedNode>, Blocker> {
    let mut wanted = growth.nodes;
    loop {
        let blocker = match solve(view.clone(), growth, solver, wanted) {
            Ok(nodes) => return Ok(nodes),
            Err(blocker) => blocker,
        };
        let short = match blocker {
            Blocker::NotEnoughNodes { short }
            | Blocker::NodesBusy { short }
            | Blocker::NotEnoughPower { short }
            | Blocker::PowerShort { short } => short.max(1),
            _ => return Err(blocker),
        };
        if short >= wanted {
            return Err(blocker);
        }
        wanted -= short;
    }
}

fn solve(
    mut view: ClusterView,
    growth: &GrowthRequest<'_>,
    solver: &Policy,
    nodes: u32,
) -> Result<Vec<ExpectedNode>, Blocker> {
    let job = PendingView {
        nodes,
        // The service already has its bandwidth, which does not depend on its number of nodes.
        storage_mb_s: Default::default(),
        ..growth.job.clone()
    };
    view.pending = [(growth.id, job)].into();
    let mut plan = Planner::with_policy(view, *solver).plan(growth.now);
    match plan.placements.pop() {
        Some(placed) => Ok(placed.nodes),
        None => {
            // There is one job, placed or waiting.
            let why = plan.waiting.get(growth.id);
            Err(why.map_or(Blocker::NoNodesAsked, |why| why.blocker))
        }
    }
}

/// Returns a test whether a node matches the requested spread: in a topology group where the service runs for `Tight`,
/// outside such groups for `Spread`.
fn spread_filter(
    view: &ClusterView,
    growth: &GrowthRequest<'_>,
) -> impl Fn(&NodeView) -> bool + use<> {
    let held = growth.runs_on.iter();
    let groups = held.filter_map(|name| view.nodes.get(name)?.facts.group.clone());
    let groups: BTreeSet<String> = groups.collect();
    let spread = growth.job.constraints.spread;
    move |node| {
        let group = node.facts.group.as_ref();
        let shares = group.is_some_and(|group| groups.contains(group));
        match spread {
            Spread::Tight => shares,
            Spread::Spread => !shares,
            Spread::Any => true,
        }
    }
}
