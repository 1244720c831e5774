//! Benchmark: one scheduling cycle of Slurm and one of Lattice, on the same queue and machine, one after the other.
//!
//! `cargo run --profile dist -p lattice-placement --example slurm_comparison` (Debian: slurm-wlm; as root)
//!
//! The Slurm controller is the real one. Its nodes are `State=CLOUD` and are "resumed" by `true`: jobs are selected,
//! placed and planned, but nothing is launched. Both sides allocate whole nodes (`OverSubscribe=EXCLUSIVE`). Leaf
//! switches of 125 nodes in Slurm correspond to topology groups of 125 nodes in Lattice. Jobs are served in order of
//! submission, and request log-uniformly 1 to 256 nodes and 1 to 48 hours.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a comparison starts programs and measures time; the solver does not"
)]

mod lattice_side;
mod slurm;

use anyhow::{Context, ensure};
use clap::Parser;
use lattice_rng::Mmix;
use slurm::{Depth, Select};
use std::path::PathBuf;

/// Compare the backfill cycle of Slurm with the planning cycle of Lattice.
#[derive(Debug, Parser)]
struct Args {
    /// Machine sizes in nodes, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    nodes: Vec<u32>,
    /// Number of jobs pending when the first cycle begins.
    #[arg(long, default_value_t = 1000)]
    jobs: u64,
    /// Longest wait for one Slurm cycle, seconds.
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

/// Request of one job.
#[derive(Debug, Clone, Copy)]
struct Job {
    nodes: u32,
    minutes: u64,
}

/// One row of the table.
struct Row {
    nodes: u32,
    scheduler: String,
    cycle_ms: f64,
    jobs_examined: u64,
    started: u64,
    nodes_busy: u64,
}

/// Generates the same jobs each time: log-uniform in nodes and minutes.
fn jobs(count: u64, most_nodes: u32) -> Vec<Job> {
    let mut random = Mmix::new(2205);
    let mut log_uniform =
        |least: f64, most: f64| (random.part() * (most / least).ln()).exp() * least;
    let job = |_| Job {
        nodes: (log_uniform(1.0, 257.0) as u32).clamp(1, 256.min(most_nodes)),
        minutes: log_uniform(60.0, 48.0 * 60.0) as u64,
    };
    (0..count).map(job).collect()
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(
        args.jobs > 0,
        "--jobs is 0; at least one job must be pending"
    );
    let version =
        slurm::version().context("slurmctld does not answer; Debian has it in slurm-wlm")?;
    println!(
        "{version}; exclusive nodes on both sides; {} pending jobs",
        args.jobs
    );
    println!(
        "{:>6}  {:<34} {:>10} {:>9} {:>8} {:>11}",
        "nodes", "", "cycle ms", "looked at", "started", "nodes busy"
    );
    let print = |row: Row| {
        println!(
            "{:>6}  {:<34} {:>10.1} {:>9} {:>8} {:>11}",
            row.nodes, row.scheduler, row.cycle_ms, row.jobs_examined, row.started, row.nodes_busy
        );
    };
    let folder = PathBuf::from(format!(
        "{}/slurm-comparison",
        std::env::temp_dir().display()
    ));
    for nodes in args.nodes {
        ensure!(nodes > 0, "--nodes has a 0; a machine has nodes");
        let jobs = jobs(args.jobs, nodes);
        for row in lattice_side::rows(nodes, &jobs)? {
            print(row);
        }
        for select in [Select::Tres, Select::Linear] {
            for depth in [Depth::Default, Depth::All] {
                print(slurm::row(
                    &folder,
                    nodes,
                    &jobs,
                    select,
                    depth,
                    args.patience,
                )?);
            }
        }
    }
    Ok(())
}
