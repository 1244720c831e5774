//! One scheduling cycle of Slurm and of ours, on the same queue and the same machine, one after the other.
//!
//! `cargo run --profile dist -p lattice-placement --example beside_slurm` (Debian: slurm-wlm; as root)
//!
//! Slurm's controller is the real one. Its nodes are `State=CLOUD` and are "resumed" by `true`: jobs are
//! selected, placed and planned, and nothing is launched. They are whole nodes on both sides
//! (`OverSubscribe=EXCLUSIVE`), in leaf switches of 125 nodes where we have groups of as many, and served in
//! the order in which they came. Jobs ask for log-uniform 1 to 256 nodes and 1 to 48 hours.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a comparison starts programs and measures time; the solver does not"
)]

mod ours;
mod slurm;

use anyhow::{Context, ensure};
use clap::Parser;
use lattice_rng::Mmix;
use slurm::{Depth, Select};
use std::path::PathBuf;

/// Slurm's backfill cycle beside ours.
#[derive(Debug, Parser)]
struct Args {
    /// Nodes of the machine, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    nodes: Vec<u32>,
    /// Jobs that wait when the first cycle begins.
    #[arg(long, default_value_t = 1000)]
    jobs: u64,
    /// How long one of Slurm's cycles is waited for, seconds.
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

/// What one job asks for.
#[derive(Debug, Clone, Copy)]
struct Job {
    nodes: u32,
    minutes: u64,
}

/// One row of the table.
struct Row {
    nodes: u32,
    who: String,
    cycle_ms: f64,
    looked_at: u64,
    started: u64,
    busy: u64,
}

/// The same jobs each time: log-uniform in nodes and minutes.
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
    ensure!(args.jobs > 0, "--jobs is 0; something must wait");
    let version =
        slurm::version().context("slurmctld does not answer; Debian has it in slurm-wlm")?;
    println!(
        "{version}; whole nodes on both sides; {} jobs wait",
        args.jobs
    );
    println!(
        "{:>6}  {:<34} {:>10} {:>9} {:>8} {:>11}",
        "nodes", "", "cycle ms", "looked at", "started", "nodes busy"
    );
    let print = |row: Row| {
        println!(
            "{:>6}  {:<34} {:>10.1} {:>9} {:>8} {:>11}",
            row.nodes, row.who, row.cycle_ms, row.looked_at, row.started, row.busy
        );
    };
    let folder = PathBuf::from(format!("{}/beside-slurm", std::env::temp_dir().display()));
    for nodes in args.nodes {
        ensure!(nodes > 0, "--nodes has a 0; a machine has nodes");
        let jobs = jobs(args.jobs, nodes);
        for row in ours::rows(nodes, &jobs)? {
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
