//! Benchmark of preemption and lending decisions on a large machine, compared with one planning cycle. Prints a table
//! or JSON.
//!
//! `cargo run --profile dist -p lattice-placement --example moves -- --nodes 10000 --pending 10000`
//!
//! - `room`: victims for one job of class 9 that requests 16 nodes, among all running jobs (class 0 to 6).
//! - `lending`: loans and reclaims among vClusters of 500 nodes. A fiftieth of the queue's jobs, spread over the
//!   vClusters, wait for nodes. Each vCluster has lent a tenth of its own nodes.
//! - `view`: one copy of a scheduler's view, with which a victim search begins.
//!
//! One core. `of_cycle` is the median relative to the median of a cold cycle in the same run.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures time; the solver does not"
)]

mod machine;

use anyhow::{Context, ensure};
use clap::Parser;
use lattice_placement::{
    ClusterView, Planner, Policy,
    movement::{
        lend,
        preempt::{self, CheckpointAbility, HolderFacts},
    },
};
use lattice_quorum_types::{
    AllocationId, AllocationState, NodeId, ProjectPath, UnixMillis, VclusterName,
};
use lattice_rng::Mmix;
use machine::{HOUR, NOW, Output, RUNNING, job, quantile_ms, view};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    hint::black_box,
    time::{Duration, Instant},
};

