//! Recorded workloads of every kind as one: jobs in the order in which they were submitted, and what each asks for.
//!
//! A file is read line by line and never held whole. What is kept of a job is [`Job`], 64 bytes. A line that
//! cannot be read is skipped and told, or refused where that is asked ([`Options::is_strict`]); so is every job
//! that cannot be replayed, with the reason.

mod alcf;
mod input;
mod openb;
mod recorded;
mod sacct;
mod skip;
mod swf;
#[cfg(test)]
mod tests;

pub use input::{InputError, Line, Lines};
pub use skip::{Skip, Skipped};

use crate::cluster::Cluster;
use lattice_quorum_types::spec::Constraints;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Longest line that is kept; what is longer is no line of a trace, and could be all of a 10 GB file.
const LONGEST: u64 = 64 << 20;

/// No trace has what was submitted later, what ran for longer, or what asked for more: such a number is an error.
const YEAR_2200_MS: u64 = 7_258_118_400_000;
const DECADE_MS: u64 = 10 * 366 * 86_400_000;
const CENTURY_MS: u64 = 10 * DECADE_MS;

/// What a job has not: see the fields of [`Job`].
pub const UNKNOWN: u64 = u64::MAX;

/// One recorded job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Its number in the trace; the line where it has none.
    pub number: u64,
    /// Line in the file, from 1.
    pub line: u64,
    /// When it was submitted, milliseconds, as the trace counts time: see [`Workload::epoch_ms`].
    pub submit_ms: u64,
    /// For how long it ran, milliseconds.
    pub run_ms: u64,
    /// The run time that was asked for, milliseconds; [`UNKNOWN`] where the trace has none.
    pub estimate_ms: u64,
    /// How long it waited on the machine that was recorded, milliseconds; [`UNKNOWN`].
    pub waited_ms: u64,
    /// Processors or nodes ([`Workload::unit`]): what it asked for, else what it was given.
    pub size: u32,
    /// Who submitted it: its place in [`Workload::users`].
    pub user: u32,
    /// For whom: its place in [`Workload::tenants`].
    pub tenant: u32,
    /// What its nodes must be like: its place in [`Workload::requests`].
    pub request: u32,
}

impl Job {
    /// The run time that is planned with: what was asked for, else what it took.
    pub fn planned_ms(&self) -> u64 {
        match self.estimate_ms {
            UNKNOWN => self.run_ms,
            known => known,
        }
    }
}

/// What a job's size counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Processors or cores: several jobs may share a node.
    #[default]
    Processors,
    /// Whole nodes.
    Nodes,
}

impl Unit {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Nodes => "nodes",
        }
    }
}

/// What jobs ask for beside a size and a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The queue or partition that they were submitted to.
    pub queue: Option<String>,
    /// The quality of service that they were given.
    pub qos: Option<String>,
    /// The priority class, where the trace says it.
    pub class: Option<u8>,
    /// What their nodes must be like.
    pub constraints: Constraints,
}

/// A recorded workload.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// By submit time, then as in the file.
    pub jobs: Vec<Job>,
    /// What their sizes count.
    pub unit: Unit,
    /// Unix time, milliseconds, at which the trace's own time is 0, where the trace says so.
    pub epoch_ms: Option<u64>,
    /// How large the recorded machine was in [`Workload::unit`], where the trace says so.
    pub machine: Option<u64>,
    /// Names of users.
    pub users: Vec<String>,
    /// Names of tenants: groups, accounts or projects; users where a trace knows nothing else.
    pub tenants: Vec<String>,
    /// What jobs ask for.
    pub requests: Vec<Request>,
    /// What was not kept.
    pub skipped: Skipped,
    /// Lines read.
    pub lines: u64,
    /// What a reader of the results must know of the trace.
    pub notes: Vec<String>,
    /// The cluster that was recorded, where the trace has it.
    pub cluster: Option<Box<Cluster>>,
}

