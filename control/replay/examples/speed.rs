//! Time and memory of replays: one row per kind of replay, on one core, as a table or JSON.
//!
//! `cargo run --profile dist -p lattice-replay --example speed -- --only easy`
//!
//! `ricc` is the log of the RICC cluster (447,794 records) with EASY on its 8,192 cores. `easy`, `books` and `quorum`
//! use a generated workload on 10,000 nodes in 80 groups. `easy` schedules with EASY, without groups. `books` schedules
//! with the product and accepts every placement. With `quorum`, the replicated state machine checks every command.
//! `vector` is one weight vector of a sweep: 100,000 jobs on 1,500 nodes in 12 groups. `reserving` is the same with
//! four reservations instead of one. Bytes are the peak memory of the process above its initial memory, per job.
//! Therefore each row is measured in a process of its own.
//!
//! `--swf FILE` writes the workload of `vector` as a log, for a sweep (`examples/sweep.sh`).

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use lattice_placement::{PlannedReservations, Policy};
use lattice_replay::{
    cluster::Cluster,
    generate::{GeneratorSettings, generate},
    live::ProposalCheck,
    run::{Machine, Outcome, ReplayOptions, ReplayScheduler, run},
    schedule::EventOrder,
    textbook::TextbookScheduler,
    trace::{self, Workload},
    workload::{Overrun, fit},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Allocator, the same as in the `lattice` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RICC: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/traces/RICC-2010-2.swf.gz"
);

/// Time and memory of replays.
#[derive(Debug, Parser)]
struct Args {
    /// Run only these rows.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<ReplayKind>,
    /// Number of jobs of generated workloads.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u32,
    /// Offered load: requested work as a part of the capacity of 10,000 nodes.
    #[arg(long, default_value_t = LOAD)]
    load: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write the workload of `vector` to this file, and do nothing else.
    #[arg(long)]
    swf: Option<PathBuf>,
    /// Run one row in this process.
    #[arg(long, hide = true)]
    row: Option<ReplayKind>,
}

/// Load at which 500 jobs wait on average.
const LOAD: f64 = 1.0;
/// Load of the 1,500 nodes at which 100 jobs wait on average.
const VECTOR_LOAD: f64 = 0.97;
const VECTOR_JOBS: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReplayKind {
    Ricc,
    Easy,
    Books,
    Quorum,
    Vector,
    Reserving,
}

impl ReplayKind {
    const ALL: [Self; 6] = [
        Self::Ricc,
        Self::Easy,
        Self::Books,
        Self::Quorum,
        Self::Vector,
        Self::Reserving,
    ];
}

/// Row of the results.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    kind: ReplayKind,
    jobs: usize,
    machine: u64,
    mean_queue: f64,
    utilization: f64,
    read_s: f64,
    serve_s: f64,
    jobs_per_s: f64,
    bytes_a_job: u64,
    plans: Option<u64>,
    commands: Option<u64>,
    schedule: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(kind) = args.row {
        println!("{}", serde_json::to_string(&row(kind, &args)?)?);
        return Ok(());
    }
    if let Some(path) = &args.swf {
        return write_swf(path, &generate(vector_plan(generator_plan(&args))));
    }
    let kinds = match args.only.is_empty() {
        true => ReplayKind::ALL.to_vec(),
        false => args.only.clone(),
    };
    if !args.json {
        println!(
            "| what | jobs | machine | mean queue | in use | read s | serve s | jobs/s | bytes a job | plans | commands |"
        );
        println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    }
    for kind in kinds {
        let row = run_in_process(kind, &args)?;
        match args.json {
            true => println!("{}", serde_json::to_string(&row)?),
            false => print(&row),
        }
    }
    Ok(())
}

fn print(row: &Row) {
    let number = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    println!(
        "| {:?} | {} | {} | {:.1} | {:.1} % | {:.2} | {:.2} | {:.0} | {} | {} | {} |",
        row.kind,
        row.jobs,
        row.machine,
        row.mean_queue,
        100.0 * row.utilization,
        row.read_s,
        row.serve_s,
        row.jobs_per_s,
        row.bytes_a_job,
        number(row.plans),
        number(row.commands)
    );
}

