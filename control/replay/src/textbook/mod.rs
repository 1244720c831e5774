//! Schedulers of the literature, on identical processors. They reproduce published results, and serve as a reference
//! for the product's own solver.
//!
//! There is no topology and therefore no fragmentation: a job can use any free processors. Schedulers plan with
//! estimates. Estimates are never too short: [`crate::workload::fit`] cuts the run time or extends the estimate.

mod conservative;
mod easy;
#[cfg(test)]
mod tests;

use crate::{
    schedule::{EventOrder, JobStart, ReplayObserver},
    trace::Job,
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BinaryHeap};

/// A scheduler of the literature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextbookScheduler {
    /// First come, first served, without backfilling.
    Fcfs,
    /// EASY backfilling (Lifka 1995; Mu'alem and Feitelson 2001): the first waiting job gets a reservation. Other jobs
    /// start ahead of that job, in order of arrival, if they do not delay it.
    Easy,
    /// EASY with the shortest estimate first among backfilled jobs (EASY-SJBF, Tsafrir et al. 2007).
    Sjbf,
    /// Conservative backfilling: every job gets a reservation on arrival, which may only move to an earlier time.
    Conservative,
}

/// Planning data of a job.
#[derive(Debug, Clone, Copy)]
struct Entry {
    job: u32,
    size: u32,
    planned_ms: u64,
}

/// Scheduler that decides after the events of one instant, or after each event ([`EventOrder`]).
trait SchedulerPolicy {
    /// A job arrives.
    fn arrived(&mut self, entry: Entry, now: u64);

    /// A job with `size` processors ends; its expected end was `expected_ms`.
    fn ended(&mut self, job: u32, size: u32, expected_ms: u64, now: u64);

    /// Time of the next decision if no event comes before; `None` if decisions only follow events.
    fn wakes_at(&self) -> Option<u64> {
        None
    }

    /// Starts all jobs that may start now. The second argument of `start` marks a backfilled job.
    fn decide(
        &mut self,
        now: u64,
        start: &mut dyn FnMut(Entry, bool),
        watch: &mut dyn ReplayObserver,
    );
}

/// Replays jobs, which must be in order of submission and not larger than the machine.
pub fn run(
    policy: TextbookScheduler,
    procs: u32,
    order: EventOrder,
    jobs: &[Job],
    watch: &mut dyn ReplayObserver,
) {
    match policy {
        TextbookScheduler::Fcfs => serve(
            easy::Easy::new(procs, easy::BackfillJobs::Disabled),
            order,
            jobs,
            watch,
        ),
        TextbookScheduler::Easy => serve(
            easy::Easy::new(procs, easy::BackfillJobs::ArrivalOrder),
            order,
            jobs,
            watch,
        ),
        TextbookScheduler::Sjbf => serve(
            easy::Easy::new(procs, easy::BackfillJobs::ShortestFirst),
            order,
            jobs,
            watch,
        ),
        TextbookScheduler::Conservative => {
            serve(conservative::Conservative::new(procs), order, jobs, watch)
        }
    }
}

fn serve(
    mut decider: impl SchedulerPolicy,
    order: EventOrder,
    jobs: &[Job],
    watch: &mut dyn ReplayObserver,
) {
    // Ends, by time and then by order of start.
    let mut ends: BinaryHeap<Reverse<(u64, u64, u32)>> = BinaryHeap::new();
    let mut expected = vec![0; jobs.len()];
    let mut started = 0_u64;
    let (mut next, mut last) = (0, 0);
    loop {
        let submit = jobs.get(next).map(|job| job.submit_ms);
        let end = ends.peek().map(|Reverse((at, ..))| *at);
        let wake = decider.wakes_at().map(|at| at.max(last));
        let Some(now) = submit.into_iter().chain(end).chain(wake).min() else {
            return;
        };
        last = now;
        loop {
            if let Some(Reverse((at, _, job))) = ends.peek().copied()
                && at == now
            {
                ends.pop();
                let size = jobs[job as usize].size;
                decider.ended(job, size, expected[job as usize], now);
            } else if let Some(job) = jobs.get(next)
                && job.submit_ms == now
            {
                let entry = Entry {
                    // There are fewer than 2^32 jobs.
                    job: next as u32,
                    size: job.size,
                    planned_ms: job.planned_ms(),
                };
                decider.arrived(entry, now);
                next += 1;
            } else {
                break;
            }
            if order == EventOrder::OneByOne {
                break;
            }
        }
        let mut starts = Vec::new();
        decider.decide(now, &mut |entry, ahead| starts.push((entry, ahead)), watch);
        for (entry, is_backfilled) in starts {
            let job = &jobs[entry.job as usize];
            started += 1;
            ends.push(Reverse((
                now.saturating_add(job.run_ms),
                started,
                entry.job,
            )));
            expected[entry.job as usize] = now.saturating_add(entry.planned_ms);
            watch.started(
                entry.job,
                JobStart {
                    start_ms: now,
                    is_backfilled,
                    ..JobStart::default()
                },
            );
        }
    }
}
