//! Reader for the output of `sacct --parsable2` (or `--parsable`). A header line names the columns; each further line
//! is a job or a job step, with columns separated by `|`. Columns may be in any order. Required are `JobID`, `Submit`,
//! a size, and the run time (`ElapsedRaw`, `Elapsed`, or `Start` and `End`).
//!
//! Times are Slurm's local times without a zone, or Unix seconds (`SLURM_TIME_FORMAT=%s`). Counts may have a unit, as
//! sacct writes them without `--noconvert`: `1.50K` nodes are 1,536.
//!
//! A requeued job has one line for each run (`sacct --duplicates`), and each run becomes a job of the workload. A job
//! that ran but lacks a value is an error of its line, so that no work is lost without notice.

mod count;
mod gpus;
mod requeues;

use super::{Builder, Job, Reader, SkipReason, UNKNOWN, Unit, Workload};
use crate::{lines::Line, request::Request};
use count::Count;
use jiff::civil::DateTime;
use requeues::{JobKey, Runs};

const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;

/// Names of columns. Of several columns with the same meaning, the first one with a value counts.
const JOB_ID: &str = "JobID";
const RAW_ID: &str = "JobIDRaw";
const SUBMIT: &str = "Submit";
const ELIGIBLE: &str = "Eligible";
const NODES: [&str; 3] = ["AllocNodes", "NNodes", "ReqNodes"];
const CPUS: [&str; 3] = ["AllocCPUS", "NCPUS", "ReqCPUS"];
const TRES: [&str; 2] = ["AllocTRES", "ReqTRES"];
/// Generic resources in exports of Slurm before 20.11, which may have no GPUs in the columns of TRES.
const GRES: [&str; 2] = ["AllocGRES", "ReqGRES"];
/// Texts that mean an absent value.
const ABSENT_TEXTS: [&str; 5] = ["", "Unknown", "None", "N/A", "INVALID"];
/// States of jobs that have not ended.
const UNFINISHED_STATES: [&str; 8] = [
    "RUNNING",
    "PENDING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
];

pub(super) fn is_header(line: &str) -> bool {
    line.split('|')
        .any(|name| name.eq_ignore_ascii_case(JOB_ID))
}

/// Reader for the output of sacct.
#[derive(Debug, Default)]
pub(super) struct Sacct {
    columns: Vec<String>,
    unit: Unit,
    has_local_times: bool,
    steps: u64,
    /// Jobs that became eligible later than their submission.
    late: u64,
    /// Jobs with a size that sacct rounded.
    rounded: u64,
    runs: Runs,
    /// Lines of requeued jobs after the first line of each.
    requeued: u64,
}

impl Sacct {
    pub(super) fn new(unit: Option<Unit>) -> Self {
        Self {
            unit: unit.unwrap_or(Unit::Nodes),
            ..Self::default()
        }
    }
}

/// Cells of one line.
struct Row<'a> {
    columns: &'a [String],
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// Returns the cell of a column; `None` if the column is missing or has no value.
    fn get(&self, name: &str) -> Option<&'a str> {
        let place = self
            .columns
            .iter()
            .position(|column| column.eq_ignore_ascii_case(name))?;
        let cell = self.cells.get(place)?.trim();
        (!ABSENT_TEXTS.contains(&cell)).then_some(cell)
    }

    /// Whole number without a unit, such as seconds.
    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let wrong = |_| format!("{name}: {text:?} is not a whole number");
        text.parse().map(Some).map_err(wrong)
    }

    /// First count above 0 in these columns.
    fn count(&self, names: &[&str]) -> Result<Option<Count>, String> {
        for name in names {
            let Some(text) = self.get(name) else { continue };
            let count = count::read(text).ok_or_else(|| count::not_a_count(name, text))?;
            if count.value > 0 {
                return Ok(Some(count));
            }
        }
        Ok(None)
    }

    /// First count above 0 of a resource in the columns of TRES, such as `node`.
    fn resource(&self, resource: &str) -> Result<Option<Count>, String> {
        for column in TRES {
            let Some(text) = self.get(column) else {
                continue;
            };
            let of_resource = |(name, _): &(&str, &str)| *name == resource;
            let Some((_, value)) = resources(text).find(of_resource) else {
                continue;
            };
            let field = || format!("{column}: {resource}");
            let count = count::read(value).ok_or_else(|| count::not_a_count(&field(), value))?;
            if count.value > 0 {
                return Ok(Some(count));
            }
        }
        Ok(None)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }
}

