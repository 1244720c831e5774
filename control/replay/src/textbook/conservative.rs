//! Conservative backfilling: every job has a reservation, which may only move to an earlier time.

use super::{Entry, SchedulerPolicy};
use crate::schedule::{PromisedStart, ReplayObserver};
use lattice_placement::StartBounds;

/// Number of free processors over time: each step holds from its time until the next step.
#[cfg_attr(test, derive(Clone))]
struct FreeProcessors {
    steps: Vec<(u64, u32)>,
}

impl FreeProcessors {
    /// Index of the step that contains `at`.
    fn place(&self, at: u64) -> usize {
        self.steps.partition_point(|(from, _)| *from <= at) - 1
    }

    /// Splits the step at `at`, and returns the index of the later part.
    fn split(&mut self, at: u64) -> usize {
        let place = self.place(at);
        let (from, free) = self.steps[place];
        if from == at {
            return place;
        }
        self.steps.insert(place + 1, (at, free));
        place + 1
    }

    /// Changes the number of free processors from `from` until `until`.
    fn change(&mut self, from: u64, until: u64, of: impl Fn(u32) -> u32) {
        if from >= until {
            return;
        }
        let (begin, end) = (self.split(from), self.split(until));
        for (_, free) in &mut self.steps[begin..end] {
            *free = of(*free);
        }
        // Inner steps still differ from each other. The first and last step may have become equal to their neighbors.
        for place in [end, begin] {
            let is_step = |place: usize| self.steps[place - 1].1 != self.steps[place].1;
            if place > 0 && !is_step(place) {
                self.steps.remove(place);
            }
        }
    }

    /// Returns the first time from `now` on at which `size` processors are free for `lasts` milliseconds.
    fn first_fit(&self, size: u32, lasts: u64, now: u64) -> u64 {
        let mut at = now;
        for place in self.place(now)..self.steps.len() {
            let (from, free) = self.steps[place];
            if from >= at.saturating_add(lasts) {
                return at;
            }
            if free < size {
                // After the last step all processors are free.
                at = self
                    .steps
                    .get(place + 1)
                    .map_or(u64::MAX, |(next, _)| *next);
            }
        }
        at
    }

    /// Returns the first possible start from `begin` on for a job with a reservation at `at`. Processors must be free
    /// until `at`; from then on, the job's own reservation holds them.
    fn earlier_start(&self, size: u32, lasts: u64, mut begin: u64, at: u64) -> u64 {
        let steps = &self.steps[self.place(begin)..];
        for (place, (from, free)) in steps.iter().enumerate() {
            if *from >= at.min(begin.saturating_add(lasts)) {
                break;
            }
            if *free < size {
                begin = steps.get(place + 1).map_or(at, |(next, _)| *next);
            }
        }
        begin.min(at)
    }

    /// Removes the steps before `now`.
    fn drop_before(&mut self, now: u64) {
        let place = self.place(now);
        self.steps.drain(..place);
    }
}

/// Scheduler with conservative backfilling.
pub(super) struct Conservative {
    free: FreeProcessors,
    /// Waiting jobs with their promised starts, in order of arrival.
    queue: Vec<(Entry, u64)>,
    /// Processors that no job holds now. If events come one by one, later ends of this instant are not included yet.
    idle: u32,
    /// Whether a job ended earlier than expected since the last decision.
    has_early_end: bool,
}

impl Conservative {
    pub(super) fn new(procs: u32) -> Self {
        Self {
            free: FreeProcessors {
                steps: vec![(0, procs)],
            },
            queue: Vec::new(),
            idle: procs,
            has_early_end: false,
        }
    }

    /// Moves each reservation to the first possible start. The earliest reservation moves first, because the later ones
    /// can use the processors that it releases.
    fn move_up(&mut self, now: u64) {
        let mut order: Vec<usize> = (0..self.queue.len()).collect();
        order.sort_by_key(|place| self.queue[*place].1);
        // A move releases processors only after the old start, which is later than all starts found so far. So a start
        // found for one job is a lower bound for jobs of at least its size and duration.
        let mut floors = StartBounds::default();
        for place in order {
            let (entry, at) = self.queue[place];
            if at <= now {
                continue;
            }
            let from = floors.of(entry.size, entry.planned_ms).max(now);
            let sooner = self
                .free
                .earlier_start(entry.size, entry.planned_ms, from, at);
            floors.add(entry.size, entry.planned_ms, sooner);
            if sooner == at {
                continue;
            }
            let until = at.saturating_add(entry.planned_ms);
            self.free.change(at, until, |free| free + entry.size);
            self.reserve(entry, sooner);
            self.queue[place].1 = sooner;
        }
    }

