//! Workload and machine of a replay: the options that all replay commands share.

use super::print_message;
use crate::{
    block_on,
    connect::Connection,
    failure::Failure,
    output::Format,
    waiting::{NoticeTimes, next_item},
};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use lattice_quorum_types::spec::Constraints;
use lattice_replay::{
    cluster::{self, Cluster, Machines, Schedulers},
    run::Machine,
    trace::{self, Unit, Workload},
    workload::{self, FitChanges, Overrun},
};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Workload options.
#[derive(Args)]
pub struct TraceArgs {
    /// Recorded workload: a file, plain, gzip or zstd.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Trace format; left out: detected from the first line that is not empty.
    #[arg(long, value_enum)]
    trace_format: Option<TraceFormat>,
    /// Unit of a job's size; left out: the usual one of the trace format.
    #[arg(long, value_enum)]
    unit: Option<UnitArg>,
    /// Reject a trace with an unreadable line, instead of skipping the line.
    #[arg(long)]
    strict: bool,
    /// Replay a trace even if more than 1 % of its jobs cannot be read.
    #[arg(long, conflicts_with = "strict")]
    allow_skipped: bool,
    /// Replay only this number of jobs, from the start.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    first: Option<usize>,
    /// Factor on the rate of submits: 1.5 is a 50 % higher load.
    #[arg(long, value_name = "TIMES", value_parser = times, allow_negative_numbers = true)]
    arrivals: Option<f64>,
    /// Jobs that ran longer than requested: end them at their walltime, or extend the walltime to their run time.
    #[arg(long, value_enum, default_value_t)]
    overrun: OverrunArg,
}

/// Machine options.
#[derive(Args)]
#[group(required = false, multiple = false)]
pub struct MachineArgs {
    /// Number of identical processors or nodes; left out: that of the trace.
    #[arg(long, value_name = "N", help_heading = "Machine")]
    procs: Option<u64>,
    /// Description of the cluster (YAML), or Alibaba's list of nodes (CSV).
    #[arg(long, value_name = "FILE", help_heading = "Machine")]
    cluster: Option<PathBuf>,
    /// Real machine, by name.
    #[arg(long, value_enum, help_heading = "Machine")]
    machine: Option<MachineName>,
    /// Use the live cluster, in the present state of its schedulers: nodes, vClusters with their weights, projects with
    /// their limits. For operators.
    #[arg(long, help_heading = "Machine")]
    from_live: bool,
    /// Dragonfly of GROUPS groups with NODES nodes each: 12x366.
    #[arg(long, value_name = "GROUPSxNODES", value_parser = dragonfly, help_heading = "Machine")]
    dragonfly: Option<(u64, u64)>,
}

/// Machine options that combine with any of the others.
#[derive(Args)]
pub struct NodeArgs {
    /// Convert a trace in processors to nodes with this number of processors each, rounded up.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Machine")]
    procs_per_node: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TraceFormat {
    Swf,
    Sacct,
    Alcf,
    Openb,
    Record,
}

#[derive(Clone, Copy, ValueEnum)]
enum UnitArg {
    Processors,
    Nodes,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum OverrunArg {
    #[default]
    End,
    Extend,
}

#[derive(Clone, Copy, ValueEnum)]
enum MachineName {
    Frontier,
    Perlmutter,
    Alps,
}

fn dragonfly(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text:?} is not groups and nodes such as 12x366");
    let (groups, nodes) = text.split_once('x').ok_or_else(wrong)?;
    let number = |text: &str| {
        text.parse::<u64>()
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(wrong)
    };
    Ok((number(groups)?, number(nodes)?))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "it must be a number of at least 1".to_owned())
}

fn times(text: &str) -> Result<f64, String> {
    let times: f64 = text.parse().map_err(|_| "it must be a number".to_owned())?;
    match times.is_finite() && times > 0.0 {
        true => Ok(times),
        false => Err("it must be a number above 0".to_owned()),
    }
}

/// Workload and machine to replay.
pub struct Source {
    /// Workload, fitted to the machine.
    pub workload: Workload,
    /// Machine.
    pub machine: Machine,
    /// Changes that were needed to fit the workload.
    pub fit_changes: FitChanges,
    /// Name of the trace.
    pub name: String,
}