/// Names and values in text such as `billing=64,cpu=64,gres/gpu:a100=8,mem=1T,node=2`.
fn resources(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').filter_map(|part| part.split_once('='))
}

impl Reader for Sacct {
    fn line(&mut self, line: &Line<'_>, into: &mut Builder) -> Result<(), String> {
        if is_header(line.text) {
            return self.header(line.text);
        }
        if self.columns.is_empty() {
            return Err(
                "the first line must name the columns (sacct without --noheader)".to_owned(),
            );
        }
        if line.is_lossy {
            return Err("it is not UTF-8 text".to_owned());
        }
        let mut cells: Vec<&str> = line.text.split('|').collect();
        // With --parsable, each line ends with a separator.
        if cells.len() == self.columns.len() + 1 && cells.last() == Some(&"") {
            cells.pop();
        }
        if cells.len() != self.columns.len() {
            let (found, wanted) = (cells.len(), self.columns.len());
            return Err(format!(
                "the line has {found} columns, the header has {wanted}"
            ));
        }
        let columns = std::mem::take(&mut self.columns);
        let row = Row {
            columns: &columns,
            cells,
        };
        let job = self.job(line.number, &row, into);
        let id = row.get(RAW_ID).or_else(|| row.get(JOB_ID));
        let key = id.and_then(JobKey::read);
        self.columns = columns;
        match job? {
            Ok(job) => {
                let place = into.jobs.len();
                into.push(job);
                // An implausible job was skipped.
                if into.jobs.len() > place
                    && let Some(key) = key
                {
                    self.runs.add(key, place);
                }
            }
            // Steps are not jobs; they are counted but not reported as skipped.
            Err(SkipReason::PartOfAJob) => self.steps += 1,
            Err(why) => into.skip(line.number, why, String::new),
        }
        Ok(())
    }

    fn end(&mut self, into: &mut Builder) {
        self.requeued = self.runs.separate(into);
    }

    fn finish(&mut self, workload: &mut Workload) {
        workload.unit = self.unit;
        // Times without a zone are read as UTC, because only differences between times matter.
        workload.epoch_ms = Some(0);
        if self.has_local_times {
            let note = "times have no time zone: a change to or from daylight saving time shifts them by an hour";
            workload.notes.push(note.to_owned());
        }
        if self.late > 0 {
            let late = self.late;
            workload.notes.push(format!(
                "{late} jobs became eligible after their submission: the replay submits them at their eligible time"
            ));
        }
        if self.steps > 0 {
            let steps = self.steps;
            let note = format!("{steps} lines are steps of jobs; their jobs are replayed");
            workload.notes.push(note);
        }
        if self.requeued > 0 {
            let requeued = self.requeued;
            workload.notes.push(format!(
                "{requeued} lines are later runs of requeued jobs: each run is replayed as a job of its own, submitted \
                 at the end of the run before it at the earliest"
            ));
        }
        if self.rounded > 0 {
            let rounded = self.rounded;
            workload.notes.push(format!(
                "{rounded} sizes were rounded by sacct (such as 1.46K): export with --noconvert for the exact numbers"
            ));
        }
        let has = |wanted: &&str| {
            self.columns
                .iter()
                .any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if !TRES.iter().chain(&GRES).any(has) {
            let note = "the export has no AllocTRES column: GPUs of jobs are unknown";
            workload.notes.push(note.to_owned());
        }
    }
}

impl Sacct {
    fn header(&mut self, line: &str) -> Result<(), String> {
        let names: Vec<String> = line
            .trim_end_matches('|')
            .split('|')
            .map(str::to_owned)
            .collect();
        let has = |name: &str| names.iter().any(|column| column.eq_ignore_ascii_case(name));
        let sizes = self.size_columns();
        let runs = has("ElapsedRaw") || has("Elapsed") || (has("Start") && has("End"));
        let missing = [
            (has(SUBMIT), SUBMIT.to_owned()),
            (sizes.iter().any(|name| has(name)), sizes.join(" or ")),
            (runs, "ElapsedRaw or Elapsed, or Start and End".to_owned()),
        ];
        let missing: Vec<String> = missing
            .into_iter()
            .filter(|(is, _)| !is)
            .map(|(_, name)| name)
            .collect();
        if !missing.is_empty() {
            let missing = missing.join("; ");
            return Err(format!(
                "columns are missing: {missing}. Export with: sacct --parsable2 --noconvert --duplicates --allusers \
                 --format JobID,JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,\
                 AllocNodes,AllocCPUS,AllocTRES,State"
            ));
        }
        self.columns = names;
        Ok(())
    }

