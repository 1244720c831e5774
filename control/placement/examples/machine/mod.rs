//! Large machine, 80 % busy, with its queue, for benchmarks.

use clap::ValueEnum;
use lattice_placement::{
    Budget, ClusterView, ConformanceKey, Fraction, Health, LevelView, Liveness, NodeFacts,
    NodeView, PendingView, RunningView, TenantView,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    id::InvalidId,
    limit::{Limits, Usage},
    spec::Constraints,
};
use lattice_rng::Mmix;
use std::{collections::BTreeMap, time::Duration};

/// Output format of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

pub const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
pub const HOUR: u64 = 3_600_000;
/// First id of running allocations.
pub const RUNNING: u64 = 10_000_000;
/// Mean number of nodes of a running allocation.
const RUNNING_NODES: usize = 16;

fn node(n: usize, groups: usize, running: u64, random: &mut Mmix) -> NodeView {
    let h100 = n % groups < groups * 3 / 4;
    let busy = random.below(10) < 8;
    // One node in forty differs from its siblings.
    let odd = u8::from(random.below(40) == 0);
    NodeView {
        version: 1,
        in_service: true,
        promised: false,
        owner: None,
        borrowed: false,
        holder: busy.then(|| AllocationId(RUNNING + random.below(running))),
        facts: NodeFacts {
            liveness: Liveness::Alive,
            health: Health::Healthy,
            group: Some(format!("g{:03}", n % groups)),
            conformance: ConformanceKey::Known([2 * u8::from(h100) + odd; 32]),
            gpu_model: Some(if h100 { "H100" } else { "A100" }.to_owned()),
            gpu_count: Some(4),
            gpu_memory_bytes: Some(4 * (80 << 30)),
            memory_bytes: Some((512 << 30) + random.below(1 << 20)),
            features: ["nvlink".to_owned()].into(),
            ..NodeFacts::default()
        },
    }
}

/// The n-th job, with one of `requests` distinct memory requests.
pub fn job(n: u64, requests: u64, random: &mut Mmix, project: ProjectPath) -> PendingView {
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
    let constraints = Constraints {
        memory_bytes: n.checked_rem(requests).map(|way| (1 + way) << 20),
        ..constraints
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
        data_ready: (random.below(2) > 0)
            .then(|| Fraction::millionths(random.below(1_000_000) as u32)),
        checkpoint_ms: None,
        storage_mb_s: BTreeMap::new(),
        reservation: None,
        home_only: false,
    }
}

pub fn view(
    nodes: usize,
    groups: usize,
    pending: u64,
    requests: u64,
) -> Result<ClusterView, InvalidId> {
    let mut random = Mmix::new(42);
    let mut view = ClusterView::default();
    let running = (nodes * 4 / 5 / RUNNING_NODES).max(1) as u64;
    for n in 0..nodes {
        view.nodes.insert(
            NodeId::new(format!("n{n:05}"))?,
            node(n, groups, running, &mut random),
        );
    }
    for n in 0..running {
        let held = RunningView {
            ends_at: Some(NOW.after(random.below(24 * HOUR))),
            walltime_ms: Some(24 * HOUR),
            ..RunningView::default()
        };
        view.running.insert(AllocationId(RUNNING + n), held);
    }
    let projects = projects(&mut view)?;
    for n in 0..pending {
        let project = projects[n as usize % projects.len()].clone();
        let job = job(n, requests, &mut random, project);
        view.pending.insert(AllocationId(n + 1), job);
    }
    Ok(view)
}

/// 20 tenants with 50 projects each; a tenth of the tenants is at its limit.
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
        let tenant = ProjectPath::new(format!("t{t}"))?;
        let budget = Budget {
            granted_ms: 100_000 * HOUR,
            used_ms: (40_000 + t * 4_000) * HOUR,
        };
        let had = TenantView {
            share_target: Some(Fraction::millionths(50_000)),
            share_used: Fraction::millionths(5_000 * t as u32),
            gpu_hours: Some(budget),
            ..TenantView::default()
        };
        view.tenants.insert(tenant.clone(), had);
        view.levels.insert(tenant, level(used));
        for p in 0..50 {
            let path = ProjectPath::new(format!("t{t}/p{p}"))?;
            view.levels.insert(path.clone(), level(used / 50));
            projects.push(path);
        }
    }
    Ok(projects)
}

/// Quantile `part` (0 to 1) of sorted times, ms.
pub fn quantile_ms(times: &[Duration], part: f64) -> f64 {
    let place = (times.len().saturating_sub(1) as f64 * part).round() as usize;
    let ms = times
        .get(place)
        .map_or(0.0, |time| time.as_secs_f64() * 1e3);
    (ms * 1e3).round() / 1e3
}
