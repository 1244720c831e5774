//! Which records can be replayed, and why the others cannot.

use super::{Status, SwfRecord};
use std::fmt;

/// A record with everything a replay needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReplayJob {
    /// Line in the file, from 1: unique, where job numbers may repeat.
    pub line: u64,
    /// The log's job number; the line where it has none.
    pub job: u64,
    /// Submit time, seconds.
    pub submit_s: u64,
    /// Processors: those asked for, else those given. At least 1.
    pub procs: u64,
    /// Real run time, seconds. May be 0.
    pub run_s: u64,
    /// The user's estimate, seconds; `None` where the log has none. May be below `run_s`: sites
    /// did not always end a job on time.
    pub estimate_s: Option<u64>,
    /// How it ended.
    pub status: Option<Status>,
    /// User number.
    pub user: Option<u64>,
}

/// Why a record cannot be replayed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// No submit time.
    NoSubmitTime,
    /// Neither asked for nor given a processor.
    NoSize,
    /// No run time: it never ran, or was not recorded.
    NoRunTime,
    /// One part of a job that was checkpointed; the whole job has a line of its own.
    PartOfAJob,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::NoSubmitTime => "it has no submit time",
            SkipReason::NoSize => "it has no processors, asked for or given",
            SkipReason::NoRunTime => "it has no run time",
            SkipReason::PartOfAJob => "it is a part of a job that has its own line",
        })
    }
}

/// A record left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// Line in the file, from 1.
    pub line: u64,
    /// Why.
    pub reason: SkipReason,
}

impl SwfRecord {
    /// The processors a replay asks for: those asked for, else those given.
    pub fn procs(&self) -> Option<u64> {
        [self.requested_procs, self.allocated_procs]
            .into_iter()
            .flatten()
            .find(|n| *n > 0)
    }

    /// This record as a job to replay.
    ///
    /// # Errors
    /// The first thing it lacks.
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
    // Lines break ties, so that jobs of one second keep the log's order.
    jobs.sort_by_key(|job| (job.submit_s, job.line));
    (jobs, skipped)
}