    fn job(
        &mut self,
        line: u64,
        row: &Row<'_>,
        into: &mut Builder,
    ) -> Result<Result<Job, SkipReason>, String> {
        let id = row.get(JOB_ID).unwrap_or_default();
        // A job step, such as 123.batch or 123.0.
        if id.contains('.') {
            return Ok(Err(SkipReason::PartOfAJob));
        }
        let Some(submitted_ms) = self.time(row, SUBMIT)? else {
            return Ok(Err(SkipReason::NoSubmitTime));
        };
        // The job could not start before its eligible time, because of a dependency or a begin time.
        let eligible_ms = self.time(row, ELIGIBLE)?.filter(|at| *at > submitted_ms);
        let submit_ms = eligible_ms.unwrap_or(submitted_ms);
        let (start, end) = (self.time(row, "Start")?, self.time(row, "End")?);
        let state = row.get("State").unwrap_or_default();
        if UNFINISHED_STATES.iter().any(|is| state.starts_with(is)) {
            return Ok(Err(SkipReason::StillRunning));
        }
        let run_ms = run_ms(row, start, end)?;
        let size = self.size(row)?;
        let (run_ms, size) = match (run_ms, size) {
            (None, _) if start.is_none() && !has_run(state) => {
                return Ok(Err(SkipReason::NoRunTime));
            }
            (None, _) => return Err("the job ran, but has no run time and no end".to_owned()),
            (Some(0), None) => return Ok(Err(SkipReason::NoSize)),
            // Usually, such a job was cancelled before it started.
            (Some(0), _) if start.is_none() => return Ok(Err(SkipReason::NoRunTime)),
            (Some(0), _) => return Ok(Err(SkipReason::ZeroRunTime)),
            (Some(_), None) => {
                let columns = self.size_columns().join(", ");
                return Err(format!("the job ran, but has no size in {columns}"));
            }
            (Some(run_ms), Some(size)) => (run_ms, size),
        };
        let too_large = |_| format!("the size {} is more than {}", size.value, u32::MAX);
        let nodes_or_cpus = u32::try_from(size.value).map_err(too_large)?;
        self.rounded += u64::from(size.is_rounded);
        self.late += u64::from(eligible_ms.is_some());
        let user = row.get("User").unwrap_or("unknown");
        let tenant = row.get("Account").unwrap_or(user);
        let request = Request {
            queue: row.text("Partition"),
            qos: row.text("QOS"),
            class: None,
            constraints: gpus::constraints(row)?,
        };
        // Elements of an array share the job number; only the raw number differs.
        let id = row.get(RAW_ID).unwrap_or(id);
        let digits = id.split(|c: char| !c.is_ascii_digit()).next();
        Ok(Ok(Job {
            number: digits
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(line),
            line,
            submit_ms,
            run_ms,
            estimate_ms: limit_ms(row)?.unwrap_or(UNKNOWN),
            waited_ms: start.map_or(UNKNOWN, |start| start.saturating_sub(submit_ms)),
            size: nodes_or_cpus,
            user: into.users.number(user),
            tenant: into.tenants.number(tenant),
            request: into.requests.number(&request),
        }))
    }