/// The kinds of traces that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Standard Workload Format of the Parallel Workloads Archive.
    Swf,
    /// `sacct --parsable2` of Slurm, with its header line.
    Sacct,
    /// Six columns as Argonne's logs are handed on: name, submit, run time, nodes, and two more.
    Alcf,
    /// Tasks of Alibaba's GPU cluster trace (cluster-trace-gpu-v2023), CSV.
    Openb,
    /// Our own: what a control's schedulers were told and decided, as `lattice replay record` writes it.
    Record,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Swf,
        Self::Sacct,
        Self::Alcf,
        Self::Openb,
        Self::Record,
    ];

    /// Its name where people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Swf => "swf",
            Self::Sacct => "sacct",
            Self::Alcf => "alcf",
            Self::Openb => "openb",
            Self::Record => "record",
        }
    }

    /// By the first line that is no comment and not empty.
    fn of(line: &str) -> Option<Self> {
        if line.starts_with(';') {
            return Some(Self::Swf);
        }
        if line.starts_with("{\"begin\"") {
            return Some(Self::Record);
        }
        let has_pipe = line.contains('|');
        if has_pipe && sacct::is_header(line) {
            return Some(Self::Sacct);
        }
        if openb::is_header(line) {
            return Some(Self::Openb);
        }
        if alcf::is_header(line) {
            return Some(Self::Alcf);
        }
        let columns = line.split_ascii_whitespace().count();
        (columns >= crate::swf::COLUMNS.len() && !has_pipe).then_some(Self::Swf)
    }
}

/// How a trace is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Its kind; `None`: found out by the first line.
    pub format: Option<Format>,
    /// Refuse the trace where a line cannot be read, in place of leaving that line out.
    pub is_strict: bool,
    /// Count jobs by this; `None`: as is usual for the kind of trace.
    pub unit: Option<Unit>,
}

/// Why a trace is not read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file.
    #[error("{}", path.display())]
    Input {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: InputError,
    },
    /// Nothing is known that looks like this.
    #[error(
        "{}, line {line}: no trace that is known begins like this: {text:?}; {}name its kind with --trace-format ({})",
        path.display(), hint(text), names()
    )]
    UnknownFormat {
        /// Of which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// As found, shortened.
        text: String,
    },
    /// A line is wrong, and none may be.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// Of which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// There is nothing to replay.
    #[error("{}: it has no job that can be replayed ({} lines, {} skipped)", path.display(), lines, skipped.total())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// Lines read.
        lines: u64,
        /// Why jobs were skipped.
        skipped: Box<Skipped>,
    },
    /// There are more jobs, users or requests than can be counted.
    #[error("{}, line {line}: more than {} jobs", path.display(), u32::MAX)]
    TooMany {
        /// Of which file.
        path: PathBuf,
        /// From 1.
        line: u64,
    },
}

fn hint(text: &str) -> &'static str {
    match text.contains('|') {
        true => {
            "an export of sacct names its columns in the first line (without --noheader); otherwise "
        }
        false => "",
    }
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

/// Reads a trace from a file.
///
/// # Errors
/// When the file cannot be read, is of no known kind, or has no job; with [`Options::is_strict`] also when a line
/// cannot be read.
pub fn open(path: &Path, options: Options) -> Result<Workload, TraceError> {
    let input = |source| TraceError::Input {
        path: path.to_owned(),
        source,
    };
    let lines = Lines::open(path).map_err(input)?;
    read(lines, path, options)
}

