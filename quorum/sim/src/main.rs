//! Command line tool that runs seeds of the simulated quorum.

use clap::Parser;
use lattice_quorum_sim::{Plan, run, run_many};
use std::process::ExitCode;

/// The same allocator as in the members.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run seeds of the simulated quorum.
#[derive(Debug, Parser)]
struct Args {
    /// Seed to run with a full trace; with `--seeds`, the first seed.
    #[arg(default_value_t = 0)]
    seed: u64,
    /// Number of seeds to run; prints one table.
    #[arg(long)]
    seeds: Option<u64>,
    /// Number of threads; only with `--seeds`.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print the members' log output, with a filter such as `info` or `openraft=debug`.
    #[arg(long)]
    log: Option<String>,
    /// Do not print the trace.
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(filter) = &args.log {
        let format = tracing_subscriber::fmt().with_env_filter(filter);
        format.without_time().with_ansi(false).init();
    }
    if let Some(count) = args.seeds {
        let sum = run_many(args.seed, count, args.threads, Plan::of);
        println!("{sum}");
        for failed in &sum.failed {
            println!("seed {}: {:#?}", failed.seed, failed.violations);
        }
        return ExitCode::from(u8::from(!sum.failed.is_empty()));
    }
    let plan = Plan {
        verbose: !args.quiet,
        ..Plan::of(args.seed)
    };
    let report = run(&plan);
    println!(
        "seed {}: trace {}, {} terms, {:?}, healed in {} ms",
        report.seed,
        report.trace,
        report.elections,
        report.counters,
        report.healed_in.as_millis()
    );
    for violation in &report.violations {
        println!("VIOLATION {violation}");
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}
