//! Selection of the records that can be replayed, with reasons for the others.

use super::{Status, SwfRecord};
use std::fmt;

/// A record with all values that a replay needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReplayJob {
    /// Line in the file, from 1. Lines are unique, while job numbers may repeat.
    pub line: u64,
    /// Job number of the log; the line number if the log has none.
    pub job: u64,
    /// Submit time, seconds.
    pub submit_s: u64,
    /// Processors: the requested number, otherwise the allocated number. At least 1.
    pub procs: u64,
    /// Real run time, seconds. May be 0.
    pub run_s: u64,
    /// Estimate of the user, seconds; `None` if the log has none. May be below `run_s`, because not all sites ended
    /// jobs at their estimate.
    pub estimate_s: Option<u64>,
    /// Status at the end.
    pub status: Option<Status>,
    /// User number.
    pub user: Option<u64>,
}

/// Reason why a record cannot be replayed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The record has no submit time.
    NoSubmitTime,
    /// The record has neither requested nor allocated processors.
    NoSize,
    /// The record has no run time: the job never ran, or the run time was not recorded.
    NoRunTime,
    /// The record is one part of a checkpointed job; another record describes the complete job.
    PartOfAJob,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::NoSubmitTime => "it has no submit time",
            SkipReason::NoSize => "it has no requested or allocated processors",
            SkipReason::NoRunTime => "it has no run time",
            SkipReason::PartOfAJob => "it is a part of a job that has its own line",
        })
    }
}

/// Record that is not replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// Line in the file, from 1.
    pub line: u64,
    /// Reason.
    pub reason: SkipReason,
}

impl SwfRecord {
    /// Processors for a replay: the requested number, otherwise the allocated number.
    pub fn procs(&self) -> Option<u64> {
        [self.requested_procs, self.allocated_procs]
            .into_iter()
            .flatten()
            .find(|n| *n > 0)
    }

    /// Returns the job to replay.
    ///
    /// # Errors
    /// The record is one part of a job, or lacks a value; the first missing value is returned.
    pub fn replayable(&self) -> Result<ReplayJob, SkipReason> {
        use Status::{PartialContinues, PartialFailed, PartialLast};
        if matches!(
            self.status,
            Some(PartialContinues | PartialLast | PartialFailed)
        ) {
            return Err(SkipReason::PartOfAJob);
        }
        Ok(ReplayJob {
            line: self.line,
            job: self.job.unwrap_or(self.line),
            submit_s: self.submit_s.ok_or(SkipReason::NoSubmitTime)?,
            procs: self.procs().ok_or(SkipReason::NoSize)?,
            run_s: self.run_s.ok_or(SkipReason::NoRunTime)?,
            estimate_s: self.requested_s.filter(|s| *s > 0),
            status: self.status,
            user: self.user,
        })
    }
}

pub(super) fn split(records: &[SwfRecord]) -> (Vec<ReplayJob>, Vec<Skipped>) {
    let mut jobs = Vec::with_capacity(records.len());
    let mut skipped = Vec::new();
    for record in records {
        match record.replayable() {
            Ok(job) => jobs.push(job),
            Err(reason) => skipped.push(Skipped {
                line: record.line,
                reason,
            }),
        }
    }
    // Line numbers break ties, so that jobs of the same second keep the order of the log.
    jobs.sort_by_key(|job| (job.submit_s, job.line));
    (jobs, skipped)
}