/// One kind of trace, line by line.
trait Reader {
    /// Reads a line that is not empty.
    ///
    /// # Errors
    /// What is wrong with it.
    fn line(&mut self, line: &Line<'_>, into: &mut Builder) -> Result<(), String>;

    /// There are no more lines.
    fn end(&mut self, into: &mut Builder) {
        let _ = into;
    }

    /// Says what holds of the whole trace.
    fn finish(&mut self, workload: &mut Workload);
}

/// Reads a trace; `path` is for messages.
///
/// # Errors
/// As [`open`].
pub fn read(lines: Lines, path: &Path, options: Options) -> Result<Workload, TraceError> {
    // What a scheduler of a large cluster knows is one line.
    let mut lines = lines.as_long_as(LONGEST);
    let mut builder = Builder::default();
    let mut reader: Option<Box<dyn Reader>> = None;
    let mut lossy = String::new();
    while let Some(line) = lines.next(&mut lossy).map_err(|source| TraceError::Input {
        path: path.to_owned(),
        source,
    })? {
        if line.text.is_empty() {
            continue;
        }
        let reader = match &mut reader {
            Some(reader) => reader,
            None => {
                let found = options.format.or_else(|| Format::of(line.text));
                let format = found.ok_or_else(|| TraceError::UnknownFormat {
                    path: path.to_owned(),
                    line: line.number,
                    text: line.text.chars().take(60).collect(),
                })?;
                reader.insert(new_reader(format, options.unit))
            }
        };
        let read = match line.is_cut {
            true => Err(format!("it is longer than {} MiB", LONGEST >> 20)),
            false => reader.line(&line, &mut builder),
        };
        if let Err(reason) = read {
            if options.is_strict {
                return Err(TraceError::Line {
                    path: path.to_owned(),
                    line: line.number,
                    reason,
                });
            }
            builder.skip(line.number, Skip::NotRead, || reason);
        }
        if builder.is_full {
            return Err(TraceError::TooMany {
                path: path.to_owned(),
                line: line.number,
            });
        }
    }
    if let Some(reader) = &mut reader {
        reader.end(&mut builder);
    }
    let mut workload = builder.done(lines.count());
    if let Some(reader) = &mut reader {
        reader.finish(&mut workload);
    }
    if workload.jobs.is_empty() {
        return Err(TraceError::Empty {
            path: path.to_owned(),
            lines: workload.lines,
            skipped: Box::new(workload.skipped),
        });
    }
    Ok(workload)
}

fn new_reader(format: Format, unit: Option<Unit>) -> Box<dyn Reader> {
    match format {
        Format::Swf => Box::new(swf::Swf::new(unit)),
        Format::Sacct => Box::new(sacct::Sacct::new(unit)),
        Format::Alcf => Box::new(alcf::Alcf),
        Format::Openb => Box::new(openb::Openb::default()),
        Format::Record => Box::new(recorded::Recorded::default()),
    }
}

/// Collects jobs, each name once.
#[derive(Debug, Default)]
struct Builder {
    jobs: Vec<Job>,
    skipped: Skipped,
    users: Names<String>,
    tenants: Names<String>,
    requests: Names<Request>,
    is_full: bool,
}

impl Builder {
    fn skip(&mut self, line: u64, why: Skip, detail: impl FnOnce() -> String) {
        self.skipped.add(line, why, detail);
    }

    fn push(&mut self, job: Job) {
        let asked_ms = Some(job.estimate_ms).filter(|ms| *ms != UNKNOWN);
        let is_real = job.submit_ms < YEAR_2200_MS && job.run_ms <= DECADE_MS;
        if !is_real || asked_ms.is_some_and(|ms| ms > CENTURY_MS) {
            return self.skip(job.line, Skip::Implausible, String::new);
        }
        self.is_full |= self.jobs.len() >= u32::MAX as usize;
        self.jobs.push(job);
    }

    fn done(mut self, lines: u64) -> Workload {
        // As they stand in the file where they came in the same second.
        let place = |job: &Job| (job.submit_ms, job.line);
        // Sorting takes half as much again as there is, and most are in order.
        if !self.jobs.is_sorted_by_key(place) {
            self.jobs.sort_by_key(place);
        }
        self.jobs.shrink_to_fit();
        Workload {
            jobs: self.jobs,
            users: self.users.list,
            tenants: self.tenants.list,
            requests: self.requests.list,
            skipped: self.skipped,
            lines,
            ..Workload::default()
        }
    }
}

/// Things by number, each once.
#[derive(Debug)]
struct Names<T> {
    list: Vec<T>,
    places: BTreeMap<T, u32>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Clone> Names<T> {
    fn number<Q: Ord + ?Sized + ToOwned<Owned = T>>(&mut self, name: &Q) -> u32
    where
        T: std::borrow::Borrow<Q>,
    {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        // Fewer than jobs, of which there are not 2^32.
        let place = self.list.len() as u32;
        self.list.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }
}
