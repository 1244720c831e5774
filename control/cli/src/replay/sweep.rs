//! `lattice replay sweep`.

use super::{
    checked::CheckedSchedules,
    for_each, print_message,
    run::{ReplayOptionArgs, explain},
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
    check::Faults,
    compare::{GoodDirection, MEASURES, Measure},
    live::ProposalCheck,
    metrics::{CONVENTIONS, Metrics},
    run::{self as replay, ReplayOptions, ReplayScheduler, RunError},
    schedule::EventOrder,
    sweep::{ParetoPoint, SweepSpace, WeightVector, nearest_to_ideal, pareto},
    trace::Workload,
    workload::jitter_submits,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

/// Help text about the file of `--over`.
const FILE_HELP: &str = "\
The file of --over names what is varied:

    base: {profile: hpc-batch}
    over:
      wait_time: [0.1, 0.2, 0.4]
      topology: {from: 0, to: 0.5, steps: 6}
    reservations: [1, 8]
    sample: 200

The printed vectors are replayed again with the rules of the quorum. --save writes the vector that is nearest
to the best in every objective at once, for `lattice admin vcluster set-weights NAME --from FILE`.";

/// Try many weight vectors on the same workload, and print the Pareto front.
#[derive(Args)]
#[command(after_long_help = FILE_HELP)]
pub struct SweepArgs {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    how: ReplayOptionArgs,
    /// File that names the varied settings (YAML).
    #[arg(long, value_name = "FILE")]
    over: PathBuf,
    /// Objectives, separated by commas: mean_bounded_slowdown,group_span_mean; the names are those of `run -o json`.
    #[arg(long, value_name = "MEASURES", value_delimiter = ',', required = true)]
    objective: Vec<String>,
    /// Random seed for the sample and for shifted submit times.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Replays of each vector: one of the workload as recorded, the others with shifted submit times. The means over
    /// these replays are compared.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// Maximum shift of submit times.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    submit_shift: String,
    /// Write the best vector to a file (YAML).
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
    front: &'a [ParetoPoint],
    wall_s: f64,
    jobs_per_s: f64,
    order: &'static str,
    conventions: [&'static str; 9],
}

/// Runs `lattice replay sweep`.
pub fn run(args: &SweepArgs, context: Option<&Path>, format: Format) -> Result<ExitCode, Failure> {
    let objectives = args.objective.iter().map(|name| objective(name));
    let objectives: Vec<&Measure> = objectives.collect::<Result<_, _>>()?;
    for (place, measure) in objectives.iter().enumerate() {
        if objectives[..place]
            .iter()
            .any(|known| known.name == measure.name)
        {
            return Err(Failure::usage(format!(
                "--objective: {} is given twice",
                measure.name
            )));
        }
    }
    let max_shift_ms = duration::parse(&args.submit_shift)
        .map_err(|error| Failure::usage(format!("--submit-shift: {error}")))?;
    let about = || format!("--over {}", args.over.display());
    let text = std::fs::read_to_string(&args.over).with_context(about)?;
    let space = SweepSpace::read(&text).with_context(about)?;
    let mut vectors = space.vectors(args.seed).with_context(about)?;
    let base = space.base().with_context(about)?;
    let base = match vectors
        .iter()
        .position(|vector| vector.policy == base.policy)
    {
        Some(place) => place,
        None => {
            vectors.push(base);
            vectors.len() - 1
        }
    };
    let how = args.how.read()?;
    args.how
        .check_deciders(&[ReplayScheduler::Lattice(Some(vectors[base].policy))])?;
    let source = Source::open(&args.trace, &args.machine, &args.nodes, context)?;
    let shifted: Vec<Workload> = (1..args.seeds)
        .map(|seed| {
            jitter_submits(
                &source.workload,
                args.seed.wrapping_add(seed.into()),
                max_shift_ms,
            )
        })
        .collect();
    let sample = [ReplayScheduler::Lattice(Some(vectors[base].policy))];
    args.how.check_vcluster(&source.machine, &sample)?;
    let begin = Instant::now();
    let mut checks = CheckedSchedules::default();
    let values = evaluate_vectors(
        args,
        &source,
        &vectors,
        &shifted,
        &objectives,
        &how,
        &mut checks,
    )?;
    let wall_s = begin.elapsed().as_secs_f64();
    let reported = reported_vectors(&values, base, &objectives);
    let points = points(
        &source,
        &vectors,
        &values,
        &reported,
        &objectives,
        &how,
        &mut checks,
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
        order: EventOrder::Together.description(),
        conventions: CONVENTIONS,
    };
    print(&report, &space, format)?;
    if let (Some(path), best) = (&args.save, reported.best) {
        let about = || format!("--save {}", path.display());
        let text = serde_yaml_ng::to_string(&vectors[best].text).with_context(about)?;
        std::fs::write(path, text).with_context(about)?;
        print_message(format!(
            "the best is in {0}; set it with: lattice admin vcluster set-weights NAME --from {0}",
            path.display()
        ));
    }
    checks.report()
}

/// Names a vector in a message: its settings, as JSON.
fn vector_name(vector: &WeightVector) -> String {
    serde_json::to_string(&vector.text).unwrap_or_else(|_| format!("{:?}", vector.text))
}

fn objective(name: &str) -> Result<&'static Measure, Failure> {
    let measure =
        Measure::named(name.trim()).filter(|measure| measure.better != GoodDirection::Neither);
    measure.ok_or_else(|| {
        let known = MEASURES
            .iter()
            .filter(|measure| measure.better != GoodDirection::Neither);
        let known: Vec<&str> = known.map(|measure| measure.name).collect();
        Failure::usage(format!(
            "--objective: there is no measure {:?} that is better one way; one of {}",
            name.trim(),
            known.join(", ")
        ))
    })
}

/// Means over seeds by objective, and the faults of each replay.
type Evaluation = (Vec<Option<f64>>, Vec<Option<Faults>>);

/// Returns the means over seeds, by vector and objective.
fn evaluate_vectors(
    args: &SweepArgs,
    source: &Source,
    vectors: &[WeightVector],
    shifted: &[Workload],
    objectives: &[&Measure],
    how: &ReplayOptions,
    checks: &mut CheckedSchedules,
) -> Result<Vec<Vec<f64>>, Failure> {
    let how = ReplayOptions {
        judge: ProposalCheck::AcceptAll,
        ..how.clone()
    };
    let serve = |vector: &WeightVector| -> Result<Evaluation, RunError> {
        let (mut sums, mut faults) = (vec![Some(0.0); objectives.len()], Vec::new());
        for workload in std::iter::once(&source.workload).chain(shifted) {
            let decider = ReplayScheduler::Lattice(Some(vector.policy));
            let outcome = replay::run(workload, &source.machine, &decider, &how)?;
            for (sum, objective) in sums.iter_mut().zip(objectives) {
                *sum = sum
                    .zip(objective.of(&outcome.metrics))
                    .map(|(sum, value)| sum + value);
            }
            faults.push(outcome.faults);
        }
        let mean = |sum: Option<f64>| sum.map(|sum| sum / f64::from(args.seeds));
        Ok((sums.into_iter().map(mean).collect(), faults))
    };
    let all = for_each(vectors, "vectors", serve);
    let mut values = Vec::with_capacity(all.len());
    for (vector, found) in vectors.iter().zip(all) {
        let (found, faults) = found.map_err(anyhow::Error::from)?;
        for (seed, faults) in faults.iter().enumerate() {
            let name = || format!("{}, seed {seed}", vector_name(vector));
            checks.add(name, faults.as_ref());
        }
        let known = found.iter().zip(objectives).map(|(value, objective)| {
            value.ok_or_else(|| {
                let name = objective.name;
                Failure::usage(format!(
                    "--objective {name}: it is not available for these jobs on this machine \
                     (targets and groups come from --cluster)"
                ))
            })
        });
        values.push(known.collect::<Result<_, _>>()?);
    }
    Ok(values)
}

/// Vectors to print.
struct ReportedVectors {
    /// Indices of the vectors on the Pareto front with other values than the base vector, and of the base vector.
    vector_indices: Vec<usize>,
    best: usize,
    base: usize,
}

fn reported_vectors(values: &[Vec<f64>], base: usize, objectives: &[&Measure]) -> ReportedVectors {
    let front = pareto(values, objectives);
    let is_base = |place: usize| values[place] == values[base];
    let found = nearest_to_ideal(values, &front, objectives).unwrap_or(base);
    if (0..values.len()).all(is_base) {
        print_message(format!(
            "note: all {} give the same result: the varied settings do not matter for these jobs",
            output::counted(values.len(), "vector")
        ));
    } else if is_base(found) {
        print_message("note: no tried variation is better than the one not varied, which is used");
    }
    let mut places: Vec<usize> = front.into_iter().filter(|place| !is_base(*place)).collect();
    places.push(base);
    ReportedVectors {
        vector_indices: places,
        best: if is_base(found) { base } else { found },
        base,
    }
}

/// Replays each reported vector with and without the rules of the quorum; a vector with equal schedules is confirmed.
fn points(
    source: &Source,
    vectors: &[WeightVector],
    values: &[Vec<f64>],
    reported: &ReportedVectors,
    objectives: &[&Measure],
    how: &ReplayOptions,
    checks: &mut CheckedSchedules,
) -> Result<Vec<ParetoPoint>, Failure> {
    let again = |place: &usize| -> Result<(bool, Metrics, Option<Faults>), RunError> {
        let decider = ReplayScheduler::Lattice(Some(vectors[*place].policy));
        let serve = |judge| {
            let how = ReplayOptions {
                judge,
                ..how.clone()
            };
            replay::run(&source.workload, &source.machine, &decider, &how)
        };
        let (quorum, books) = (
            serve(ProposalCheck::Quorum)?,
            serve(ProposalCheck::AcceptAll)?,
        );
        let is_same = quorum.schedule.digest() == books.schedule.digest();
        Ok((is_same, quorum.metrics, quorum.faults))
    };
    let confirmed = for_each(&reported.vector_indices, "confirmed by the quorum", again);
    let mut points = Vec::with_capacity(reported.vector_indices.len());
    for (place, confirmed) in reported.vector_indices.iter().zip(confirmed) {
        let (confirmed, metrics, faults) = confirmed.map_err(anyhow::Error::from)?;
        let name = || format!("{}, rules of the quorum", vector_name(&vectors[*place]));
        checks.add(name, faults.as_ref());
        let by_quorum = objectives
            .iter()
            .map(|of| Some((of.name, of.of(&metrics)?)));
        let named = objectives.iter().map(|objective| objective.name);
        points.push(ParetoPoint {
            policy: vectors[*place].text.clone(),
            values: named.zip(values[*place].iter().copied()).collect(),
            by_quorum: (!confirmed).then(|| by_quorum.flatten().collect()),
            is_best: *place == reported.best,
            is_base: *place == reported.base,
            confirmed,
        });
    }
    let first = objectives.first().map_or("", |objective| objective.name);
    points.sort_by(|a, b| a.values[first].total_cmp(&b.values[first]));
    if points.iter().any(|point| !point.confirmed) {
        print_message(
            "note: with the rules of the quorum, some of these vectors give other results, which are shown \
             in brackets: the quorum refuses submits over a limit, and they are repeated; in the sweep, they wait",
        );
    }
    Ok(points)
}

fn print(report: &Report<'_>, space: &SweepSpace, format: Format) -> Result<(), Failure> {
    let title = format!(
        "{}: {} on {} {}; {} tried in {:.1} s ({:.0} jobs/s); Pareto front and the base vector",
        report.trace,
        output::counted(report.jobs, "job"),
        report.machine_size,
        report.unit,
        output::counted(report.tried, "vector"),
        report.wall_s,
        report.jobs_per_s
    );
    output::title(format, &title)?;
    let varied: Vec<&str> = space.varied().collect();
    let mut columns: Vec<&str> = report.objectives.iter().map(String::as_str).collect();
    columns.extend(&varied);
    if !space.reservations.is_empty() {
        columns.push("reservations");
    }
    if !space.reference_wait_s.is_empty() {
        columns.push("reference_wait_s");
    }
    columns.extend(["confirmed", "is_best"]);
    let rows = report.front.iter().map(|point| {
        let cell = |name: &String| {
            let of = |values: &BTreeMap<&'static str, f64>| values.get(name.trim()).copied();
            let books = of(&point.values).map_or_else(String::new, |value| format!("{value:.4}"));
            match point.by_quorum.as_ref().and_then(of) {
                Some(quorum) => format!("{books} ({quorum:.4})"),
                None => books,
            }
        };
        let mut cells: Vec<String> = report.objectives.iter().map(cell).collect();
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
        let marks = [(point.is_best, "best"), (point.is_base, "not varied")];
        let marks = marks
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, mark)| mark);
        cells.push(marks.collect::<Vec<_>>().join(", "));
        cells
    });
    output::print(format, report, Columns::only(&columns), rows)?;
    explain(format, &[report.order])
}
