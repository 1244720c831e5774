//! Standard Workload Format of the Parallel Workloads Archive: `;` header comments, then one job per line in 18
//! columns. The value -1 means unknown.
//!
//! Times are whole seconds, except the CPU time. Submit times are relative to the log's start (or Unix seconds in some
//! logs). Memory is in kilobytes per processor. The reader repairs nothing: a record that cannot be replayed stays in
//! [`Trace::records`], and [`Trace::replayable`] returns the reason.

mod parse;
mod replayable;
#[cfg(test)]
mod tests;

pub use parse::{COLUMNS, SwfError};
pub(crate) use parse::{add_comment, parse_record};
pub use replayable::{ReplayJob, SkipReason, Skipped};

use crate::lines::InputError;
use std::{io::Read, path::Path};

/// Status of a job, column 11.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// 0: failed.
    Failed,
    /// 1: completed.
    Completed,
    /// 2: one part of a job with several parts; the job continues.
    PartialContinues,
    /// 3: the last part of such a job, completed.
    PartialLast,
    /// 4: the last part of such a job, failed.
    PartialFailed,
    /// 5: cancelled, before or after it started.
    Cancelled,
}

/// One job, column by column; each field's comment begins with the number of its column. `None` if the log has -1.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SwfRecord {
    /// Line in the file, from 1. Not a column.
    pub line: u64,
    /// 1: job number in the log.
    pub job: Option<u64>,
    /// 2: submit time, seconds.
    pub submit_s: Option<u64>,
    /// 3: wait before the start, seconds.
    pub wait_s: Option<u64>,
    /// 4: run time, seconds.
    pub run_s: Option<u64>,
    /// 5: allocated processors.
    pub allocated_procs: Option<u64>,
    /// 6: CPU time used, seconds, mean over the processors.
    pub cpu_s: Option<f64>,
    /// 7: memory used, kilobytes per processor.
    pub used_memory_kb: Option<u64>,
    /// 8: requested processors.
    pub requested_procs: Option<u64>,
    /// 9: requested run time (the user's estimate), seconds.
    pub requested_s: Option<u64>,
    /// 10: requested memory, kilobytes per processor.
    pub requested_memory_kb: Option<u64>,
    /// 11: status at the end.
    pub status: Option<Status>,
    /// 12: user number.
    pub user: Option<u64>,
    /// 13: group number.
    pub group: Option<u64>,
    /// 14: number of the executable.
    pub executable: Option<u64>,
    /// 15: queue number; 0 often means interactive.
    pub queue: Option<u64>,
    /// 16: partition number.
    pub partition: Option<u64>,
    /// 17: job on which this job depends.
    pub preceding: Option<u64>,
    /// 18: seconds between the end of the preceding job and this submit.
    pub think_s: Option<u64>,
}

/// Header comment `; Key: value`. A comment without a key continues the previous comment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HeaderLine {
    /// Text before the first colon; empty for a first comment without a colon.
    pub key: String,
    /// Text after the colon; continuation lines are joined by a newline.
    pub value: String,
}

/// A log: header comments and records.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Trace {
    /// Header comments in file order. Keys may repeat (`Queue:`, `Note:`).
    pub header: Vec<HeaderLine>,
    /// All jobs in file order.
    pub records: Vec<SwfRecord>,
    /// Number of lines with more than 18 columns; the further columns are ignored.
    pub lines_with_extra_columns: u64,
}

impl Trace {
    /// Opens and reads a log, plain or compressed with gzip or zstd.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not in the format.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, SwfError> {
        let file = std::fs::File::open(path.as_ref());
        Trace::read(file.map_err(|error| SwfError::Read(InputError::Read(error)))?)
    }

    /// Reads a log. The first bytes show whether the log is compressed.
    ///
    /// # Errors
    /// When the input cannot be read, or a line is not in the format.
    pub fn read(input: impl Read + Send + 'static) -> Result<Trace, SwfError> {
        parse::read(input)
    }

    /// Value of the first header comment with this key, compared without case.
    pub fn header(&self, key: &str) -> Option<&str> {
        header(&self.header, key)
    }

    /// Header value as a number (`MaxNodes`, `MaxProcs`, `UnixStartTime`); `None` when the value does not begin with a
    /// number.
    pub fn header_number(&self, key: &str) -> Option<u64> {
        header_number(&self.header, key)
    }

    /// Returns the jobs that can be replayed, in order of submit time and line, and the skipped records with reasons.
    pub fn replayable(&self) -> (Vec<ReplayJob>, Vec<Skipped>) {
        replayable::split(&self.records)
    }
}

fn header<'a>(lines: &'a [HeaderLine], key: &str) -> Option<&'a str> {
    let found = lines.iter().find(|line| line.key.eq_ignore_ascii_case(key));
    found.map(|line| line.value.as_str())
}

pub(crate) fn header_number(lines: &[HeaderLine], key: &str) -> Option<u64> {
    header(lines, key)?.split_whitespace().next()?.parse().ok()
}