/// Measure preemption and lending decisions.
#[derive(Debug, Parser)]
struct Args {
    /// Number of nodes of the machine.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Number of pending jobs.
    #[arg(long, default_value_t = 10_000)]
    pending: u64,
    /// Number of repetitions of each decision.
    #[arg(long, default_value_t = 21)]
    times: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Number of nodes of one vCluster.
const VCLUSTER_NODES: usize = 500;
/// Id of the preemptor.
const PREEMPTOR: AllocationId = AllocationId(9_000_000);

/// Facts about all running jobs, as input of preemption and lending.
fn running_facts(view: &ClusterView, random: &mut Mmix) -> BTreeMap<AllocationId, HolderFacts> {
    let mut work_of = |id: &AllocationId| {
        let minutes = 1 + random.below(10);
        let work = HolderFacts {
            class: u8::try_from(random.below(7)).unwrap_or(0),
            sensitive: false,
            state: AllocationState::Running,
            since: UnixMillis(NOW.0 - HOUR - random.below(12 * HOUR)),
            ran_before_ms: 0,
            checkpointed_at: (random.below(2) > 0).then(|| UnixMillis(NOW.0 - random.below(HOUR))),
            saves: match random.below(4) {
                0 => CheckpointAbility::Never,
                _ => CheckpointAbility::In {
                    write_ms: minutes * 60_000,
                },
            },
            preempted: 0,
            moved_at: None,
            burst: random.below(10) == 0,
        };
        (*id, work)
    };
    view.running.keys().map(&mut work_of).collect()
}

/// Owner and present user of each node, and the waiting jobs of each vCluster.
struct Sharing {
    places: BTreeMap<NodeId, lend::NodeOwnership>,
    vclusters: BTreeMap<VclusterName, lend::VclusterLending>,
}

fn sharing(view: &ClusterView, random: &mut Mmix) -> anyhow::Result<Sharing> {
    let count = view.nodes.len().div_ceil(VCLUSTER_NODES).max(2);
    let names: Vec<VclusterName> = (0..count)
        .map(|v| VclusterName::new(format!("v{v:02}")))
        .collect::<Result<_, _>>()?;
    let mut places = BTreeMap::new();
    for (n, node) in view.nodes.keys().enumerate() {
        let (home, is_lent) = (n % count, random.below(10) == 0);
        let current = if is_lent { (home + 1) % count } else { home };
        let place = lend::NodeOwnership {
            home: names[home].clone(),
            current: names[current].clone(),
            planned_for: None,
            is_promised: false,
            moved_at: UnixMillis(0),
            reclaimed_at: None,
        };
        places.insert(node.clone(), place);
    }
    let mut vclusters: BTreeMap<VclusterName, lend::VclusterLending> = names
        .iter()
        .map(|name| (name.clone(), lend::VclusterLending::default()))
        .collect();
    let wanting = view.pending.keys().filter(|id| id.0 % 50 == 0);
    for (id, name) in wanting.zip(names.iter().cycle()) {
        let member = vclusters.get_mut(name).context("a vCluster has no name")?;
        member.wanting.push(lend::WaitingJob {
            id: *id,
            saves: true,
            home_only: false,
        });
    }
    Ok(Sharing { places, vclusters })
}

/// Sorted durations of all repetitions.
fn timed<T>(times: usize, decide: impl Fn() -> T) -> Vec<Duration> {
    timed_of(times, || (), |()| decide())
}

/// Sorted durations of all repetitions. `ready` prepares the input of each repetition outside the measured time.
fn timed_of<P, T>(times: usize, ready: impl Fn() -> P, decide: impl Fn(P) -> T) -> Vec<Duration> {
    let once = |_| {
        let ready = ready();
        let start = Instant::now();
        black_box(decide(ready));
        start.elapsed()
    };
    let mut took: Vec<Duration> = (0..times).map(once).collect();
    took.sort_unstable();
    took
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(
        args.nodes > 0,
        "--nodes is 0; the machine needs at least one node"
    );
    ensure!(args.times > 0, "--times is 0; at least one is measured");
    let mut random = Mmix::new(11);
    let mut view = view(args.nodes, args.nodes.div_ceil(125), args.pending, 0)?;
    let work = running_facts(&view, &mut random);
    let Sharing { places, vclusters } = sharing(&view, &mut random)?;
    let mut late = job(PREEMPTOR.0, 0, &mut random, ProjectPath::new("t1/p1")?);
    (late.nodes, late.class, late.sensitive) = (16, 9, false);
    late.walltime_ms = Some(4 * HOUR);
    late.constraints = Default::default();
    let solver = Policy::default();

    let cycle = timed_of(
        args.times,
        || view.clone(),
        |view| Planner::with_policy(view, solver).plan(NOW),
    );
    let copies = timed(args.times, || view.clone());
    let timing = lend::Timing::default();
    let decide = || {
        lend::decide(lend::Input {
            view: &view,
            solver: &solver,
            places: &places,
            vclusters: &vclusters,
            work: &work,
            timing: &timing,
            now: NOW,
        })
    };
    let moves = decide();
    let lending = timed(args.times, decide);
    // No idle node must be available, so all free nodes are out of service.
    for node in view.nodes.values_mut() {
        node.in_service = node.holder.is_some_and(|id| id.0 >= RUNNING);
    }
    view.pending.insert(PREEMPTOR, late);
    let (reserved, borrowed) = (BTreeSet::new(), BTreeSet::new());
    let policy = preempt::Policy::default();
    let choose = || {
        preempt::choose(preempt::Input {
            view: &view,
            solver: &solver,
            job: PREEMPTOR,
            planned_start: None,
            holders: &work,
            reserved: &reserved,
            borrowed: &borrowed,
            policy: &policy,
            now: NOW,
        })
    };
    let victims = choose().context("no victims found, so the preemption cannot be measured")?;
    let room = timed(args.times, choose);

    let base = quantile_ms(&cycle, 0.5);
    let lent = format!(
        "{} loans, {} returns, {} reclaims",
        moves.loans.len(),
        moves.returns.len(),
        moves.reclaims.len()
    );
    let rows = [
        ("cycle", &cycle, String::new()),
        ("view", &copies, String::new()),
        ("lending", &lending, lent),
        ("room", &room, format!("{} victims", victims.victims.len())),
    ];
    if args.output == Output::Table {
        let Args { nodes, pending, .. } = args;
        println!(
            "{nodes} nodes, {pending} pending jobs, {} running jobs\n",
            work.len()
        );
        println!(
            "{:<8} {:>10} {:>10} {:>9}  found",
            "what", "median ms", "p99 ms", "of cycle"
        );
    }
    for (what, took, found) in rows {
        let (median, p99) = (quantile_ms(took, 0.5), quantile_ms(took, 0.99));
        let of_cycle = (median / base * 100.0).round() / 100.0;
        match args.output {
            Output::Json => println!(
                "{}",
                json!({
                    "what": what,
                    "nodes": args.nodes,
                    "pending": args.pending,
                    "running": work.len(),
                    "median_ms": median,
                    "p99_ms": p99,
                    "of_cycle": of_cycle,
                    "found": found,
                })
            ),
            Output::Table => {
                println!("{what:<8} {median:>10.3} {p99:>10.3} {of_cycle:>9.2}  {found}");
            }
        }
    }
    Ok(())
}
