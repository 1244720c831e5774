//! `lattice replay run`.

use super::{
    print_message,
    source::{MachineArgs, NodeArgs, Source, TraceArgs},
};
use crate::{
    failure::Failure,
    output::{self, Format},
};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use lattice_api::duration;
use lattice_quorum_types::{VclusterName, vcluster::DEFAULT_VCLUSTER};
use lattice_replay::{
    live::{ActionCounts, OverLimitPolicy},
    metrics::{CONVENTIONS, Metrics, SizeClass},
    run::{self as replay, Machine, Outcome, ReplayOptions, ReplayScheduler},
    schedule::EventOrder,
    trace::SkipReason,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

/// Replay a recorded workload with one policy, and print the metrics.
///
/// Skipped lines and jobs are listed on standard error, with their numbers and the reasons.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Policy: easy, conservative, fcfs, sjbf, lattice, or recorded (the recorded schedule).
    #[arg(long, value_name = "POLICY", default_value = "lattice")]
    policy: String,
    /// Weights of lattice: hpc-batch, ml-training, service, sensitive, interactive, balanced, none, or a file of
    /// weights. Left out: those of the cluster's description, else balanced.
    #[arg(long, value_name = "PROFILE|FILE")]
    weights: Option<String>,
    #[command(flatten)]
    how: ReplayOptionArgs,
    /// Write the schedule to a file (CSV): job, submit, start and end in seconds, size, and nodes if they have names.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
}

