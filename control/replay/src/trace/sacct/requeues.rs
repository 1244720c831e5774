//! Runs of requeued jobs. An export with `--duplicates` has one line for each run of a job, all with the same job
//! number. Each run occupied its nodes, so each is a job of the workload.
//!
//! A later run may have the submit time of the first. It then would be replayed at the same time as the first run, and
//! the time of that run would count as its wait. Its submission is therefore moved to the end of the run before.
//!
//! Exports of overlapping periods, joined in one file, repeat lines; the repeated lines are skipped.

use super::super::{Builder, Job, SkipReason, UNKNOWN};
use std::collections::BTreeSet;

/// Job in an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey {
    number: u64,
    /// Element of an array, or component of a heterogeneous job, from 1; 0: neither.
    part: u64,
}

impl JobKey {
    /// Reads a job id: `12`, `12_3` or `12+1`.
    pub(super) fn read(id: &str) -> Option<Self> {
        let (number, part) = match id.split_once(['_', '+']) {
            None => (id, 0),
            Some((number, part)) => (number, part.parse::<u64>().ok()?.checked_add(1)?),
        };
        let number = number.parse().ok()?;
        Some(Self { number, part })
    }
}

/// Lines of the export that became jobs, each with its place in the workload.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<(JobKey, usize)>);

impl Runs {
    pub(super) fn add(&mut self, key: JobKey, place: usize) {
        self.0.push((key, place));
    }

    /// Moves the submissions of later runs, and skips repeated lines. Returns the number of later runs.
    pub(super) fn separate(&mut self, into: &mut Builder) -> u64 {
        let mut rows = std::mem::take(&mut self.0);
        rows.sort_unstable_by_key(|(key, place)| (*key, started_ms(&into.jobs[*place]), *place));
        let (mut later, mut repeated) = (0, BTreeSet::new());
        for runs in rows.chunk_by(|one, next| one.0 == next.0) {
            let mut previous: Option<Job> = None;
            for (_, place) in runs {
                let job = into.jobs[*place];
                let Some(before) = previous else {
                    previous = Some(job);
                    continue;
                };
                let line = before.line;
                if (Job { line, ..job }) == before {
                    repeated.insert(*place);
                    continue;
                }
                previous = Some(job);
                // Slurm uses job numbers again; then they belong to different users, or the jobs are far apart.
                if before.user != job.user {
                    continue;
                }
                later += 1;
                let free_ms = started_ms(&before).saturating_add(before.run_ms);
                let start_ms = started_ms(&job);
                if job.submit_ms < free_ms && free_ms <= start_ms {
                    into.jobs[*place].submit_ms = free_ms;
                    into.jobs[*place].waited_ms = start_ms - free_ms;
                }
            }
        }
        for place in &repeated {
            let line = into.jobs[*place].line;
            into.skip(line, SkipReason::Repeated, String::new);
        }
        let mut places = 0..;
        into.jobs
            .retain(|_| places.next().is_none_or(|place| !repeated.contains(&place)));
        later
    }
}

/// Recorded start, milliseconds; the submission if the start is unknown.
fn started_ms(job: &Job) -> u64 {
    match job.waited_ms {
        UNKNOWN => job.submit_ms,
        waited_ms => job.submit_ms.saturating_add(waited_ms),
    }
}
