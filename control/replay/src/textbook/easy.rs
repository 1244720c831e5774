//! First come, first served, with optional EASY backfilling.

use super::{Entry, SchedulerPolicy};
use crate::schedule::{PromisedStart, ReplayObserver};

/// Choice and order of the jobs that may start ahead of the first waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackfillJobs {
    Disabled,
    ArrivalOrder,
    ShortestFirst,
}

/// First-come, first-served scheduler, with EASY backfilling unless it is disabled.
pub(super) struct Easy {
    ahead: BackfillJobs,
    free: u32,
    /// Waiting jobs in order of arrival.
    queue: Vec<Entry>,
    /// Running jobs as (expected end, job, size), in ascending order.
    running: Vec<(u64, u32, u32)>,
    /// Arrivals since the last decision.
    arrivals: usize,
    has_ended: bool,
    /// Shadow time of the first waiting job; valid until a running job ends or the first job starts.
    shadow: Option<ShadowTime>,
}

/// Earliest start of the first waiting job, and the number of processors that remain free then.
#[derive(Debug, Clone, Copy)]
struct ShadowTime {
    at: u64,
    extra: u32,
}

impl Easy {
    pub(super) fn new(procs: u32, ahead: BackfillJobs) -> Self {
        Self {
            ahead,
            free: procs,
            queue: Vec::new(),
            running: Vec::new(),
            arrivals: 0,
            has_ended: false,
            shadow: None,
        }
    }

    fn start(&mut self, entry: Entry, now: u64) {
        self.free -= entry.size;
        let ends = (now.saturating_add(entry.planned_ms), entry.job, entry.size);
        let place = self.running.partition_point(|known| *known < ends);
        self.running.insert(place, ends);
    }

    /// Computes the shadow time: the first expected end of a running job after which enough processors are free.
    fn shadow(&self, head: Entry) -> ShadowTime {
        let mut free = self.free;
        let mut at = 0;
        for (end, _, size) in &self.running {
            if free >= head.size && *end > at {
                break;
            }
            free += size;
            at = *end;
        }
        ShadowTime {
            at,
            extra: free - head.size,
        }
    }

    /// Checks whether a job behind the first waiting one may start: enough processors are free, and the job ends by the
    /// shadow time or leaves enough processors at that time. Returns the shadow time with the remaining processors;
    /// `None` if the job may not start.
    fn fits(&self, entry: Entry, now: u64, shadow: ShadowTime) -> Option<ShadowTime> {
        if entry.size > self.free {
            return None;
        }
        if now.saturating_add(entry.planned_ms) <= shadow.at {
            return Some(shadow);
        }
        let extra = shadow.extra.checked_sub(entry.size)?;
        Some(ShadowTime { extra, ..shadow })
    }
}

impl SchedulerPolicy for Easy {
    fn arrived(&mut self, entry: Entry, _: u64) {
        self.queue.push(entry);
        self.arrivals += 1;
    }

    fn ended(&mut self, job: u32, size: u32, expected_ms: u64, _: u64) {
        self.free += size;
        let key = (expected_ms, job, size);
        let place = self.running.partition_point(|known| *known < key);
        debug_assert_eq!(self.running.get(place), Some(&key));
        self.running.remove(place);
        self.has_ended = true;
    }

    fn decide(
        &mut self,
        now: u64,
        start: &mut dyn FnMut(Entry, bool),
        watch: &mut dyn ReplayObserver,
    ) {
        let (came, has_ended) = (self.arrivals, self.has_ended);
        (self.arrivals, self.has_ended) = (0, false);
        let served = self.queue.iter().scan(self.free, |free, entry| {
            *free = free.checked_sub(entry.size)?;
            Some(())
        });
        let served = served.count();
        for place in 0..served {
            let entry = self.queue[place];
            self.start(entry, now);
            start(entry, false);
        }
        self.queue.drain(..served);
        if has_ended || served > 0 {
            self.shadow = None;
        }
        let Some(head) = self.queue.first().copied() else {
            return;
        };
        if self.ahead == BackfillJobs::Disabled {
            return;
        }
        // The shadow time stays valid while no job ends and the first job stays: backfilled jobs do not delay that job.
        let known = self.shadow;
        let mut shadow = known.unwrap_or_else(|| self.shadow(head));
        watch.promised(PromisedStart {
            job: head.job,
            at_ms: now,
            starts_ms: shadow.at,
        });
        // While no job ends, a job that did not fit before does not fit now: only new arrivals are examined.
        let from = match known {
            Some(_) => self.queue.len() - came.min(self.queue.len() - 1),
            None => 1,
        };
        let mut candidates: Vec<u32> = Vec::new();
        if self.free > 0 {
            let fit = self.queue.iter().enumerate().skip(from);
            let fit = fit.filter(|(_, entry)| self.fits(**entry, now, shadow).is_some());
            // Indices in the queue, which has fewer than 2^32 jobs.
            candidates.extend(fit.map(|(place, _)| place as u32));
        }
        if self.ahead == BackfillJobs::ShortestFirst {
            candidates.sort_by_key(|place| self.queue[*place as usize].planned_ms);
        }
        let mut gone = Vec::new();
        for place in candidates {
            let entry = self.queue[place as usize];
            if let Some(left) = self.fits(entry, now, shadow) {
                shadow = left;
                self.start(entry, now);
                start(entry, true);
                gone.push(place);
            }
        }
        self.shadow = Some(shadow);
        if gone.is_empty() {
            return;
        }
        gone.sort_unstable();
        let mut gone = gone.into_iter().peekable();
        let mut place = 0;
        self.queue.retain(|_| {
            let leaves = gone.next_if_eq(&place).is_some();
            place += 1;
            !leaves
        });
    }
}
