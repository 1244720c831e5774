//! `lattice replay compare`.

use super::{
    checked::CheckedSchedules,
    for_each, print_message,
    run::{ReplayOptionArgs, decider, explain, note_ignored_features, time},
    source::{MachineArgs, NodeArgs, Source, TraceArgs},
};
use crate::{
    failure::Failure,
    output::{self, Columns, Fitting, Format},
};
use anyhow::Context as _;
use clap::Args;
use lattice_api::duration;
use lattice_replay::{
    compare::{ComparisonResult, Difference, Row, compare},
    metrics::{CONVENTIONS, Metrics},
    report::{Page, PolicySchedule, page},
    run::{self as replay, Outcome, ReplayOptions, ReplayScheduler, RunError},
    trace::Workload,
    workload::jitter_submits,
};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Compare policies on the same workload: differences from the first policy, and their significance.
///
/// A policy is easy, conservative, fcfs, sjbf, lattice, lattice:PROFILE, lattice:FILE, or recorded. Each is replayed on
/// the workload as recorded and, with --seeds, with shifted submit times. A difference is called better or worse if 95
/// of 100 such experiments would find it on the same side.
#[derive(Args)]
pub struct CompareArgs {
    /// Policies; the others are compared with the first.
    #[arg(value_name = "POLICY", required = true, num_args = 1..)]
    policies: Vec<String>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    how: ReplayOptionArgs,
    /// Replays of each policy: one of the workload as recorded, the others with shifted submit times.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Maximum shift of submit times.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    submit_shift: String,
    /// Write a web page with charts of the schedules (HTML, one self-contained file).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Start of the time window in the page's last chart, relative to the first submit; left out: where most jobs wait.
    #[arg(long, value_name = "DURATION", requires = "html")]
    window: Option<String>,
    /// Length of the time window.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1d",
        requires = "window"
    )]
    window_length: String,
}

#[derive(Serialize)]
struct Report<'a> {
    trace: &'a str,
    policies: &'a [String],
    machine_size: u64,
    unit: &'static str,
    jobs: usize,
    seeds: u32,
    submit_shift_s: u64,
    rows: &'a [Row],
    /// Event order of each policy.
    orders: Vec<&'static str>,
    conventions: [&'static str; 9],
}

/// Runs `lattice replay compare`.
pub fn run(
    args: &CompareArgs,
    context: Option<&Path>,
    format: Format,
) -> Result<ExitCode, Failure> {
    let deciders = args.policies.iter().map(|policy| decider(policy, None));
    let deciders: Vec<ReplayScheduler> = deciders.collect::<Result<_, _>>()?;
    let max_shift_ms = length("--submit-shift", &args.submit_shift)?;
    let window = match &args.window {
        None => None,
        Some(from) => Some((
            length("--window", from)?,
            length("--window-length", &args.window_length)?,
        )),
    };
    let how = ReplayOptions {
        keeps_nodes: args.html.is_some(),
        ..args.how.read()?
    };
    args.how.check_deciders(&deciders)?;
    let source = Source::open(&args.trace, &args.machine, &args.nodes, context)?;
    args.how.check_vcluster(&source.machine, &deciders)?;
    let named: Vec<(&String, ReplayScheduler)> =
        args.policies.iter().zip(deciders.iter().copied()).collect();
    note_ignored_features(&source.machine, &named);
    let outcomes = outcomes(args, &source, &deciders, &how, max_shift_ms)?;
    let sides: Vec<Vec<Metrics>> = outcomes
        .iter()
        .map(|side| side.iter().map(|outcome| outcome.metrics.clone()).collect())
        .collect();
    let rows = compare(&sides);
    report_dropped_jobs(args, &outcomes);
    let first = outcomes.iter().filter_map(|side| side.first());
    let orders = first.map(|outcome| outcome.order.description());
    let report = Report {
        trace: &source.name,
        policies: &args.policies,
        machine_size: source.machine.size(),
        unit: source.workload.unit.name(),
        jobs: source.workload.jobs.len(),
        seeds: args.seeds,
        submit_shift_s: max_shift_ms / 1000,
        rows: &rows,
        orders: orders.collect(),
        conventions: CONVENTIONS,
    };
    print(&report, format)?;
    if let Some(path) = &args.html {
        let html = html(args, &source, &outcomes, &rows, window);
        let about = || format!("--html {}", path.display());
        std::fs::write(path, html).with_context(about)?;
        print_message(format!("the page is in {}", path.display()));
    }
    report_faults(args, &outcomes)
}

/// Reports which policies served fewer jobs than the workload has, with the first reasons.
fn report_dropped_jobs(args: &CompareArgs, outcomes: &[Vec<Outcome>]) {
    for (policy, side) in args.policies.iter().zip(outcomes) {
        let Some(first) = side.first() else { continue };
        let left = first.metrics.never_started + first.metrics.refused;
        if left > 0 {
            print_message(format!(
                "{policy} leaves {} unserved:",
                output::counted(left, "job")
            ));
            first
                .skipped
                .descriptions()
                .iter()
                .take(5)
                .for_each(|description| print_message(format!("  {description}")));
        }
    }
}

fn length(option: &str, text: &str) -> Result<u64, Failure> {
    duration::parse(text).map_err(|error| Failure::usage(format!("{option}: {error}")))
}

