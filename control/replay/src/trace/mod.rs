//! Recorded workloads of every format in one form: jobs in order of submission, and their requests.
//!
//! A file is read line by line and never stored in full. [`Job`], the stored part of a job, has 64 bytes. A line that
//! cannot be read is skipped and reported; with [`Options::is_strict`] it rejects the trace. A job that cannot be
//! replayed is skipped and reported with the reason.

mod alcf;
mod openb;
mod recorded;
mod sacct;
mod skip;
mod swf;
#[cfg(test)]
mod tests;

pub use skip::{SkipReason, SkippedLines};

use crate::{
    cluster::Cluster,
    lines::{InputError, Line, Lines},
    request::Request,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Longest stored line, bytes. A longer line is not a valid line of a trace, and could fill the memory.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Bounds of plausible values: submissions until 2200, run times of a decade, estimates of a century.
const YEAR_2200_MS: u64 = 7_258_118_400_000;
const DECADE_MS: u64 = 10 * 366 * 86_400_000;
const CENTURY_MS: u64 = 10 * DECADE_MS;

/// Marks an absent value in the fields of [`Job`].
pub const UNKNOWN: u64 = u64::MAX;

/// One recorded job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Number of the job in the trace; the line number if the trace has none.
    pub number: u64,
    /// Line in the file, from 1.
    pub line: u64,
    /// Submission, or the later time at which the job became eligible, milliseconds of the trace's own time: see
    /// [`Workload::epoch_ms`].
    pub submit_ms: u64,
    /// Run time, milliseconds.
    pub run_ms: u64,
    /// Requested run time, milliseconds; [`UNKNOWN`] if the trace has none.
    pub estimate_ms: u64,
    /// Wait on the recorded machine, milliseconds; [`UNKNOWN`] if the trace has none.
    pub waited_ms: u64,
    /// Number of processors or nodes ([`Workload::unit`]), requested or allocated; of `sacct`, the allocated number if
    /// given.
    pub size: u32,
    /// Index of the user in [`Workload::users`].
    pub user: u32,
    /// Index of the tenant in [`Workload::tenants`].
    pub tenant: u32,
    /// Index of the request in [`Workload::requests`].
    pub request: u32,
}

impl Job {
    /// Run time for planning, milliseconds: the estimate, otherwise the real run time.
    pub fn planned_ms(&self) -> u64 {
        match self.estimate_ms {
            UNKNOWN => self.run_ms,
            known => known,
        }
    }
}

/// Unit of a job's size.
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
    /// Name of the unit in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Nodes => "nodes",
        }
    }
}

/// A recorded workload.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Jobs by submit time, then in the order of the file.
    pub jobs: Vec<Job>,
    /// Unit of sizes.
    pub unit: Unit,
    /// Unix time at time 0 of the trace, milliseconds; `None` if the trace does not give it.
    pub epoch_ms: Option<u64>,
    /// Size of the recorded machine in [`Workload::unit`]; `None` if the trace does not give it.
    pub machine: Option<u64>,
    /// Names of users.
    pub users: Vec<String>,
    /// Names of tenants: groups, accounts or projects; the users if a trace has none of these.
    pub tenants: Vec<String>,
    /// Distinct requests of jobs.
    pub requests: Vec<Request>,
    /// Skipped lines and jobs.
    pub skipped: SkippedLines,
    /// Number of lines read.
    pub lines: u64,
    /// Notes on the trace, shown with the results.
    pub notes: Vec<String>,
    /// Cluster on which the workload was recorded; `None` if the trace does not have it.
    pub cluster: Option<Box<Cluster>>,
}

/// Largest share of jobs that a trace may lose, percent. Jobs that cannot be read are often of one kind, such as the
/// largest ones, and without them the replay has other waits and another utilization.
const MAX_LOST_PERCENT: u64 = 1;

impl Workload {
    /// Jobs that the trace lost ([`SkippedLines::lost`]), unless they are few.
    ///
    /// # Errors
    /// When more than 1 % of the jobs are lost.
    pub fn check_losses(&self) -> Result<u64, TooManyLost> {
        let lost = self.skipped.lost();
        let jobs = lost + self.jobs.len() as u64;
        match lost * 100 > MAX_LOST_PERCENT * jobs {
            true => Err(TooManyLost { lost, jobs }),
            false => Ok(lost),
        }
    }
}

/// Error of a trace that lost too many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{lost} of {jobs} jobs ({:.1} %) are lost, and at most {MAX_LOST_PERCENT} % may be: a replay without them has \
     another load than the recorded one",
    percent(*lost, *jobs)
)]
pub struct TooManyLost {
    /// Number of lost jobs.
    pub lost: u64,
    /// Number of jobs, lost ones included.
    pub jobs: u64,
}

fn percent(lost: u64, jobs: u64) -> f64 {
    100.0 * lost as f64 / jobs as f64
}