    fn size_columns(&self) -> [&'static str; 3] {
        match self.unit {
            Unit::Nodes => NODES,
            Unit::Processors => CPUS,
        }
    }

    /// Allocated or requested size; `None` if it is 0 or absent.
    fn size(&self, row: &Row<'_>) -> Result<Option<Count>, String> {
        let resource = match self.unit {
            Unit::Nodes => "node",
            Unit::Processors => "cpu",
        };
        match row.count(&self.size_columns())? {
            None => row.resource(resource),
            found => Ok(found),
        }
    }

    fn time(&mut self, row: &Row<'_>, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = row.get(name) else {
            return Ok(None);
        };
        if let Ok(seconds) = text.parse::<u64>() {
            return Ok(seconds.checked_mul(SECOND_MS));
        }
        self.has_local_times = true;
        let wrong = || {
            format!("{name}: {text:?} is not a time such as 2026-01-31T23:59:59 or Unix seconds")
        };
        let at: DateTime = text.parse().map_err(|_| wrong())?;
        let at = at.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
        u64::try_from(at.timestamp().as_millisecond())
            .map(Some)
            .map_err(|_| wrong())
    }
}

/// Whether a job in this final state has run.
fn has_run(state: &str) -> bool {
    ["COMPLETED", "TIMEOUT", "OUT_OF_MEMORY"]
        .iter()
        .any(|is| state.starts_with(is))
}

fn run_ms(row: &Row<'_>, start: Option<u64>, end: Option<u64>) -> Result<Option<u64>, String> {
    if let Some(seconds) = row.number("ElapsedRaw")? {
        return Ok(seconds.checked_mul(SECOND_MS));
    }
    if let Some(text) = row.get("Elapsed") {
        return duration_ms(text)
            .map(Some)
            .ok_or_else(|| not_a_duration("Elapsed", text));
    }
    match (start, end) {
        (Some(start), Some(end)) => match end.checked_sub(start) {
            Some(ms) => Ok(Some(ms)),
            None => Err("End is before Start".to_owned()),
        },
        _ => Ok(None),
    }
}

fn limit_ms(row: &Row<'_>) -> Result<Option<u64>, String> {
    for name in ["TimelimitRaw", "Timelimit"] {
        let Some(text) = row.get(name) else { continue };
        if ["UNLIMITED", "Partition_Limit", "INFINITE"].contains(&text) {
            return Ok(None);
        }
        // Raw limits are minutes.
        return match text.parse::<u64>() {
            Ok(minutes) => Ok(minutes.checked_mul(MINUTE_MS).filter(|ms| *ms > 0)),
            Err(_) => duration_ms(text)
                .map(Some)
                .ok_or_else(|| not_a_duration(name, text)),
        };
    }
    Ok(None)
}

fn not_a_duration(name: &str, text: &str) -> String {
    format!("{name}: {text:?} is not a duration such as 1-02:03:04")
}

/// Parses `[days-]hours:minutes:seconds`, `days-hours:minutes` and `minutes:seconds`, in milliseconds; seconds may have
/// a fraction, which is dropped.
fn duration_ms(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let whole = clock.split('.').next()?;
    let parts: Vec<u64> = whole
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes, seconds] => (hours, minutes, seconds),
        // After days, the first of two parts is hours.
        [hours, minutes] if text.contains('-') => (hours, minutes, 0),
        [minutes, seconds] => (0, minutes, seconds),
        _ => return None,
    };
    let hours = days.checked_mul(24)?.checked_add(hours)?;
    let seconds = hours
        .checked_mul(3600)?
        .checked_add(minutes.checked_mul(60)?)?
        .checked_add(seconds)?;
    seconds.checked_mul(SECOND_MS)
}