/// Returns the results by policy and seed.
fn outcomes(
    args: &CompareArgs,
    source: &Source,
    deciders: &[ReplayScheduler],
    how: &ReplayOptions,
    max_shift_ms: u64,
) -> Result<Vec<Vec<Outcome>>, Failure> {
    // The recorded schedule is fixed: shifted submits would only falsify its waiting times.
    let seeds = |decider: &ReplayScheduler| match decider {
        ReplayScheduler::Recorded => vec![0; args.seeds as usize],
        _ => (0..args.seeds).collect(),
    };
    let shifted: Vec<Workload> = (1..args.seeds)
        .map(|seed| jitter_submits(&source.workload, seed.into(), max_shift_ms))
        .collect();
    let turns: Vec<(&ReplayScheduler, u32)> = deciders
        .iter()
        .flat_map(|decider| seeds(decider).into_iter().map(move |seed| (decider, seed)))
        .collect();
    let serve = |(decider, seed): &(&ReplayScheduler, u32)| -> Result<Outcome, RunError> {
        let workload = match seed.checked_sub(1) {
            None => &source.workload,
            Some(place) => &shifted[place as usize],
        };
        // Charts show the workload as recorded.
        let how = ReplayOptions {
            keeps_nodes: how.keeps_nodes && *seed == 0,
            ..how.clone()
        };
        replay::run(workload, &source.machine, decider, &how)
    };
    let mut served = for_each(&turns, "replays", serve).into_iter();
    let side = |_: &ReplayScheduler| -> Result<Vec<Outcome>, Failure> {
        let of = served.by_ref().take(args.seeds as usize);
        let of: Result<Vec<Outcome>, RunError> = of.collect();
        Ok(of.map_err(anyhow::Error::from)?)
    };
    deciders.iter().map(side).collect()
}

fn html(
    args: &CompareArgs,
    source: &Source,
    outcomes: &[Vec<Outcome>],
    rows: &[Row],
    window: Option<(u64, u64)>,
) -> String {
    let sides: Vec<PolicySchedule<'_>> = args
        .policies
        .iter()
        .zip(outcomes)
        .filter_map(|(name, side)| {
            let first = side.first()?;
            Some(PolicySchedule {
                name,
                schedule: &first.schedule,
                classes: &first.metrics.starvation,
                order: first.order.description(),
            })
        })
        .collect();
    let title = format!("{}: {}", source.name, args.policies.join(", "));
    let begin = source.workload.jobs.first().map_or(0, |job| job.submit_ms);
    let submit_shift_s = length("--submit-shift", &args.submit_shift).unwrap_or(0) / 1000;
    page(&Page {
        title: &title,
        workload: &source.workload,
        terms: &replay::terms(&source.workload, &source.machine),
        policies: &sides,
        rows,
        seeds: args.seeds as usize,
        max_shift_s: submit_shift_s,
        window: window.map(|(from, long)| (begin + from, begin + from + long.max(1))),
    })
}

fn print(report: &Report<'_>, format: Format) -> Result<(), Failure> {
    let title = format!(
        "{}: {} on {} {}, {} of each policy",
        report.trace,
        output::counted(report.jobs, "job"),
        report.machine_size,
        report.unit,
        output::counted(report.seeds, "replay")
    );
    let title = match report.seeds {
        1 => title,
        _ => format!(
            "{title}, submits shifted by up to {} s",
            report.submit_shift_s
        ),
    };
    output::title(format, &title)?;
    let mut columns = vec!["measure"];
    columns.extend(report.policies.iter().map(String::as_str));
    let rows = report.rows.iter().map(|row| {
        let mut cells = vec![row.title.to_owned()];
        for (place, value) in row.values.iter().enumerate() {
            let shown = value_text(row.unit, value.mean);
            let difference = place
                .checked_sub(1)
                .and_then(|place| row.differences.get(place));
            cells.push(match difference {
                None => shown,
                Some(difference) => format!("{shown} ({})", difference_text(difference)),
            });
        }
        cells
    });
    output::print_fitted(
        format,
        report,
        Columns::only(&columns),
        Fitting::Texts(&[]),
        rows,
    )?;
    let orders = report.policies.iter().zip(&report.orders);
    let orders: Vec<String> = orders
        .map(|(policy, order)| format!("{policy}: {order}"))
        .collect();
    explain(
        format,
        &orders.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

fn value_text(unit: &str, value: f64) -> String {
    match unit {
        "s" => time(value)
            .split(" (")
            .next()
            .unwrap_or_default()
            .to_owned(),
        _ if value.abs() >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.4}"),
    }
}

fn difference_text(difference: &Difference) -> String {
    let relative = difference.relative.map_or_else(
        || format!("{:+.4}", difference.mean),
        |relative| format!("{:+.1} %", 100.0 * relative),
    );
    match difference.verdict {
        ComparisonResult::Same => "same".to_owned(),
        ComparisonResult::OtherJobs => format!("{relative}, other jobs"),
        ComparisonResult::Other => relative,
        ComparisonResult::Noise => format!("{relative}, noise"),
        ComparisonResult::OneSeed => relative,
        ComparisonResult::Better => format!("{relative}, better"),
        ComparisonResult::Worse => format!("{relative}, worse"),
    }
}

/// Reports the faults found in the schedules, if they were checked.
fn report_faults(args: &CompareArgs, outcomes: &[Vec<Outcome>]) -> Result<ExitCode, Failure> {
    let mut checks = CheckedSchedules::default();
    for (policy, side) in args.policies.iter().zip(outcomes) {
        for (seed, outcome) in side.iter().enumerate() {
            checks.add(|| format!("{policy}, seed {seed}"), outcome.faults.as_ref());
        }
    }
    checks.report()
}