/// Trace formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Standard Workload Format of the Parallel Workloads Archive.
    Swf,
    /// `sacct --parsable2` of Slurm, with its header line.
    Sacct,
    /// Six columns of published Argonne logs: name, submit, run time, nodes, and two more.
    Alcf,
    /// Tasks of Alibaba's GPU cluster trace (cluster-trace-gpu-v2023), CSV.
    Openb,
    /// Lattice's own format: inputs and decisions of a control's schedulers, as `lattice replay record` writes them.
    Record,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [
        Self::Swf,
        Self::Sacct,
        Self::Alcf,
        Self::Openb,
        Self::Record,
    ];

    /// Name of the format on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Swf => "swf",
            Self::Sacct => "sacct",
            Self::Alcf => "alcf",
            Self::Openb => "openb",
            Self::Record => "record",
        }
    }

    /// Detects the format from the first line that is not empty.
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

/// Options for reading a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Format; `None`: detected from the first line that is not empty.
    pub format: Option<Format>,
    /// Whether a line that cannot be read rejects the trace, instead of being skipped.
    pub is_strict: bool,
    /// Unit of sizes in [`Format::Swf`] and [`Format::Sacct`]; `None`: the default of the format. Other formats have
    /// nodes.
    pub unit: Option<Unit>,
}

/// Error of reading a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// File unreadable.
    #[error("{}", path.display())]
    Input {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: InputError,
    },
    /// Unknown format.
    #[error(
        "{}, line {line}: unknown trace format: the first line is {text:?}; {}set --trace-format ({})",
        path.display(), hint(text), names()
    )]
    UnknownFormat {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Text of the line, shortened.
        text: String,
    },
    /// A line cannot be read, and [`Options::is_strict`] is set.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Reason.
        reason: String,
    },
    /// No job can be replayed.
    #[error("{}: no job can be replayed ({} lines, {} skipped)", path.display(), lines, skipped.total())]
    Empty {
        /// Path of the file.
        path: PathBuf,
        /// Number of lines read.
        lines: u64,
        /// Skipped jobs with reasons.
        skipped: Box<SkippedLines>,
    },
    /// More than 2^32 - 1 jobs.
    #[error("{}, line {line}: more than {} jobs", path.display(), u32::MAX)]
    TooMany {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
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
/// When the file cannot be read, has an unknown format, no job that can be replayed or too many jobs; with
/// [`Options::is_strict`] also when a line cannot be read.
pub fn open(path: &Path, options: Options) -> Result<Workload, TraceError> {
    let input = |source| TraceError::Input {
        path: path.to_owned(),
        source,
    };
    let lines = Lines::open(path).map_err(input)?;
    read(lines, path, options)
}

/// Reader for one trace format, line by line.
trait Reader {
    /// Reads a line that is not empty.
    ///
    /// # Errors
    /// The reason why the line cannot be read.
    fn line(&mut self, line: &Line<'_>, into: &mut Builder) -> Result<(), String>;

    /// Completes the jobs after the last line.
    fn end(&mut self, into: &mut Builder) {
        let _ = into;
    }

    /// Sets the properties of the trace, such as unit and epoch.
    fn finish(&mut self, workload: &mut Workload);
}

/// Reads a trace; `path` is for error messages.
///
/// # Errors
/// As for [`open`].
pub fn read(lines: Lines, path: &Path, options: Options) -> Result<Workload, TraceError> {
    // A line may be long: in a scheduling record, the view of a large cluster is a single line.
    let mut lines = lines.with_max_line_bytes(MAX_LINE_BYTES);
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
            true => Err(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)),
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
            builder.skip(line.number, SkipReason::NotRead, || reason);
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
        Format::Record => Box::new(recorded::RecordedTrace::default()),
    }
}

/// Collects jobs and skipped lines, with tables of users, tenants and requests.
#[derive(Debug, Default)]
struct Builder {
    jobs: Vec<Job>,
    skipped: SkippedLines,
    users: NameTable<String>,
    tenants: NameTable<String>,
    requests: NameTable<Request>,
    is_full: bool,
}

impl Builder {
    fn skip(&mut self, line: u64, why: SkipReason, detail: impl FnOnce() -> String) {
        self.skipped.add(line, why, detail);
    }

    fn push(&mut self, job: Job) {
        let asked_ms = Some(job.estimate_ms).filter(|ms| *ms != UNKNOWN);
        let is_real = job.submit_ms < YEAR_2200_MS && job.run_ms <= DECADE_MS;
        if !is_real || asked_ms.is_some_and(|ms| ms > CENTURY_MS) {
            return self.skip(job.line, SkipReason::Implausible, String::new);
        }
        self.is_full |= self.jobs.len() >= u32::MAX as usize;
        self.jobs.push(job);
    }

    fn done(mut self, lines: u64) -> Workload {
        // Jobs with the same submit time keep the order of the file.
        let place = |job: &Job| (job.submit_ms, job.line);
        // Sorting needs additional memory, half the size of the jobs, and most traces are in order.
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

/// Distinct values, each with a number.
#[derive(Debug)]
struct NameTable<T> {
    list: Vec<T>,
    places: BTreeMap<T, u32>,
}

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Clone> NameTable<T> {
    fn number<Q: Ord + ?Sized + ToOwned<Owned = T>>(&mut self, name: &Q) -> u32
    where
        T: std::borrow::Borrow<Q>,
    {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        // A job adds at most one value to a table, and there are at most 2^32 jobs.
        let place = self.list.len() as u32;
        self.list.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }
}
