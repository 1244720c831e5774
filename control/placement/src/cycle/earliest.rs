//! When a job that waits could start, beside all that runs and is held back.

use super::Cycle;
use crate::{bits::BitSet, choose::Chosen, machine::NEVER, queue::Job};

impl Cycle<'_> {
    /// The first time at which a job can have all it asks for until its end, and the best nodes then.
    ///
    /// At a time that is tried, each node has a first gap that is long enough. Before the n-th smallest of
    /// these there are less than n nodes, so that is the next one to try; where it is the time that was
    /// tried, there are enough.
    pub(super) fn earliest(&mut self, job: &Job, set: usize) -> Option<(u64, Chosen)> {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let (from, until) = self.may_start(set)?;
        let floor = self.floors[set].of(job.nodes, lasts);
        let mut floor = floor.max(self.now).max(from);
        if floor == NEVER {
            return None;
        }
        let found = self.search(job, set, &mut floor);
        self.floors[set].add(job.nodes, lasts, floor);
        found.filter(|(at, _)| *at < until)
    }

    /// From when, and before when, jobs of this set may start: who names a reservation, while it holds.
    fn may_start(&self, set: usize) -> Option<(u64, u64)> {
        let Some(named) = &self.eligible(set).named else {
            return Some((0, NEVER));
        };
        let window = self.given.machine.windows.get(named.own?);
        Some((window.from, window.until))
    }

    /// As [`Self::earliest`], from `floor` on; which it moves to before when nobody of this set who asks for as
    /// much can start, whatever bandwidth they need.
    fn search(&mut self, job: &Job, set: usize, floor: &mut u64) -> Option<(u64, Chosen)> {
        let ask = self.ask(job, set);
        if self.aheads.of(set).is_empty() && !job.is_sensitive() && job.walltime_ms().is_some() {
            let first = self.first_free(job, set, *floor);
            *floor = first.unwrap_or(NEVER);
            let at = self.storage.first_enough(job, first?)?;
            let open = self.free_by(set, at);
            if let Some(chosen) = self.choose_later(set, &open, ask, at, job.end(at)) {
                return Some((at, chosen));
            }
        }
        let mut at = *floor;
        let (mut took_bandwidth, mut is_first) = (false, true);
        self.look_for_gaps(job, set, at);
        loop {
            let enough = self.enough(job, at);
            if !took_bandwidth {
                *floor = enough.unwrap_or(NEVER);
            }
            let enough = enough?;
            if enough > at {
                at = enough;
                self.move_on(job, set, at);
                continue;
            }
            let enough = self.storage.first_enough(job, at)?;
            if enough > at {
                (at, took_bandwidth) = (enough, true);
                self.move_on(job, set, at);
                continue;
            }
            let size = self.given.machine.index.size();
            let open = self.gaps.iter().filter(|gap| gap.start <= at);
            let open = BitSet::collect(size, open.map(|gap| gap.n));
            if let Some(chosen) = self.choose_later(set, &open, ask, at, job.end(at)) {
                return Some((at, chosen));
            }
            // Enough nodes, and no set of them that can be paid: till power or nodes come back, if enough do.
            let is_ever_paid = !std::mem::take(&mut is_first) || self.is_ever_paid(job, at);
            let later = self.gaps.iter().map(|gap| gap.start);
            let later = later.chain(self.power.next_step(at));
            let Some(next) = later.filter(|t| is_ever_paid && *t > at).min() else {
                if !took_bandwidth {
                    *floor = NEVER;
                }
                return None;
            };
            at = next;
            self.move_on(job, set, at);
        }
    }

    /// The first time, `after` or later, at which so many nodes are free, where nothing is held back from anybody: then
    /// they stay free, and no gaps need be looked at.
    fn first_free(&self, job: &Job, set: usize, after: u64) -> Option<u64> {
        let fitting = &self.given.sets.get(set).nodes;
        let mut found = fitting.count_common(&self.free);
        if found >= job.nodes {
            return Some(after);
        }
        let known = self.ends().filter(|(end, _)| *end != NEVER);
        let mut known: Vec<(u64, &[usize])> = known.collect();
        known.sort_unstable_by_key(|(end, _)| *end);
        let enough = known.into_iter().find(|(_, nodes)| {
            found += nodes
                .iter()
                .map(|n| u32::from(fitting.contains(*n)))
                .sum::<u32>();
            found >= job.nodes
        });
        enough.map(|(end, _)| end.max(after))
    }

    /// The nodes of a set that are free by `at`, where nothing is held back from anybody.
    fn free_by(&self, set: usize, at: u64) -> BitSet {
        let mut open = self.free.clone();
        for (_, nodes) in self.ends().filter(|(end, _)| *end <= at) {
            nodes.iter().for_each(|n| open.insert(*n));
        }
        open.keep(&self.given.sets.get(set).nodes);
        open
    }

    /// Nodes that are not free, and when they are expected to be.
    fn ends(&self) -> impl Iterator<Item = (u64, &[usize])> {
        let taken = self.taken.iter();
        let taken = taken.map(|(end, nodes)| (*end, nodes.as_slice()));
        self.given.machine.ends(self.now).chain(taken)
    }

    /// Finds out when each node is expected to be free.
    fn find_free_at(&mut self) {
        if !self.free_at.is_empty() {
            return;
        }
        let (machine, now) = (self.given.machine, self.now);
        let times = machine.free_at.iter().enumerate();
        let free_at = times.map(|(n, at)| match machine.free.contains(n) {
            true => *at,
            false => machine.expected_free_at(n, now),
        });
        self.free_at = free_at.collect();
        for (end, nodes) in &self.taken {
            nodes.iter().for_each(|n| self.free_at[*n] = *end);
        }
    }

    /// Whether so many of the nodes that have gaps could be paid with all that there ever is from `at` on.
    fn is_ever_paid(&self, job: &Job, at: u64) -> bool {
        let index = &self.given.machine.index;
        let nodes = BitSet::collect(index.size(), self.gaps.iter().map(|gap| gap.n));
        let most = self.power.most(at);
        most.count(index, &nodes, job.is_sensitive()) >= job.nodes
    }

    /// The first gap from `after` on of each node that fits and has one.
    fn look_for_gaps(&mut self, job: &Job, set: usize, after: u64) {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let fitting = &self.given.sets.get(set).nodes;
        self.find_free_at();
        if lasts == NEVER {
            self.aheads.settle(set);
        }
        let ahead = self.aheads.of(set);
        let (free_at, gaps) = (&self.free_at, &mut self.gaps);
        gaps.clear();
        let mut look = |n, free_at| {
            let gap = ahead.gap(n, free_at, after, lasts);
            if gap.start != NEVER {
                gaps.push(gap);
            }
        };
        if lasts == NEVER {
            let until = ahead.contested_until();
            fitting
                .iter()
                .for_each(|n| look(n, free_at[n].max(until[n])));
        } else {
            fitting.iter().for_each(|n| look(n, free_at[n]));
        }
    }

    /// The first gaps from a later time on: those that are open then, for long enough, stay.
    fn move_on(&mut self, job: &Job, set: usize, to: u64) {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let ahead = self.aheads.of(set);
        for gap in &mut self.gaps {
            if gap.start <= to && !gap.is_open(to, lasts) {
                *gap = ahead.gap(gap.n, self.free_at[gap.n], to, lasts);
            }
        }
        self.gaps.retain(|gap| gap.start != NEVER);
    }

    /// The first time, `at` or later, at which so many nodes have begun their gaps, of one conformance
    /// group where that is asked for.
    fn enough(&mut self, job: &Job, at: u64) -> Option<u64> {
        let gaps = self.gaps.iter();
        if !job.is_sensitive() {
            return nth(&mut self.starts, gaps.map(|gap| gap.start), job.nodes, at);
        }
        let index = &self.given.machine.index;
        let keys = 0..index.conforming.len();
        let of_key = |key| {
            let alike = gaps
                .clone()
                .filter(|gap| index.conformance[gap.n] == Some(key));
            nth(&mut self.starts, alike.map(|gap| gap.start), job.nodes, at)
        };
        keys.filter_map(of_key).min()
    }
}

/// The n-th smallest time, or `at` where that is later; `None` where there are not so many.
fn nth(
    room: &mut Vec<u64>,
    times: impl Iterator<Item = u64> + Clone,
    n: u32,
    at: u64,
) -> Option<u64> {
    let n = n as usize;
    if times.clone().filter(|time| *time <= at).take(n).count() == n {
        return Some(at);
    }
    room.clear();
    room.extend(times);
    let last = n.checked_sub(1).filter(|last| *last < room.len())?;
    Some(*room.select_nth_unstable(last).1)
}
