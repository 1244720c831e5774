//! Benchmark of planning cycles on a large machine that is 80 % busy. Prints a table row or JSON.
//!
//! `cargo run --profile dist -p lattice-placement --example cycle -- --nodes 10000 --pending 10000`
//!
//! Cold cycles build everything from a view. Warm cycles (`--warm`) apply 100 changes: 50 nodes, 25 jobs that leave and
//! 25 that arrive. One core. Jobs request 1 to 64 nodes and 1 to 24 hours, one in ten has no walltime, and one in
//! twenty is sensitive. There are 1,000 projects of 20 tenants, and one tenant in ten is at its limit.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures time; the solver does not"
)]

mod machine;

use anyhow::{Context, ensure};
use clap::Parser;
use lattice_placement::{
    ClusterView, Delta, NodeView, Plan, PlannedReservations, Planner, Policy, Score,
};
use lattice_quorum_types::{AllocationId, NodeId, ProjectPath, UnixMillis};
use lattice_rng::Mmix;
use machine::{NOW, Output, RUNNING, job, quantile_ms, view};
use serde_json::json;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Measure planning cycles.
#[derive(Debug, Parser)]
struct Args {
    /// Number of nodes of the machine.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Number of topology groups; by default one per 125 nodes.
    #[arg(long)]
    groups: Option<usize>,
    /// Number of pending jobs.
    #[arg(long, default_value_t = 10_000)]
    pending: u64,
    /// Number of blocked jobs that get a reservation, or `all`.
    #[arg(long, default_value = "1", value_parser = reservations)]
    reservations: PlannedReservations,
    /// Number of distinct memory requests; eligible nodes are computed for each.
    #[arg(long, default_value_t = 0)]
    requests: u64,
    /// Plan after changes, not from a new view.
    #[arg(long)]
    warm: bool,
    /// Score the queue only; implies `--warm`.
    #[arg(long, conflicts_with = "reservations")]
    scores: bool,
    /// Number of cycles.
    #[arg(long, default_value_t = 21)]
    cycles: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

fn reservations(text: &str) -> Result<PlannedReservations, String> {
    match text {
        "all" => Ok(PlannedReservations::All),
        number => number
            .parse()
            .map(PlannedReservations::First)
            .map_err(|_| format!("{number:?} is neither a number nor `all`")),
    }
}

/// Duration of every cycle, the last plan, and the memory that planner and plan use.
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

// The measured functions; `instructions.sh` finds them by name.

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

/// Number of nodes that change holder between two plans.
const CHANGED_NODES: usize = 50;
/// Number of jobs that leave, and number of jobs that arrive, between two plans.
const CHANGED_JOBS: usize = 25;

/// Measures warm cycles. The machine stays equally busy and the queue equally long, because placements are not applied.
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
    let mut random = Mmix::new(7);
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
    random: &mut Mmix,
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
    ensure!(
        groups > 0,
        "--groups is 0; the machine needs at least one topology group"
    );
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
        "median_ms": quantile_ms(&measured.cycles, 0.5),
        "p99_ms": quantile_ms(&measured.cycles, 0.99),
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
