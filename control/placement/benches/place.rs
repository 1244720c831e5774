//! Times one planning cycle on a large machine and prints one table.
//!
//! `cargo bench -p lattice-placement --bench place`
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures time; the solver does not"
)]

use lattice_placement::{
    ClusterView, ConformanceKey, Delta, Health, LevelView, Liveness, NodeFacts, NodeView,
    PendingView, Plan, Planner, RunningView,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    id::InvalidId,
    limit::{Limits, Usage},
    spec::Constraints,
};
use std::time::{Duration, Instant};

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const HOUR: u64 = 3_600_000;
/// First number of a running allocation.
const RUNNING: u64 = 10_000_000;
const REPEATS: usize = 7;

/// The same numbers each time: Knuth's MMIX generator, upper bits.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn node(n: usize, groups: usize, random: &mut Numbers) -> NodeView {
    let h100 = n % groups < groups * 3 / 4;
    let busy = random.below(10) < 8;
    // One node in forty differs from its siblings.
    let odd = u8::from(random.below(40) == 0);
    NodeView {
        version: 1,
        in_service: true,
        owner: None,
        holder: busy.then(|| AllocationId(RUNNING + random.below(500))),
        facts: NodeFacts {
            liveness: Liveness::Alive,
            health: Health::Healthy,
            group: Some(format!("g{:03}", n % groups)),
            conformance: ConformanceKey::Known([2 * u8::from(h100) + odd; 32]),
            gpu_model: Some(if h100 { "H100" } else { "A100" }.to_owned()),
            gpu_count: Some(4),
            memory_bytes: Some((512 << 30) + random.below(1 << 20)),
            features: ["nvlink".to_owned()].into(),
            ..NodeFacts::default()
        },
    }
}

fn job(random: &mut Numbers, project: ProjectPath) -> PendingView {
    let constraints = match random.below(4) {
        0 => Constraints {
            gpu_models: vec!["h100".into()],
            ..Constraints::default()
        },
        1 => Constraints {
            gpus_per_node: Some(4),
            ..Constraints::default()
        },
        _ => Constraints::default(),
    };
    let eligible_at = UnixMillis(NOW.0 - random.below(48 * HOUR));
    PendingView {
        user: "alice".to_owned(),
        project,
        nodes: 1 + u32::try_from(random.below(64)).unwrap_or(0),
        walltime_ms: (random.below(10) > 0).then(|| HOUR + random.below(23 * HOUR)),
        class: u8::try_from(random.below(10)).unwrap_or(0),
        sensitive: random.below(20) == 0,
        constraints,
        submitted_at: eligible_at,
        eligible_at,
    }
}

fn view(nodes: usize, groups: usize, pending: u64) -> Result<ClusterView, InvalidId> {
    let mut random = Numbers(42);
    let mut view = ClusterView::default();
    for n in 0..nodes {
        view.nodes.insert(
            NodeId::new(format!("n{n:05}"))?,
            node(n, groups, &mut random),
        );
    }
    for n in 0..500 {
        let ends_at = Some(NOW.after(random.below(24 * HOUR)));
        view.running
            .insert(AllocationId(RUNNING + n), RunningView { ends_at });
    }
    let projects = projects(&mut view)?;
    for n in 0..pending {
        let project = projects[n as usize % projects.len()].clone();
        view.pending
            .insert(AllocationId(n + 1), job(&mut random, project));
    }
    Ok(view)
}

/// 20 tenants of 50 projects each; a tenth of the tenants is full.
fn projects(view: &mut ClusterView) -> Result<Vec<ProjectPath>, InvalidId> {
    let mut projects = Vec::new();
    for t in 0..20 {
        let used = if t % 10 == 0 { 5_000 } else { 400 };
        let level = |used| LevelView {
            limits: Limits {
                max_nodes: Some(5_000),
                max_concurrent_allocations: None,
            },
            own: Usage {
                nodes: used,
                allocations: 0,
            },
            subtree: Usage::default(),
        };
        view.levels
            .insert(ProjectPath::new(format!("t{t}"))?, level(used));
        for p in 0..50 {
            let path = ProjectPath::new(format!("t{t}/p{p}"))?;
            view.levels.insert(path.clone(), level(used / 50));
            projects.push(path);
        }
    }
    Ok(projects)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn cold(view: &ClusterView) -> (f64, Plan) {
    let mut plan = Plan::default();
    let times = (0..REPEATS).map(|_| {
        let view = view.clone();
        let start = Instant::now();
        plan = Planner::new(view).plan(NOW);
        start.elapsed()
    });
    (median(times.collect()), plan)
}

/// 100 jobs leave and 100 nodes change hands between two plans.
fn warm(view: &ClusterView) -> f64 {
    let mut planner = Planner::new(view.clone());
    planner.plan(NOW);
    let mut random = Numbers(7);
    let names: Vec<NodeId> = view.nodes.keys().cloned().collect();
    let times = (0..REPEATS).map(|_| {
        let mut delta = Delta::default();
        for _ in 0..100 {
            let name = &names[random.below(names.len() as u64) as usize];
            let holder = Some(AllocationId(RUNNING + random.below(500)));
            let changed = planner.view().nodes.get(name).cloned();
            delta.nodes.insert(
                name.clone(),
                changed.map(|node| NodeView { holder, ..node }),
            );
            delta.pending.insert(
                AllocationId(1 + random.below(view.pending.len() as u64)),
                None,
            );
        }
        let start = Instant::now();
        planner.update(delta);
        planner.plan(NOW);
        start.elapsed()
    });
    median(times.collect())
}

fn main() -> Result<(), InvalidId> {
    println!(
        "one cycle, one core, median of {REPEATS}; 80 % of the nodes busy, jobs of 1-64 nodes"
    );
    println!(
        "{:>7} {:>7} {:>8} {:>10} {:>10} {:>8} {:>10} {:>10}",
        "nodes", "groups", "pending", "cold ms", "warm ms", "placed", "backfilled", "waiting"
    );
    for (nodes, groups, pending) in [
        (10_000, 80, 1_000),
        (10_000, 80, 10_000),
        (10_000, 80, 100_000),
        (50_000, 400, 50_000),
    ] {
        let view = view(nodes, groups, pending)?;
        let (cold, plan) = cold(&view);
        let warm = warm(&view);
        let backfilled = plan.placements.iter().filter(|p| p.backfilled).count();
        let (placed, waiting) = (plan.placements.len(), plan.explanations.len());
        println!(
            "{nodes:>7} {groups:>7} {pending:>8} {cold:>10.2} {warm:>10.2} {placed:>8} \
             {backfilled:>10} {waiting:>10}"
        );
    }
    Ok(())
}
