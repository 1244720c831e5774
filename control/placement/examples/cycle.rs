//! Times planning cycles on a large machine, of which 80 % is busy, and prints one row or JSON.
//!
//! `cargo run --release -p lattice-placement --example cycle -- --nodes 10000 --pending 10000`
//!
//! Cold cycles make everything from a view; warm ones (`--warm`) follow 100 changes: 50 nodes,
//! 25 jobs that left and 25 that came. One core. Jobs ask for 1 to 64 nodes and 1 to 24 hours, one in ten for
//! no end; one in twenty is sensitive; 1,000 projects of 20 tenants, of which one in ten is at its limit.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures time; the solver does not"
)]

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use lattice_placement::{
    Budget, ClusterView, ConformanceKey, Delta, Fraction, Health, LevelView, Liveness, NodeFacts,
    NodeView, PendingView, Plan, Planner, Policy, Reservations, RunningView, Score, TenantView,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    id::InvalidId,
    limit::{Limits, Usage},
    spec::Constraints,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

/// One planning cycle, again and again.
#[derive(Debug, Parser)]
struct Args {
    /// Nodes of the machine.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Topology groups; one for each 125 nodes when not given.
    #[arg(long)]
    groups: Option<usize>,
    /// Jobs that wait.
    #[arg(long, default_value_t = 10_000)]
    pending: u64,
    /// How many blocked jobs get a reservation: a number, or `all`.
    #[arg(long, default_value = "1", value_parser = reservations)]
    reservations: Reservations,
    /// In how many ways jobs ask for memory: each is another request, whose nodes are found for itself.
    #[arg(long, default_value_t = 0)]
    requests: u64,
    /// Plan on after changes, instead of from the view.
    #[arg(long)]
    warm: bool,
    /// Score the queue, and nothing else; implies `--warm`.
    #[arg(long, conflicts_with = "reservations")]
    scores: bool,
    /// Cycles.
    #[arg(long, default_value_t = 21)]
    cycles: usize,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

fn reservations(text: &str) -> Result<Reservations, String> {
    match text {
        "all" => Ok(Reservations::All),
        number => number
            .parse()
            .map(Reservations::First)
            .map_err(|_| format!("{number:?} is neither a number nor `all`")),
    }
}

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const HOUR: u64 = 3_600_000;
/// First number of a running allocation.
const RUNNING: u64 = 10_000_000;
/// Nodes of one running allocation, in the mean.
const RUNNING_NODES: usize = 16;

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

fn node(n: usize, groups: usize, running: u64, random: &mut Numbers) -> NodeView {
    let h100 = n % groups < groups * 3 / 4;
    let busy = random.below(10) < 8;
    // One node in forty differs from its siblings.
    let odd = u8::from(random.below(40) == 0);
    NodeView {
        version: 1,
        in_service: true,
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

/// The n-th one, of those that ask for memory in so many ways.
fn job(n: u64, requests: u64, random: &mut Numbers, project: ProjectPath) -> PendingView {
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

fn view(
    nodes: usize,
    groups: usize,
    pending: u64,
    requests: u64,
) -> Result<ClusterView, InvalidId> {
    let mut random = Numbers(42);
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
        let tenant = ProjectPath::new(format!("t{t}"))?;
        let budget = Budget {
            granted_ms: 100_000 * HOUR,
            used_ms: (40_000 + t * 4_000) * HOUR,
        };
        let had = TenantView {
            share_target: Some(Fraction::millionths(50_000)),
            share_used: Fraction::millionths(5_000 * t as u32),
            gpu_hours: Some(budget),
            node_hours: None,
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

/// What every cycle took, the last plan, and what planner and plan hold of memory.
struct Measured {
    cycles: Vec<Duration>,
    plan: Plan,
    resident_bytes: u64,
}

fn cold(view: &ClusterView, policy: Policy, cycles: usize) -> anyhow::Result<Measured> {
    let mut plan = Plan::default();
    let mut times = Vec::new();
    let mut resident_bytes = 0;
    for n in 0..cycles {
        let view = view.clone();
        let before = resident()?;
        let start = Instant::now();
        let (planner, made) = cold_cycle(view, policy);
        times.push(start.elapsed());
        if n == 0 {
            resident_bytes = resident()?.saturating_sub(before);
        }
        drop(planner);
        plan = made;
    }
    Ok(Measured {
        cycles: times,
        plan,
        resident_bytes,
    })
}

// What is measured; `instructions.sh` finds them by their names.

#[inline(never)]
fn cold_cycle(view: ClusterView, policy: Policy) -> (Planner, Plan) {
    let mut planner = Planner::with_policy(view, policy);
    let plan = planner.plan(NOW);
    (planner, plan)
}

#[inline(never)]
fn warm_cycle(planner: &mut Planner, delta: Delta, now: UnixMillis) -> Plan {
    planner.update(delta);
    planner.plan(now)
}

#[inline(never)]
fn scores_cycle(planner: &mut Planner, now: UnixMillis) -> Vec<(AllocationId, Score)> {
    planner.scores(now)
}

/// What changes between two plans: so many nodes change hands, and so many jobs leave, and come.
const CHANGED_NODES: usize = 50;
const CHANGED_JOBS: usize = 25;

/// The machine stays as busy as it was and the queue as long: what a plan places is not followed up.
fn warm(
    view: &ClusterView,
    policy: Policy,
    cycles: usize,
    requests: u64,
) -> anyhow::Result<Measured> {
    let copy = view.clone();
    let before = resident()?;
    let mut planner = Planner::with_policy(copy, policy);
    let mut plan = planner.plan(NOW);
    let resident_bytes = resident()?.saturating_sub(before);
    let mut random = Numbers(7);
    let names: Vec<NodeId> = view.nodes.keys().cloned().collect();
    let mut times = Vec::new();
    for n in 0..cycles {
        let delta = changes(planner.view(), &names, n as u64, requests, &mut random)?;
        let start = Instant::now();
        let made = warm_cycle(&mut planner, delta, NOW.after(5_000 * (n as u64 + 1)));
        times.push(start.elapsed());
        plan = made;
    }
    Ok(Measured {
        cycles: times,
        plan,
        resident_bytes,
    })
}

fn scores(view: &ClusterView, policy: Policy, cycles: usize) -> Measured {
    let mut planner = Planner::with_policy(view.clone(), policy);
    let plan = planner.plan(NOW);
    let mut cycle = |n: usize| {
        let start = Instant::now();
        black_box(scores_cycle(&mut planner, NOW.after(5_000 * n as u64)));
        start.elapsed()
    };
    Measured {
        cycles: (0..cycles).map(&mut cycle).collect(),
        plan,
        resident_bytes: 0,
    }
}

fn changes(
    view: &ClusterView,
    names: &[NodeId],
    cycle: u64,
    requests: u64,
    random: &mut Numbers,
) -> anyhow::Result<Delta> {
    let mut delta = Delta::default();
    let running = view.running.len() as u64;
    for _ in 0..CHANGED_NODES {
        let name = &names[random.below(names.len() as u64) as usize];
        let busy = random.below(10) < 8;
        let holder = busy.then(|| AllocationId(RUNNING + random.below(running)));
        let changed = view.nodes.get(name).cloned();
        let changed = changed.map(|node| NodeView { holder, ..node });
        delta.nodes.insert(name.clone(), changed);
    }
    let (first, last) = (view.pending.keys().next(), view.pending.keys().last());
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(delta);
    };
    let span = last.0 - first.0 + 1;
    for n in 0..CHANGED_JOBS as u64 {
        let from = AllocationId(first.0 + random.below(span));
        let leaves = view.pending.range(from..).map(|(id, _)| *id);
        if let Some(id) = leaves.clone().find(|id| !delta.pending.contains_key(id)) {
            delta.pending.insert(id, None);
        }
        let path = ProjectPath::new(format!("t{}/p{}", random.below(20), random.below(50)))?;
        let number = last.0 + 1 + n;
        let mut comes = job(number, requests, random, path);
        comes.eligible_at = NOW.after(5_000 * cycle);
        delta.pending.insert(AllocationId(number), Some(comes));
    }
    Ok(delta)
}

/// Resident memory of this process, bytes.
fn resident() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text
        .split(' ')
        .nth(1)
        .context("/proc/self/statm has no second field")?;
    Ok(pages.parse::<u64>()? * 4096)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(
        args.nodes > 0,
        "--nodes is 0; the machine needs at least one node"
    );
    ensure!(args.cycles > 0, "--cycles is 0; at least one is measured");
    let groups = args.groups.unwrap_or_else(|| args.nodes.div_ceil(125));
    ensure!(groups > 0, "--groups is 0; nodes lie in at least one group");
    let policy = Policy {
        reservations: args.reservations,
        checkpoint_bytes_s: Some(200 << 30),
        ..Policy::default()
    };
    let view = view(args.nodes, groups, args.pending, args.requests)?;
    let mut measured = match (args.scores, args.warm) {
        (true, _) => scores(&view, policy, args.cycles),
        (false, true) => warm(&view, policy, args.cycles, args.requests)?,
        (false, false) => cold(&view, policy, args.cycles)?,
    };
    measured.cycles.sort_unstable();
    let at = |part: f64| {
        let place = ((measured.cycles.len() - 1) as f64 * part).round() as usize;
        measured.cycles[place].as_secs_f64() * 1e3
    };
    let plan = &measured.plan;
    let backfilled = plan.placements.iter().filter(|p| p.backfilled).count();
    let row = json!({
        "nodes": args.nodes,
        "groups": groups,
        "pending": args.pending,
        "requests": args.requests,
        "warm": args.warm || args.scores,
        "only_scores": args.scores,
        "cycles": args.cycles,
        "median_ms": (at(0.5) * 1e3).round() / 1e3,
        "p99_ms": (at(0.99) * 1e3).round() / 1e3,
        "placed": plan.placements.len(),
        "backfilled": backfilled,
        "reserved": plan.reservations.len(),
        "waiting": plan.waiting.len(),
        "bytes_per_job": measured.resident_bytes / args.pending.max(1),
    });
    match args.output {
        Output::Json => println!("{row}"),
        Output::Table => {
            let columns = row.as_object().context("a row is an object")?;
            let width = |name: &str| name.len().max(9);
            for name in columns.keys() {
                print!("{name:>w$} ", w = width(name));
            }
            println!();
            for (name, value) in columns {
                print!("{:>w$} ", value.to_string(), w = width(name));
            }
            println!();
        }
    }
    Ok(())
}