    fn reserve(&mut self, entry: Entry, at: u64) {
        let until = at.saturating_add(entry.planned_ms);
        self.free.change(at, until, |free| free - entry.size);
    }
}

impl SchedulerPolicy for Conservative {
    fn arrived(&mut self, entry: Entry, now: u64) {
        let at = self.free.first_fit(entry.size, entry.planned_ms, now);
        self.reserve(entry, at);
        self.queue.push((entry, at));
    }

    fn ended(&mut self, _: u32, size: u32, expected_ms: u64, now: u64) {
        self.idle += size;
        self.free.change(now, expected_ms, |free| free + size);
        self.has_early_end |= now < expected_ms;
    }

    fn wakes_at(&self) -> Option<u64> {
        self.queue.iter().map(|(_, at)| *at).min()
    }

    fn decide(
        &mut self,
        now: u64,
        start: &mut dyn FnMut(Entry, bool),
        watch: &mut dyn ReplayObserver,
    ) {
        self.free.drop_before(now);
        if std::mem::take(&mut self.has_early_end) {
            self.move_up(now);
        }
        let mut first_waits = None;
        let idle = &mut self.idle;
        self.queue.retain(|(entry, at)| {
            let starts = *at <= now && entry.size <= *idle;
            if starts {
                *idle -= entry.size;
                start(*entry, first_waits.is_some());
            } else {
                first_waits.get_or_insert((entry.job, *at));
            }
            !starts
        });
        if let Some((job, starts_ms)) = first_waits {
            watch.promised(PromisedStart {
                job,
                at_ms: now,
                starts_ms,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_rng::Rng;

    /// `earlier_start` searches only up to the job's own start, and begins where a smaller request could start. The
    /// function finds the same start as a full search without the job's reservation.
    #[test]
    fn promoted_job_recomputes_promise() {
        let mut moved = 0;
        for seed in 0..400 {
            let mut rng = Rng::new(seed, "free");
            let mut queue = Conservative::new(16);
            for job in 0..40 {
                let (size, planned_ms) = (rng.range(1, 16) as u32, rng.range(1, 30));
                let entry = Entry {
                    job,
                    size,
                    planned_ms,
                };
                queue.arrived(entry, 0);
            }
            let gone = rng.range(1, 10) as usize;
            for (entry, at) in queue.queue.drain(..gone) {
                let until = at + entry.planned_ms;
                queue.free.change(at, until, |free| free + entry.size);
            }
            let mut free = queue.free.clone();
            let mut anew: Vec<_> = queue
                .queue
                .iter()
                .map(|(entry, at)| (*at, *entry))
                .collect();
            anew.sort_by_key(|(at, _)| *at);
            for (at, entry) in anew.iter_mut().filter(|(at, _)| *at > 0) {
                free.change(*at, *at + entry.planned_ms, |free| free + entry.size);
                let sooner = free.first_fit(entry.size, entry.planned_ms, 0);
                free.change(sooner, sooner + entry.planned_ms, |free| free - entry.size);
                moved += u32::from(sooner < *at);
                *at = sooner;
            }
            anew.sort_by_key(|(_, entry)| entry.job);
            queue.move_up(0);
            let found: Vec<_> = queue
                .queue
                .iter()
                .map(|(entry, at)| (*at, entry.job))
                .collect();
            let anew: Vec<_> = anew
                .into_iter()
                .map(|(at, entry)| (at, entry.job))
                .collect();
            assert_eq!(found, anew, "seed {seed}");
            assert_eq!(queue.free.steps, free.steps, "seed {seed}");
        }
        assert!(moved > 1000, "{moved}");
    }
}
