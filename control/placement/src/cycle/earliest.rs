//! Earliest start of a waiting job, given running jobs and reservations.

use super::Cycle;
use crate::{
    backfill::holds::{FreeInterval, Holds},
    bits::BitSet,
    queue::Job,
    selection::choose::NodeSet,
    walltime::NEVER,
};

impl Cycle<'_> {
    /// First time at which a job can have all resources it requests until its end, and the best nodes then.
    ///
    /// At each time tried, every node has a first gap that is long enough. Before the n-th smallest start of these gaps
    /// there are fewer than n nodes, so that start is the next time to try. If that start equals the time tried, there
    /// are enough nodes.
    pub(super) fn earliest(&mut self, job: &Job, set: usize) -> Option<(u64, NodeSet)> {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let (from, until) = self.may_start(set)?;
        let floor = self.start_bounds[set].of(job.nodes, lasts);
        let mut floor = floor.max(self.now).max(from);
        if floor == NEVER {
            return None;
        }
        let found = self.search(job, set, &mut floor);
        self.start_bounds[set].add(job.nodes, lasts, floor);
        found.filter(|(at, _)| *at < until)
    }

    /// Earliest start and end of the range in which jobs of this set may start: any time, or the window of the
    /// reservation that the jobs name. `None` if these jobs cannot use the named reservation.
    fn may_start(&self, set: usize) -> Option<(u64, u64)> {
        let Some(named) = &self.eligible(set).named else {
            return Some((0, NEVER));
        };
        let window = self.input.machine.windows.get(named.own?);
        Some((window.from, window.until))
    }

    /// Like [`Self::earliest`], from `floor` on. Raises `floor` to a time before which no job of this set with the same
    /// request can start, whatever its bandwidth.
    fn search(&mut self, job: &Job, set: usize, floor: &mut u64) -> Option<(u64, NodeSet)> {
        let ask = self.node_set_request(job, set);
        if !job.is_sensitive() && job.walltime_ms().is_some() {
            let first = self.first_open(job, set, *floor);
            *floor = first.unwrap_or(NEVER);
            let mut at = first?;
            loop {
                let enough = self.storage.first_enough(job, at)?;
                if enough == at {
                    break;
                }
                at = self.first_open(job, set, enough)?;
            }
            let open = self.open_at(set, at);
            if let Some(chosen) = self.choose_later(set, &open, ask, at, job.end(at)) {
                return Some((at, chosen));
            }
        }
        let mut at = *floor;
        let (mut took_bandwidth, mut is_first) = (false, true);
        self.look_for_gaps(job, set, at);
        loop {
            let enough = self.first_time_with_enough(job, at);
            if !took_bandwidth {
                *floor = enough.unwrap_or(NEVER);
            }
            let enough = enough?;
            if enough > at {
                at = enough;
                self.advance_gaps(job, set, at);
                continue;
            }
            let enough = self.storage.first_enough(job, at)?;
            if enough > at {
                (at, took_bandwidth) = (enough, true);
                self.advance_gaps(job, set, at);
                continue;
            }
            let size = self.input.machine.index.size();
            let open = self.gaps.iter().filter(|gap| gap.start <= at);
            let open = BitSet::collect(size, open.map(|gap| gap.n));
            if let Some(chosen) = self.choose_later(set, &open, ask, at, job.end(at)) {
                return Some((at, chosen));
            }
            // There are enough nodes, but no set within the power budget: retry when power or nodes become free.
            let is_ever_paid = !std::mem::take(&mut is_first) || self.is_ever_affordable(job, at);
            let later = self.gaps.iter().map(|gap| gap.start);
            let later = later.chain(self.power.next_step(at));
            let Some(next) = later.filter(|t| is_ever_paid && *t > at).min() else {
                if !took_bandwidth {
                    *floor = NEVER;
                }
                return None;
            };
            at = next;
            self.advance_gaps(job, set, at);
        }
    }

    /// First time at or after `after` at which enough nodes have begun a sufficiently long gap.
    ///
    /// A node that no reservation holds back stays free once it is free, and is counted by the end of its present job.
    /// [`Self::gaps`] then contains the gaps of the other nodes.
    fn first_open(&mut self, job: &Job, set: usize, after: u64) -> Option<u64> {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let mut gaps = std::mem::take(&mut self.gaps);
        let mut starts = std::mem::take(&mut self.starts);
        gaps.clear();
        if self.hold_sets.for_set(set).held_nodes().is_some() {
            self.find_free_at();
        }
        self.find_ends();
        let ahead = self.hold_sets.for_set(set);
        let mut never_held = self.input.sets.get(set).nodes.clone();
        if let Some(held) = ahead.held_nodes() {
            let first = |n| ahead.gap(n, self.free_at[n], after, lasts);
            gaps.extend(never_held.and(held).iter().map(first));
            never_held.subtract(held);
        }
        let mut found = never_held.count_common(&self.free);
        let of_set = |nodes: &[usize]| {
            let counted = nodes.iter().map(|n| u32::from(never_held.contains(*n)));
            counted.sum::<u32>()
        };
        let mut ends = self.ends().peekable();
        let mut at = after;
        let enough = loop {
            gaps.retain(|gap| gap.start != NEVER);
            starts.clear();
            starts.extend(gaps.iter().map(|gap| gap.start));
            starts.sort_unstable();
            // `next` is the start of the last gap that the job needs: before it, too few nodes are open. Gaps that
            // began earlier may end before `next`, so the count is then repeated at `next`.
            let (mut next, mut began) = (at, 0);
            while found + began < job.nodes {
                let start = starts.get(began as usize).copied();
                match ends.next_if(|(end, _)| start.is_none_or(|start| *end <= start)) {
                    Some((end, nodes)) => {
                        found += of_set(nodes);
                        next = next.max(end);
                    }
                    None if start.is_none() => break,
                    None => {
                        began += 1;
                        next = next.max(start.unwrap_or(next));
                    }
                }
            }
            if found + began < job.nodes {
                break None;
            }
            if next == at {
                break Some(at);
            }
            at = next;
            advance_gaps(&mut gaps, ahead, &self.free_at, lasts, at);
        };
        drop(ends);
        (self.gaps, self.starts) = (gaps, starts);
        enough
    }

    /// Nodes open at `at`, a time that [`Self::first_open`] returned.
    fn open_at(&self, set: usize, at: u64) -> BitSet {
        let mut open = self.free.clone();
        for (_, nodes) in self.ends().take_while(|(end, _)| *end <= at) {
            nodes.iter().for_each(|n| open.insert(*n));
        }
        open.intersect_with(&self.input.sets.get(set).nodes);
        if let Some(held) = self.hold_sets.for_set(set).held_nodes() {
            open.subtract(held);
            let begun = self.gaps.iter().filter(|gap| gap.start <= at);
            begun.for_each(|gap| open.insert(gap.n));
        }
        open
    }

    /// Busy nodes with their expected free time, earliest first; nodes without a known end are left out.
    fn ends(&self) -> impl Iterator<Item = (u64, &[usize])> {
        let before = self.ends.iter().flatten().copied();
        let taken = self.taken.iter();
        let taken = taken.map(|(end, nodes)| (*end, nodes.as_slice()));
        let (mut before, mut taken) = (before.peekable(), taken.peekable());
        let both = std::iter::from_fn(move || match (before.peek(), taken.peek()) {
            (Some((end, _)), Some((other, _))) if other < end => taken.next(),
            (Some(_), _) => before.next(),
            (None, _) => taken.next(),
        });
        both.take_while(|(end, _)| *end != NEVER)
    }

    /// Finds the expected free time of the nodes that were busy when this plan began.
    fn find_ends(&mut self) {
        let (machine, now) = (self.input.machine, self.now);
        self.ends.get_or_insert_with(|| {
            let mut ends: Vec<_> = machine.ends(now).collect();
            ends.sort_unstable_by_key(|(end, _)| *end);
            ends
        });
    }

    /// Finds the expected free time of each node.
    fn find_free_at(&mut self) {
        if !self.free_at.is_empty() {
            return;
        }
        let (machine, now) = (self.input.machine, self.now);
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

    /// Whether enough of the nodes with gaps fit into the largest power budget available from `at` on.
    fn is_ever_affordable(&self, job: &Job, at: u64) -> bool {
        let index = &self.input.machine.index;
        let nodes = BitSet::collect(index.size(), self.gaps.iter().map(|gap| gap.n));
        let most = self.power.upper_bound(at);
        most.count(index, &nodes, job.is_sensitive()) >= job.nodes
    }

    /// Finds the first gap at or after `after` of each node that fits and has one.
    fn look_for_gaps(&mut self, job: &Job, set: usize, after: u64) {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let fitting = &self.input.sets.get(set).nodes;
        self.find_free_at();
        if lasts == NEVER {
            self.hold_sets.settle(set);
        }
        let ahead = self.hold_sets.for_set(set);
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

    fn advance_gaps(&mut self, job: &Job, set: usize, to: u64) {
        let lasts = job.walltime_ms().unwrap_or(NEVER);
        let ahead = self.hold_sets.for_set(set);
        advance_gaps(&mut self.gaps, ahead, &self.free_at, lasts, to);
        self.gaps.retain(|gap| gap.start != NEVER);
    }

    /// First time, `at` or later, at which enough nodes have begun their gaps; for a sensitive job, of one conformance
    /// group.
    fn first_time_with_enough(&mut self, job: &Job, at: u64) -> Option<u64> {
        let gaps = self.gaps.iter();
        if !job.is_sensitive() {
            return nth(&mut self.starts, gaps.map(|gap| gap.start), job.nodes, at);
        }
        let index = &self.input.machine.index;
        let keys = 0..index.conformance_members.len();
        let of_key = |key| {
            let alike = gaps
                .clone()
                .filter(|gap| index.conformance_group_of[gap.n] == Some(key));
            nth(&mut self.starts, alike.map(|gap| gap.start), job.nodes, at)
        };
        keys.filter_map(of_key).min()
    }
}

/// Replaces gaps by the first gaps from `to` on; gaps that are open at `to` for long enough stay.
fn advance_gaps(
    gaps: &mut [FreeInterval],
    ahead: &Holds<'_>,
    free_at: &[u64],
    lasts: u64,
    to: u64,
) {
    for gap in gaps {
        if gap.start <= to && !gap.is_open(to, lasts) {
            *gap = ahead.gap(gap.n, free_at[gap.n], to, lasts);
        }
    }
}

/// The n-th smallest time, or `at` if that is later; `None` if there are fewer than n times.
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
