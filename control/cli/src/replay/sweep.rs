//! `lattice replay sweep`.

use super::{
    progress::Progress,
    run::{HowArgs, explain},
    source::{MachineArgs, NodeArgs, Source, TraceArgs},
};
use crate::{
    failure::Failure,
    output::{self, Columns, Format},
};
use anyhow::Context as _;
use clap::Args;
use lattice_api::duration;
use lattice_replay::{
    compare::{MEASURES, Measure},
    live::Judge,
    metrics::CONVENTIONS,
    parallel,
    run::{self as replay, Decider, How, RunError},
    schedule::SameInstant,
    sweep::{Point, Space, Vector, best, pareto},
    trace::Workload,
    workload::shake,
};
use serde::Serialize;
use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Instant,
};

/// Try many weights on the same work, and tell those that no other beats.
///
/// The file says what is varied:
///
///     base: {profile: hpc-batch}
///     over:
///       wait_time: [0.1, 0.2, 0.4]
///       topology: {from: 0, to: 0.5, steps: 6}
///     reservations: [1, 8]
///     sample: 200
///
/// Those that are told were served again with the quorum as the judge. The one that is nearest to being best in every
/// objective at once is written with --save, for `lattice admin vcluster set-weights NAME --from FILE`.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct SweepArgs {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    how: HowArgs,
    /// What is varied (YAML).
    #[arg(long, value_name = "FILE")]
    over: PathBuf,
    /// What is wanted, with commas: mean_bounded_slowdown,group_span_mean. Each by the name it has in `run -o json`.
    #[arg(long, value_name = "MEASURES", value_delimiter = ',', required = true)]
    objective: Vec<String>,
    /// Of what a sample is drawn, and how submits are shaken.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Replays of each: one of the work as it was recorded, the others with its submits shaken; means count.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// By how much submits are moved at the most.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    shake: String,
    /// Write the best one to a file (YAML).
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    trace: &'a str,
    machine_size: u64,
    unit: &'static str,
    jobs: usize,
    tried: usize,
    seeds: u32,
    objectives: &'a [String],
    front: &'a [Point],
    wall_s: f64,
    jobs_per_s: f64,
    order: &'static str,
    conventions: [&'static str; 7],
}