impl Source {
    /// Reads workload and machine, and prints on standard error the skipped lines and other notes.
    pub fn open(
        trace: &TraceArgs,
        machine: &MachineArgs,
        nodes: &NodeArgs,
        context: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut workload = trace.read()?;
        let name = trace.trace.file_name().unwrap_or(trace.trace.as_os_str());
        let name = name.to_string_lossy().into_owned();
        trace.check_losses(&name, &mut workload)?;
        if let Some(per_node) = nodes.procs_per_node {
            workload::count_in_nodes(&mut workload, per_node);
        }
        let machine = machine.read(&mut workload, nodes, context)?;
        note_hardware(&mut workload, &machine);
        let fitted = workload::fit(&mut workload, machine.size(), trace.overrun());
        if let Some(first) = trace.first {
            workload.jobs.truncate(first);
        }
        if let Some(times) = trace.arrivals {
            workload::speed_up(&mut workload, times);
        }
        if workload.jobs.is_empty() {
            let (unit, size) = (workload.unit.name(), machine.size());
            print_notes(&name, &workload, FitChanges::default());
            return Err(Failure::refused(format!(
                "{}: no job fits a machine of {size} {unit}",
                trace.trace.display()
            )));
        }
        print_notes(&name, &workload, fitted);
        Ok(Self {
            workload,
            machine,
            fit_changes: fitted,
            name,
        })
    }
}

/// Adds a note if jobs request hardware that the machine does not describe, or if processors count as nodes.
fn note_hardware(workload: &mut Workload, machine: &Machine) {
    let is_known = match machine {
        Machine::Alike(_) => false,
        Machine::Cluster(cluster) => cluster.has_hardware(),
    };
    let asks = |job: &trace::Job| {
        let request = workload.requests.get(job.request as usize);
        request.is_some_and(|request| request.constraints != Constraints::default())
    };
    let asking = workload.jobs.iter().filter(|job| asks(job)).count();
    if asking > 0 && !is_known {
        workload.notes.push(format!(
            "{asking} jobs request GPUs, memory or features; these requests are ignored, as the \
             nodes of this machine are not described (--cluster describes them)"
        ));
    }
    if let (Machine::Cluster(cluster), Unit::Processors) = (machine, workload.unit)
        && cluster.has_groups()
    {
        let note = "sizes are processors, and each counts as one node here; --procs-per-node \
            counts them in nodes";
        workload.notes.push(note.to_owned());
    }
}

fn print_skipped(name: &str, workload: &Workload) {
    for description in workload.skipped.descriptions() {
        print_message(format!("{name}: {description}"));
    }
}

fn print_notes(name: &str, workload: &Workload, fitted: FitChanges) {
    print_skipped(name, workload);
    for note in workload.notes.iter().cloned().chain(fitted.descriptions()) {
        print_message(format!("note: {note}"));
    }
}

impl TraceArgs {
    fn read(&self) -> Result<Workload, Failure> {
        let options = trace::Options {
            format: self.trace_format.map(|format| match format {
                TraceFormat::Swf => trace::Format::Swf,
                TraceFormat::Sacct => trace::Format::Sacct,
                TraceFormat::Alcf => trace::Format::Alcf,
                TraceFormat::Openb => trace::Format::Openb,
                TraceFormat::Record => trace::Format::Record,
            }),
            is_strict: self.strict,
            unit: self.unit.map(|unit| match unit {
                UnitArg::Processors => Unit::Processors,
                UnitArg::Nodes => Unit::Nodes,
            }),
        };
        let read = trace::open(&self.trace, options);
        if let Err(trace::TraceError::Empty { skipped, .. }) = &read {
            skipped.descriptions().iter().for_each(print_message);
        }
        Ok(read.map_err(anyhow::Error::from)?)
    }