/// Options of the replay.
#[derive(Args)]
pub struct ReplayOptionArgs {
    /// Events at the same instant: a decision after each, or after all of them. lattice always decides after all of
    /// them.
    #[arg(long, value_enum)]
    same_instant: Option<OrderArg>,
    /// Maximum interval between plans of lattice while jobs wait, such as 5s, as in the live system. Left out: lattice
    /// plans at events only.
    #[arg(long, value_name = "DURATION")]
    plan_interval: Option<String>,
    /// vCluster in which the weights are replaced; other vClusters keep their own. Left out: all vClusters.
    #[arg(long, value_name = "NAME")]
    vcluster: Option<VclusterName>,
    /// Submits that the quorum refuses because a limit is full: the users submit them again when an allocation has
    /// ended, or give up.
    #[arg(long, value_enum, default_value_t)]
    over_limit: OverLimitArg,
    /// Check that the schedules satisfy all invariants; `run` also checks that a second replay gives the same schedule.
    #[arg(long)]
    pub check: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum OrderArg {
    OneByOne,
    Together,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum OverLimitArg {
    #[default]
    Resubmit,
    GiveUp,
}

impl ReplayOptionArgs {
    /// Rejects options that apply to none of the policies.
    pub fn check_deciders(&self, deciders: &[ReplayScheduler]) -> Result<(), Failure> {
        let is_lattice = |decider: &ReplayScheduler| matches!(decider, ReplayScheduler::Lattice(_));
        let is_textbook =
            |decider: &ReplayScheduler| matches!(decider, ReplayScheduler::Textbook(_));
        if self.plan_interval.is_some() && !deciders.iter().any(is_lattice) {
            return Err(Failure::usage(
                "--plan-interval: only lattice plans at times of its own",
            ));
        }
        if self.same_instant.is_some() && !deciders.iter().any(is_textbook) {
            return Err(Failure::usage(
                "--same-instant: it applies only to easy, conservative, fcfs and sjbf",
            ));
        }
        Ok(())
    }

    /// Rejects `--vcluster` if the machine does not have that vCluster, or if no policy replaces weights.
    pub fn check_vcluster(
        &self,
        machine: &Machine,
        deciders: &[ReplayScheduler],
    ) -> Result<(), Failure> {
        let Some(name) = &self.vcluster else {
            return Ok(());
        };
        let has_weights =
            |decider: &ReplayScheduler| matches!(decider, ReplayScheduler::Lattice(Some(_)));
        if !deciders.iter().any(has_weights) {
            return Err(Failure::usage(
                "--vcluster: it selects the weights to replace, but no weights are given",
            ));
        }
        let known: Vec<&str> = match machine {
            Machine::Alike(_) => vec![DEFAULT_VCLUSTER],
            Machine::Cluster(cluster) => {
                cluster.vclusters.keys().map(|name| name.as_str()).collect()
            }
        };
        match known.contains(&name.as_str()) {
            true => Ok(()),
            false => {
                let known = known.join(", ");
                Err(Failure::usage(format!(
                    "--vcluster: unknown vCluster {name:?}; valid are {known}"
                )))
            }
        }
    }

    /// Converts the options for the simulator.
    pub fn read(&self) -> Result<ReplayOptions, Failure> {
        let every_ms = match &self.plan_interval {
            None => None,
            Some(text) => {
                let wrong = |error| Failure::usage(format!("--plan-interval: {error}"));
                Some(duration::parse(text).map_err(wrong)?.max(1))
            }
        };
        Ok(ReplayOptions {
            order: self.same_instant.map(|order| match order {
                OrderArg::OneByOne => EventOrder::OneByOne,
                OrderArg::Together => EventOrder::Together,
            }),
            vcluster: self.vcluster.clone(),
            every_ms,
            checks: self.check,
            refused: match self.over_limit {
                OverLimitArg::Resubmit => OverLimitPolicy::Resubmit,
                OverLimitArg::GiveUp => OverLimitPolicy::GiveUp,
            },
            ..ReplayOptions::default()
        })
    }
}

/// Printed result.
#[derive(Serialize)]
struct Report<'a> {
    trace: &'a str,
    policy: String,
    machine_size: u64,
    unit: &'static str,
    #[serde(flatten)]
    metrics: &'a Metrics,
    skipped: BTreeMap<SkipReason, u64>,
    overran_jobs: u64,
    without_estimate: u64,
    wall_s: f64,
    jobs_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<&'a ActionCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<CheckResult>,
    schedule_digest: String,
    order: &'static str,
    conventions: [&'static str; 9],
    notes: &'a [String],
}

#[derive(Serialize)]
struct CheckResult {
    faults: u64,
    is_repeatable: bool,
}

/// Runs `lattice replay run`.
pub fn run(args: &RunArgs, context: Option<&Path>, format: Format) -> Result<ExitCode, Failure> {
    let decider = decider(&args.policy, args.weights.as_deref())?;
    let how = ReplayOptions {
        keeps_nodes: args.schedule.is_some(),
        ..args.how.read()?
    };
    args.how.check_deciders(&[decider])?;
    let source = Source::open(&args.trace, &args.machine, &args.nodes, context)?;
    args.how.check_vcluster(&source.machine, &[decider])?;
    note_ignored_features(&source.machine, &[(&args.policy, decider)]);
    let begin = Instant::now();
    let outcome = replay_workload(&source, &decider, &how)?;
    let wall_s = begin.elapsed().as_secs_f64();
    for description in outcome.skipped.descriptions() {
        print_message(format!("{}: {description}", source.name));
    }
    if let Some(path) = &args.schedule {
        write_schedule(path, &source, &outcome)?;
    }
    if outcome.metrics.jobs == 0 {
        return Err(Failure::refused(
            "no job was served: there is nothing to measure; see above",
        ));
    }
    if how.checks && outcome.faults.is_none() {
        print_message(
            "note: the recorded schedule is not checked: its jobs may have shared nodes or processors",
        );
    }
    let checked = match &outcome.faults {
        None => None,
        Some(faults) => {
            faults
                .descriptions
                .iter()
                .for_each(|description| print_message(format!("check: {description}")));
            let again = replay_workload(&source, &decider, &how)?;
            Some(CheckResult {
                faults: faults.count,
                is_repeatable: again.schedule.digest() == outcome.schedule.digest(),
            })
        }
    };
    let is_sound = checked
        .as_ref()
        .is_none_or(|checked| checked.faults == 0 && checked.is_repeatable);
    let mut skipped = source.workload.skipped.clone();
    skipped.extend(&outcome.skipped);
    let report = Report {
        trace: &source.name,
        policy: policy_name(&decider, &args.policy, args.weights.as_deref()),
        machine_size: source.machine.size(),
        unit: source.workload.unit.name(),
        metrics: &outcome.metrics,
        skipped: skipped.counts().clone(),
        overran_jobs: source.fit_changes.overran,
        without_estimate: source.fit_changes.without_estimate,
        wall_s,
        jobs_per_s: source.workload.jobs.len() as f64 / wall_s.max(f64::MIN_POSITIVE),
        actions: outcome.actions.as_ref(),
        checked,
        schedule_digest: outcome.schedule.digest().to_hex().to_string(),
        order: outcome.order.description(),
        conventions: CONVENTIONS,
        notes: &source.workload.notes,
    };
    print(&report, format)?;
    match is_sound {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::refused("the schedule violates a check; see above")),
    }
}

/// Prints a note that names the policies that ignore the features of a described cluster.
pub fn note_ignored_features(machine: &Machine, deciders: &[(&String, ReplayScheduler)]) {
    let alike = deciders
        .iter()
        .filter(|(_, decider)| matches!(decider, ReplayScheduler::Textbook(_)));
    let alike: Vec<&str> = alike.map(|(name, _)| name.as_str()).collect();
    if let (Machine::Cluster(cluster), false) = (machine, alike.is_empty()) {
        print_message(format!(
            "note: {} treats the cluster's {} nodes as identical: groups, vClusters, limits, \
             hardware and power count for lattice only",
            alike.join(", "),
            cluster.nodes.len()
        ));
    }
}

/// Returns the policy that the command line names.
pub fn decider(policy: &str, weights: Option<&str>) -> Result<ReplayScheduler, Failure> {
    if weights.is_some() && policy != "lattice" {
        return Err(Failure::usage(
            "--weights: only --policy lattice has weights",
        ));
    }
    let wrong = |unknown: replay::InvalidScheduler| {
        Failure::usage(match weights {
            Some(weights) => format!("--weights {weights}: {}", unknown.reason),
            None => format!("policy {unknown}"),
        })
    };
    replay::decider(policy, weights).map_err(wrong)
}

fn policy_name(decider: &ReplayScheduler, policy: &str, weights: Option<&str>) -> String {
    match (decider, weights) {
        (ReplayScheduler::Lattice(_), Some(weights)) => format!("{policy}:{weights}"),
        _ => policy.to_owned(),
    }
}

/// Replays the workload.
pub fn replay_workload(
    source: &Source,
    decider: &ReplayScheduler,
    how: &ReplayOptions,
) -> Result<Outcome, Failure> {
    let run = replay::run(&source.workload, &source.machine, decider, how);
    Ok(run.map_err(anyhow::Error::from)?)
}

fn write_schedule(path: &Path, source: &Source, outcome: &Outcome) -> Result<(), Failure> {
    let about = || format!("--schedule {}", path.display());
    let write = || -> anyhow::Result<()> {
        let mut writer = csv::Writer::from_writer(BufWriter::new(File::create(path)?));
        writer.write_record(["job", "submit", "start", "end", "procs", "nodes"])?;
        let nodes = outcome.schedule.nodes.as_ref();
        let pairs = source.workload.jobs.iter().zip(&outcome.schedule.served);
        for (place, (job, served)) in pairs.enumerate() {
            let seconds = |ms: u64| (ms as f64 / 1000.0).to_string();
            let started = served.has_started();
            let if_started = |ms: u64| if started { seconds(ms) } else { String::new() };
            writer.write_record([
                job.number.to_string(),
                seconds(job.submit_ms),
                if_started(served.start_ms),
                if_started(served.end_ms(job)),
                job.size.to_string(),
                nodes.map(|nodes| nodes.hostlist(place)).unwrap_or_default(),
            ])?;
        }
        writer.flush()?;
        writer
            .into_inner()
            .map_err(|error| anyhow::anyhow!("{}", error.error()))?
            .flush()?;
        Ok(())
    };
    Ok(write().with_context(about)?)
}

fn print(report: &Report<'_>, format: Format) -> Result<(), Failure> {
    let m = report.metrics;
    let title = format!(
        "{} by {} on {} {}",
        report.trace, report.policy, report.machine_size, report.unit
    );
    output::title(format, &title)?;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| rows.push((name.to_owned(), value));
    add("jobs", m.jobs.to_string());
    if m.never_started > 0 {
        add("never started", m.never_started.to_string());
    }
    if m.refused > 0 {
        add("refused", m.refused.to_string());
    }
    let skipped = report
        .skipped
        .iter()
        .filter(|(why, _)| !why.is_refusal() && **why != SkipReason::NeverStarted);
    let skipped: u64 = skipped.map(|(_, count)| count).sum();
    add("skipped", skipped.to_string());
    add("wait, mean", time(m.mean_wait_s));
    add("wait, p50", time(m.p50_wait_s));
    add("wait, p95", time(m.p95_wait_s));
    add("wait, p99", time(m.p99_wait_s));
    add("wait, longest", time(m.max_wait_s));
    add("wait, weighted by work", time(m.weighted_wait_s));
    add("flow, mean", time(m.mean_flow_s));
    add("flow, longest", time(m.max_flow_s));
    add(
        "bounded slowdown, mean",
        format!("{:.3}", m.mean_bounded_slowdown),
    );
    add(
        "bounded slowdown, weighted by work",
        format!("{:.3}", m.weighted_bounded_slowdown),
    );
    add(
        "bounded slowdown, largest",
        format!("{:.1}", m.max_bounded_slowdown),
    );
    add("utilization", format!("{:.2} %", 100.0 * m.utilization));
    add(
        "utilization, without first and last 5 %",
        format!("{:.2} %", 100.0 * m.utilization_window),
    );
    add("makespan", time(m.makespan_s));
    add("queue, mean", format!("{:.2}", m.mean_queue));
    add("fairness (Jain)", format!("{:.4}", m.jain_fairness));
    add(
        "fairness (Jain), by day",
        format!("{:.4}", m.jain_fairness_by_day),
    );
    add(
        "largest deficit",
        format!("{:.2} %", 100.0 * m.largest_deficit),
    );
    if let Some(met) = m.qos_met_fraction {
        add("started within target", format!("{:.2} %", 100.0 * met));
    }
    add("backfilled", m.backfilled.to_string());
    add("preempted", m.preempted.to_string());
    if let Some(span) = m.group_span_mean {
        add("groups per job, mean", format!("{span:.3}"));
    }
    for SizeClass {
        from,
        to,
        jobs,
        max_wait_s,
        ..
    } in &m.starvation
    {
        let size = if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        };
        let jobs = output::counted(*jobs, "job");
        add(
            &format!("longest wait, size {size}"),
            format!("{} ({jobs})", time(*max_wait_s)),
        );
    }
    if let Some(checked) = &report.checked {
        let again = if checked.is_repeatable {
            "the same"
        } else {
            "SCHEDULE DIFFERS"
        };
        add(
            "checked",
            format!(
                "{}; done again: {again}",
                output::counted(checked.faults, "fault")
            ),
        );
    }
    add(
        "took",
        format!("{:.2} s ({:.0} jobs/s)", report.wall_s, report.jobs_per_s),
    );
    let rows = rows.into_iter().map(|(name, value)| vec![name, value]);
    output::print_details(format, report, ["what", "value"], rows)?;
    explain(format, &[report.order])
}

/// Prints the definitions of the measures and the event orders, below a table.
pub fn explain(format: Format, orders: &[&str]) -> Result<(), Failure> {
    if format.is_for_reading() {
        output::line("")?;
        for convention in CONVENTIONS.iter().chain(orders) {
            output::line(convention)?;
        }
    }
    Ok(())
}

/// Formats seconds for reading.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 600.0 => format!("{s:.2} s"),
        s if s < 36_000.0 => format!("{s:.0} s ({:.1} min)", s / 60.0),
        s => format!("{s:.0} s ({:.1} h)", s / 3600.0),
    }
}