/// Runs it.
pub fn run(args: &SweepArgs, context: Option<&Path>, format: Format) -> Result<ExitCode, Failure> {
    let objectives = args.objective.iter().map(|name| objective(name));
    let objectives: Vec<&Measure> = objectives.collect::<Result<_, _>>()?;
    let shaken_ms = duration::parse(&args.shake)
        .map_err(|error| Failure::usage(format!("--shake: {error}")))?;
    let about = || format!("--over {}", args.over.display());
    let text = std::fs::read_to_string(&args.over).with_context(about)?;
    let space = Space::read(&text).with_context(about)?;
    let vectors = space.vectors(args.seed).with_context(about)?;
    let how = args.how.read()?;
    let source = Source::open(&args.trace, &args.machine, &args.nodes, context)?;
    let shaken: Vec<Workload> = (1..args.seeds)
        .map(|seed| {
            shake(
                &source.workload,
                args.seed.wrapping_add(seed.into()),
                shaken_ms,
            )
        })
        .collect();
    let begin = Instant::now();
    let values = tried(args, &source, &vectors, &shaken, &objectives, &how)?;
    let wall_s = begin.elapsed().as_secs_f64();
    let front = pareto(&values, &objectives);
    let best = best(&values, &front, &objectives);
    let points = points(
        &source,
        &vectors,
        &values,
        (&front, best),
        &objectives,
        &how,
    )?;
    let served = (vectors.len() * args.seeds as usize * source.workload.jobs.len()) as f64;
    let report = Report {
        trace: &source.name,
        machine_size: source.machine.size(),
        unit: source.workload.unit.name(),
        jobs: source.workload.jobs.len(),
        tried: vectors.len(),
        seeds: args.seeds,
        objectives: &args.objective,
        front: &points,
        wall_s,
        jobs_per_s: served / wall_s.max(f64::MIN_POSITIVE),
        order: SameInstant::Together.told(),
        conventions: CONVENTIONS,
    };
    print(&report, &space, format)?;
    if let (Some(path), Some(best)) = (&args.save, best) {
        let about = || format!("--save {}", path.display());
        let text = serde_yaml_ng::to_string(&vectors[best].text).with_context(about)?;
        std::fs::write(path, text).with_context(about)?;
        eprintln!(
            "lattice: the best is in {0}; set it with: lattice admin vcluster set-weights NAME --from {0}",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn objective(name: &str) -> Result<&'static Measure, Failure> {
    Measure::named(name).ok_or_else(|| {
        let known: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
        Failure::usage(format!(
            "--objective: there is no measure {name:?}; one of {}",
            known.join(", ")
        ))
    })
}

/// By vector and objective, the mean over seeds.
fn tried(
    args: &SweepArgs,
    source: &Source,
    vectors: &[Vector],
    shaken: &[Workload],
    objectives: &[&Measure],
    how: &How,
) -> Result<Vec<Vec<f64>>, Failure> {
    let how = How {
        judge: Judge::Nobody,
        checks: false,
        ..how.clone()
    };
    let progress = Progress::new(vectors.len(), "vectors");
    let serve = |vector: &Vector| -> Result<Vec<Option<f64>>, RunError> {
        let mut sums = vec![Some(0.0); objectives.len()];
        for workload in std::iter::once(&source.workload).chain(shaken) {
            let decider = Decider::Lattice(Some(vector.policy));
            let outcome = replay::run(workload, &source.machine, &decider, &how)?;
            for (sum, objective) in sums.iter_mut().zip(objectives) {
                *sum = sum
                    .zip(objective.of(&outcome.metrics))
                    .map(|(sum, value)| sum + value);
            }
        }
        let mean = |sum: Option<f64>| sum.map(|sum| sum / f64::from(args.seeds));
        Ok(sums.into_iter().map(mean).collect())
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let all = parallel::map(vectors, threads, serve, |done| progress.is_at(done));
    progress.end();
    let mut values = Vec::with_capacity(all.len());
    for found in all {
        let found = found.map_err(anyhow::Error::from)?;
        let known = found.iter().zip(objectives).map(|(value, objective)| {
            value.ok_or_else(|| {
                let name = objective.name;
                Failure::usage(format!(
                    "--objective {name}: it is not known of this work on this machine (targets and groups come from \
                     --cluster)"
                ))
            })
        });
        values.push(known.collect::<Result<_, _>>()?);
    }
    Ok(values)
}

/// Those on the front, each served again with the quorum as the judge.
fn points(
    source: &Source,
    vectors: &[Vector],
    values: &[Vec<f64>],
    (front, best): (&[usize], Option<usize>),
    objectives: &[&Measure],
    how: &How,
) -> Result<Vec<Point>, Failure> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let again = |place: &usize| -> Result<bool, RunError> {
        let decider = Decider::Lattice(Some(vectors[*place].policy));
        let serve = |judge| {
            let how = How {
                judge,
                ..how.clone()
            };
            replay::run(&source.workload, &source.machine, &decider, &how)
        };
        let (quorum, books) = (serve(Judge::Quorum)?, serve(Judge::Nobody)?);
        Ok(quorum.schedule.digest() == books.schedule.digest())
    };
    let progress = Progress::new(front.len(), "confirmed by the quorum");
    let confirmed = parallel::map(front, threads, again, |done| progress.is_at(done));
    progress.end();
    let mut points = Vec::with_capacity(front.len());
    for (place, confirmed) in front.iter().zip(confirmed) {
        let names = objectives.iter().map(|objective| objective.name);
        points.push(Point {
            policy: vectors[*place].text.clone(),
            values: names.zip(values[*place].iter().copied()).collect(),
            is_best: Some(*place) == best,
            confirmed: confirmed.map_err(anyhow::Error::from)?,
        });
    }
    let first = objectives.first().map_or("", |objective| objective.name);
    points.sort_by(|a, b| a.values[first].total_cmp(&b.values[first]));
    if points.iter().any(|point| !point.confirmed) {
        eprintln!(
            "lattice: note: with the quorum as the judge some of these serve otherwise: it refuses submits that do not \
             fit under a limit, which here wait"
        );
    }
    Ok(points)
}

fn print(report: &Report<'_>, space: &Space, format: Format) -> Result<(), Failure> {
    let title = format!(
        "{}: {} jobs on {} {}; {} vectors tried in {:.1} s ({:.0} jobs/s), {} that no other beats",
        report.trace,
        report.jobs,
        report.machine_size,
        report.unit,
        report.tried,
        report.wall_s,
        report.jobs_per_s,
        report.front.len()
    );
    output::title(format, &title)?;
    let varied: Vec<&str> = space.varied().collect();
    let mut columns: Vec<&str> = report.objectives.iter().map(String::as_str).collect();
    columns.extend(&varied);
    if !space.reservations.is_empty() {
        columns.push("reservations");
    }
    if !space.reference_wait_s.is_empty() {
        columns.push("reference wait");
    }
    columns.extend(["quorum", "best"]);
    let rows = report.front.iter().map(|point| {
        let mut cells: Vec<String> = report
            .objectives
            .iter()
            .map(|name| {
                point
                    .values
                    .get(name.as_str())
                    .map_or_else(String::new, |value| format!("{value:.4}"))
            })
            .collect();
        let weight = |name: &&str| {
            point
                .policy
                .weights
                .get(*name)
                .map_or_else(String::new, f64::to_string)
        };
        cells.extend(varied.iter().map(weight));
        if let (Some(reservations), false) =
            (&point.policy.reservations, space.reservations.is_empty())
        {
            cells.push(reservations.to_string());
        }
        if let (Some(seconds), false) = (
            point.policy.reference_wait_s,
            space.reference_wait_s.is_empty(),
        ) {
            cells.push(format!("{seconds} s"));
        }
        cells.push(if point.confirmed { "same" } else { "other" }.to_owned());
        cells.push(if point.is_best { "best" } else { "" }.to_owned());
        cells
    });
    output::print(format, report, Columns::only(&columns), rows)?;
    explain(format, &[report.order])
}