fn run_in_process(kind: ReplayKind, args: &Args) -> anyhow::Result<Row> {
    let name = kind.to_possible_value().context("a name")?;
    let (jobs, load) = (args.jobs.to_string(), args.load.to_string());
    let output = Command::new(std::env::current_exe()?)
        .args(["--row", name.get_name(), "--jobs", &jobs, "--load", &load])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn row(kind: ReplayKind, args: &Args) -> anyhow::Result<Row> {
    let before = peak_bytes()?;
    let begin = Instant::now();
    let (workload, machine, decider, judge) = prepare(kind, args)?;
    let read_s = begin.elapsed().as_secs_f64();
    let how = ReplayOptions {
        judge,
        order: Some(EventOrder::OneByOne),
        ..ReplayOptions::default()
    };
    let begin = Instant::now();
    let Outcome {
        schedule,
        metrics,
        actions: deeds,
        ..
    } = run(&workload, &machine, &decider, &how)?;
    let serve_s = begin.elapsed().as_secs_f64();
    let jobs = workload.jobs.len();
    Ok(Row {
        kind,
        jobs,
        machine: machine.size(),
        mean_queue: metrics.mean_queue,
        utilization: metrics.utilization,
        read_s,
        serve_s,
        jobs_per_s: jobs as f64 / serve_s,
        bytes_a_job: (peak_bytes()? - before) / jobs as u64,
        plans: deeds.as_ref().map(|deeds| deeds.plans),
        commands: deeds.as_ref().map(|deeds| deeds.commands),
        schedule: schedule.digest().to_hex()[..16].to_owned(),
    })
}

fn generator_plan(args: &Args) -> GeneratorSettings {
    GeneratorSettings {
        seed: 1,
        jobs: args.jobs,
        nodes: 10_000,
        load: args.load,
        largest: 512,
        tenants: 20,
    }
}

fn vector_plan(plan: GeneratorSettings) -> GeneratorSettings {
    GeneratorSettings {
        jobs: VECTOR_JOBS,
        nodes: 1_500,
        load: VECTOR_LOAD,
        largest: 128,
        ..plan
    }
}

/// Writes the workload in the Standard Workload Format.
fn write_swf(path: &Path, workload: &Workload) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for job in &workload.jobs {
        let [submit, run, asked] = [job.submit_ms, job.run_ms, job.estimate_ms].map(|ms| ms / 1000);
        let (number, size, user) = (job.number, job.size, job.user);
        writeln!(
            file,
            "{number} {submit} -1 {run} {size} -1 -1 {size} {asked} -1 1 {user} {user} -1 -1 -1 -1 -1"
        )?;
    }
    Ok(file.flush()?)
}

fn prepare(
    kind: ReplayKind,
    args: &Args,
) -> anyhow::Result<(Workload, Machine, ReplayScheduler, ProposalCheck)> {
    let plan = generator_plan(args);
    let lattice = ReplayScheduler::Lattice(None);
    let easy = ReplayScheduler::Textbook(TextbookScheduler::Easy);
    let large = || anyhow::Ok(Machine::Cluster(Box::new(Cluster::dragonfly(80, 125)?)));
    Ok(match kind {
        ReplayKind::Ricc => {
            let mut workload = trace::open(Path::new(RICC), trace::Options::default())?;
            let procs = workload.machine.context("the trace has no machine size")?;
            fit(&mut workload, procs, Overrun::End);
            (workload, Machine::Alike(procs), easy, ProposalCheck::Quorum)
        }
        ReplayKind::Easy => (
            generate(plan),
            Machine::Alike(10_000),
            easy,
            ProposalCheck::Quorum,
        ),
        ReplayKind::Books => (generate(plan), large()?, lattice, ProposalCheck::AcceptAll),
        ReplayKind::Quorum => (generate(plan), large()?, lattice, ProposalCheck::Quorum),
        ReplayKind::Vector | ReplayKind::Reserving => {
            let policy = (kind == ReplayKind::Reserving).then(|| Policy {
                reservations: PlannedReservations::First(4),
                ..Policy::default()
            });
            let machine = Machine::Cluster(Box::new(Cluster::dragonfly(12, 125)?));
            let work = generate(vector_plan(plan));
            (
                work,
                machine,
                ReplayScheduler::Lattice(policy),
                ProposalCheck::AcceptAll,
            )
        }
    })
}

/// Peak memory of this process, bytes.
fn peak_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let Some(kib) = line.and_then(|line| line.split_whitespace().next()) else {
        bail!("/proc/self/status has no VmHWM")
    };
    Ok(kib.parse::<u64>()? << 10)
}
