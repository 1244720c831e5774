//! Builders of small views.

use crate::*;
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    limit::{Limits, Usage},
    spec::Constraints,
};
use std::collections::BTreeMap;

pub(super) const NOW: UnixMillis = UnixMillis(1_000_000);
pub(super) const MINUTE: u64 = 60_000;

pub(super) fn id(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

pub(super) fn key(n: u8) -> ConformanceKey {
    ConformanceKey::Known([n; 32])
}

/// A free, healthy node.
pub(super) fn node(group: &str, conformance: ConformanceKey) -> NodeView {
    NodeView {
        version: 7,
        in_service: true,
        promised: false,
        owner: None,
        borrowed: false,
        holder: None,
        facts: NodeFacts {
            liveness: Liveness::Alive,
            health: Health::Healthy,
            group: Some(group.to_owned()),
            conformance,
            gpu_model: Some("NVIDIA H100 80GB HBM3".to_owned()),
            gpu_count: Some(4),
            memory_bytes: Some(1 << 39),
            features: ["nvlink".to_owned()].into(),
            ..NodeFacts::default()
        },
    }
}

/// A job of project `t`.
pub(super) fn job(nodes: u32, walltime_minutes: Option<u64>) -> PendingView {
    PendingView {
        user: "alice".to_owned(),
        project: ProjectPath::new("t").unwrap(),
        nodes,
        walltime_ms: walltime_minutes.map(|m| m * MINUTE),
        class: 5,
        sensitive: false,
        constraints: Constraints::default(),
        submitted_at: UnixMillis(500),
        eligible_at: UnixMillis(500),
        data_ready: None,
        checkpoint_ms: None,
        storage_mb_s: BTreeMap::new(),
        reservation: None,
        home_only: false,
    }
}

/// `groups` groups of `size` equal free nodes, and a tenant `t` without limits.
pub(super) fn machine(groups: usize, size: usize) -> ClusterView {
    let mut view = ClusterView::default();
    for g in 0..groups {
        for n in 0..size {
            view.nodes
                .insert(id(&format!("n{g}-{n:02}")), node(&format!("g{g}"), key(1)));
        }
    }
    level(&mut view, "t", None, 0);
    view
}

pub(super) fn level(view: &mut ClusterView, path: &str, limit: Option<u64>, used: u64) {
    let limits = Limits {
        max_nodes: limit,
        max_concurrent_allocations: None,
    };
    let own = Usage {
        nodes: used,
        allocations: u64::from(used > 0),
    };
    let level = LevelView {
        limits,
        own,
        subtree: Usage::default(),
    };
    view.levels.insert(ProjectPath::new(path).unwrap(), level);
}

pub(super) fn submit(view: &mut ClusterView, number: u64, job: PendingView) {
    view.pending.insert(AllocationId(number), job);
}

/// Gives the nodes to a running allocation that ends in `ends_in` minutes.
pub(super) fn run(view: &mut ClusterView, number: u64, nodes: &[&str], ends_in: Option<u64>) {
    let ends_at = ends_in.map(|minutes| NOW.after(minutes * MINUTE));
    let running = RunningView {
        ends_at,
        ..RunningView::default()
    };
    view.running.insert(AllocationId(number), running);
    for name in nodes {
        view.nodes.get_mut(&id(name)).unwrap().holder = Some(AllocationId(number));
    }
}

pub(super) fn plan(view: &ClusterView) -> Plan {
    Planner::new(view.clone()).plan(NOW)
}

/// Placed allocations with the names of their nodes.
pub(super) fn placed(plan: &Plan) -> Vec<(u64, Vec<String>)> {
    let names = |p: &Placement| p.nodes.iter().map(|n| n.node.to_string()).collect();
    plan.placements.iter().map(|p| (p.id.0, names(p))).collect()
}

pub(super) fn why(plan: &Plan, number: u64) -> Explanation {
    plan.waiting.get(AllocationId(number)).unwrap()
}