    /// Rejects a trace that lost more than a few jobs, unless `--allow-skipped` permits it. Notes the number of lost
    /// jobs.
    fn check_losses(&self, name: &str, workload: &mut Workload) -> Result<(), Failure> {
        let lost = match workload.check_losses() {
            Ok(lost) => lost,
            Err(error) if self.allow_skipped => error.lost,
            Err(error) => {
                print_skipped(name, workload);
                return Err(Failure::refused(format!(
                    "{name}: {error}; correct the trace, or replay the other jobs with --allow-skipped"
                )));
            }
        };
        if lost > 0 {
            let jobs = lost + workload.jobs.len() as u64;
            workload.notes.push(format!(
                "{lost} of {jobs} jobs are lost, and the replay lacks them"
            ));
        }
        Ok(())
    }

    fn overrun(&self) -> Overrun {
        match self.overrun {
            OverrunArg::End => Overrun::End,
            OverrunArg::Extend => Overrun::Extend,
        }
    }
}

impl MachineArgs {
    fn read(
        &self,
        workload: &mut Workload,
        nodes: &NodeArgs,
        context: Option<&Path>,
    ) -> Result<Machine, Failure> {
        if self.from_live {
            return Ok(boxed(live_cluster(context)?));
        }
        if let Some(path) = &self.cluster {
            return Ok(boxed(open(path)?));
        }
        if let Some(name) = self.machine {
            let name = match name {
                MachineName::Frontier => cluster::Machine::Frontier,
                MachineName::Perlmutter => cluster::Machine::Perlmutter,
                MachineName::Alps => cluster::Machine::Alps,
            };
            let made = Machines::known().and_then(|known| known.cluster(name));
            return Ok(boxed(made.map_err(anyhow::Error::from)?));
        }
        if let Some((groups, nodes)) = self.dragonfly {
            let made = Cluster::dragonfly(groups, nodes).map_err(anyhow::Error::from)?;
            return Ok(boxed(made));
        }
        if let (None, Some(cluster)) = (self.procs, &workload.cluster) {
            let note = "the machine is the cluster that was recorded: every node that was in service \
                        at some time, limits and weights as they were in the end";
            workload.notes.push(note.to_owned());
            return Ok(Machine::Cluster(cluster.clone()));
        }
        let size = self.procs.or_else(|| {
            let said = workload.machine?;
            let unit = workload.unit.name();
            let of = match nodes.procs_per_node {
                Some(each) if workload.unit == Unit::Nodes => format!(" of {each} processors each"),
                _ => String::new(),
            };
            workload.notes.push(format!(
                "the machine has {said} {unit}{of}, according to the trace"
            ));
            Some(said)
        });
        let Some(size) = size else {
            return Err(Failure::usage(
                "the trace does not give the size of its machine: name one with --procs, \
                 --cluster, --machine or --dragonfly",
            ));
        };
        match size {
            0 => Err(Failure::usage(
                "--procs: a machine has at least one processor",
            )),
            _ if u32::try_from(size).is_err() => Err(Failure::usage(format!(
                "--procs: {size} is more than {}",
                u32::MAX
            ))),
            _ => Ok(Machine::Alike(size)),
        }
    }
}

/// Builds the cluster from the newest decisions of the contacted control.
fn live_cluster(context: Option<&Path>) -> Result<Cluster, Failure> {
    let connection = Connection::open(context, Format::Json)?;
    let mut known = Schedulers::default();
    block_on(async {
        // A scheduler plans at least every few seconds, and each plan has the weights.
        let mut pieces = connection.client.decisions(Some("1m")).await?;
        let mut rest: Vec<u8> = Vec::new();
        let mut notices = NoticeTimes::new(Instant::now());
        let what = || "the newest decisions of the schedulers".to_owned();
        while let Some(piece) = next_item(&mut pieces, &mut notices, what).await {
            rest.extend_from_slice(&piece?);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                known
                    .apply_line(&line)
                    .context("the control's record of decisions")?;
            }
        }
        Ok(())
    })?;
    let cluster = known.cluster();
    match cluster.nodes.is_empty() {
        false => Ok(cluster),
        true => Err(Failure::refused(
            "the contacted control schedules no vCluster with nodes; contact the one that does",
        )),
    }
}

fn open(path: &Path) -> Result<Cluster, Failure> {
    Ok(Cluster::open(path).context("the cluster's description")?)
}

fn boxed(cluster: Cluster) -> Machine {
    Machine::Cluster(Box::new(cluster))
}
