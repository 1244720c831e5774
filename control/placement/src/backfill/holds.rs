//! Nodes held back from jobs, and the times: by reservations of blocked jobs made so far in a plan, and by reservation
//! windows of operators.

use crate::{bits::BitSet, machine::windows::Windows, queue::interned::NO_ENTRY, walltime::NEVER};
use lattice_quorum_types::{AllocationId, UnixMillis};
use smallvec::SmallVec;
use std::{borrow::Cow, cmp::Reverse};

/// Source of a reservation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HoldSource {
    /// A blocked job.
    Job(AllocationId),
    /// An operator's reservation window, by its position among the windows.
    Window(usize),
}

/// Reservation of a blocked job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockedHold<'n> {
    pub(crate) by: AllocationId,
    pub(crate) starts_at: u64,
    pub(crate) ends_at: Option<u64>,
    pub(crate) nodes: &'n [usize],
}

/// One reservation.
#[derive(Debug)]
struct HeldReservation {
    by: HoldSource,
    starts_at: u64,
    nodes: Vec<usize>,
}

type Spans = SmallVec<[(u64, u64); 3]>;

/// Reservations that hold nodes back from one group of jobs.
#[derive(Debug)]
pub(crate) struct Holds<'a> {
    /// Reservations by start time.
    made: Vec<HeldReservation>,
    /// Index of each node's entry in [`Holds::spans`]; [`NO_ENTRY`] for a node that is not held back.
    held: Vec<u32>,
    /// Start and end of each interval in which a node is held back, by start. Windows may overlap other intervals.
    spans: Vec<Spans>,
    /// Nodes that are held back at any time.
    held_nodes: BitSet,
    /// Every node that is held back, or that a job with a reservation could use. Jobs without an end are kept off all
    /// of these nodes.
    contested: BitSet,
    /// Sets of nodes that fit jobs with reservations: latest start of such a job, number of the set, and nodes.
    contests: Vec<(u64, usize, Cow<'a, BitSet>)>,
    /// For each node, the latest start of a job with a reservation that could use the node, or 0. Valid as of the last
    /// call of [`Holds::compute_contested_until`]; empty before the first call.
    contested_until: Vec<u64>,
    is_settled: bool,
    /// Nodes that windows hold back now; `None`: no node.
    kept_now: Option<BitSet>,
}

impl<'a> Holds<'a> {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            made: Vec::new(),
            held: vec![NO_ENTRY; nodes],
            spans: Vec::new(),
            held_nodes: BitSet::empty(nodes),
            contested: BitSet::empty(nodes),
            contests: Vec::new(),
            contested_until: Vec::new(),
            is_settled: false,
            kept_now: None,
        }
    }

    /// Holds back the nodes of a window that is not over.
    pub(crate) fn add_window(&mut self, windows: &Windows, place: usize, now: u64) {
        let window = windows.get(place);
        if window.until <= now || window.nodes.is_empty() {
            return;
        }
        if window.holds(now) {
            let size = self.held.len();
            let kept = self.kept_now.get_or_insert_with(|| BitSet::empty(size));
            window.nodes.iter().for_each(|n| kept.insert(*n));
        }
        self.hold(
            HoldSource::Window(place),
            (window.from, window.until),
            &window.nodes,
        );
    }

    /// Nodes that windows hold back now.
    pub(crate) fn held_now(&self) -> Option<&BitSet> {
        self.kept_now.as_ref()
    }

    /// Nodes held back now or later; `None`: no node.
    pub(crate) fn held_nodes(&self) -> Option<&BitSet> {
        (!self.is_empty()).then_some(&self.held_nodes)
    }

    /// Whether no node is held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Number of reservations that start before `end`. Two jobs with the same number may use the same nodes.
    pub(crate) fn starting_before(&self, end: u64) -> usize {
        self.made.partition_point(|made| made.starts_at < end)
    }

    /// Whether a job that ends at `end` may use the node if it were free; `None`: the job has no end.
    pub(crate) fn is_open_to(&self, n: usize, end: Option<u64>) -> bool {
        match end {
            Some(end) => self.spans(n).first().is_none_or(|(start, _)| *start >= end),
            None => !self.contested.contains(n),
        }
    }

    /// Removes from `nodes` those that a job ending at `end` may not use.
    pub(crate) fn drop_held(&self, nodes: &mut BitSet, end: Option<u64>) {
        let Some(end) = end else {
            return nodes.subtract(&self.contested);
        };
        let before = &self.made[..self.starting_before(end)];
        let held: usize = before.iter().map(|made| made.nodes.len()).sum();
        // Iterate over the shorter list: the held nodes, or `nodes`.
        if held <= nodes.count() as usize {
            let held = before.iter().flat_map(|made| &made.nodes);
            held.for_each(|n| nodes.remove(*n));
        } else {
            let held: Vec<usize> = nodes
                .iter()
                .filter(|n| !self.is_open_to(*n, Some(end)))
                .collect();
            held.into_iter().for_each(|n| nodes.remove(n));
        }
    }

    fn spans(&self, n: usize) -> &[(u64, u64)] {
        let spans = self.spans.get(self.held[n] as usize);
        spans.map_or(&[], |spans| spans.as_slice())
    }

    /// Source and start of the first reservation that keeps a job ending at `end` off one of `nodes`.
    pub(crate) fn blocking_reservation(
        &self,
        nodes: &BitSet,
        end: Option<u64>,
    ) -> Option<(HoldSource, UnixMillis)> {
        let before = end.map_or(self.made.len(), |end| self.starting_before(end));
        let mut made = self.made[..before].iter();
        let takes = |made: &&HeldReservation| made.nodes.iter().any(|n| nodes.contains(*n));
        // Contested nodes may lie outside every reservation: then the first job reservation is the reason.
        let job = |made: &&HeldReservation| matches!(made.by, HoldSource::Job(_));
        let found = made.clone().find(takes).or_else(|| made.find(job));
        found.map(|made| (made.by, UnixMillis(made.starts_at)))
    }

    /// Adds a reservation and returns its position in the order of starts. `could_use` is every node that fits the job;
    /// `set` is the number of that set.
    pub(crate) fn add(
        &mut self,
        set: usize,
        made: BlockedHold<'_>,
        could_use: Cow<'a, BitSet>,
    ) -> usize {
        let starts_at = made.starts_at;
        self.contested.union_with(&could_use);
        let same = |(_, known, _): &&mut (u64, usize, Cow<'a, BitSet>)| *known == set;
        match self.contests.iter_mut().find(same) {
            Some((latest, ..)) => *latest = starts_at.max(*latest),
            None => self.contests.push((starts_at, set, could_use)),
        }
        self.is_settled = false;
        let until = made.ends_at.unwrap_or(NEVER);
        self.hold(HoldSource::Job(made.by), (starts_at, until), made.nodes)
    }

    /// Holds nodes back for an interval; returns the position in the order of starts.
    fn hold(&mut self, by: HoldSource, (starts_at, until): (u64, u64), nodes: &[usize]) -> usize {
        for n in nodes {
            if self.held[*n] == NO_ENTRY {
                // At most one entry per node, and there are fewer than 2^32 nodes.
                self.held[*n] = self.spans.len() as u32;
                self.spans.push(Spans::new());
            }
            let held = &mut self.spans[self.held[*n] as usize];
            let place = held.partition_point(|(start, _)| *start < starts_at);
            held.insert(place, (starts_at, until));
            self.held_nodes.insert(*n);
            self.contested.insert(*n);
        }
        let place = self
            .made
            .partition_point(|made| made.starts_at <= starts_at);
        let nodes = nodes.to_vec();
        self.made.insert(
            place,
            HeldReservation {
                by,
                starts_at,
                nodes,
            },
        );
        place
    }

    /// Computes [`Holds::contested_until`] for the reservations made so far.
    pub(crate) fn compute_contested_until(&mut self) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        self.contested_until.resize(self.held.len(), 0);
        let latest_first = &mut self.contests;
        latest_first.sort_unstable_by_key(|(latest, ..)| Reverse(*latest));
        let mut rest = self.contested.clone();
        for (latest, _, nodes) in latest_first {
            let until = &mut self.contested_until;
            rest.and(nodes).iter().for_each(|n| until[n] = *latest);
            rest.subtract(nodes);
        }
    }

    /// For each node, the time before which no cycle places a job without an end on it: every job that contests the
    /// node must have begun.
    pub(crate) fn contested_until(&self) -> &[u64] {
        &self.contested_until
    }

    /// First gap of a node at or after `after` that lasts `lasts_ms` ([`NEVER`]: without end), if the node is free from
    /// `free_at` on.
    pub(crate) fn gap(&self, n: usize, free_at: u64, after: u64, lasts_ms: u64) -> FreeInterval {
        let mut start = free_at.max(after);
        // A node has few spans.
        for (from, until) in self.spans(n) {
            if *until <= start {
                continue;
            }
            if start.saturating_add(lasts_ms) <= *from {
                let until = *from;
                return FreeInterval { n, start, until };
            }
            start = *until;
        }
        let until = NEVER;
        FreeInterval { n, start, until }
    }
}

/// Interval in which a node is free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeInterval {
    pub(crate) n: usize,
    /// [`NEVER`] if there is no gap.
    pub(crate) start: u64,
    pub(crate) until: u64,
}

impl FreeInterval {
    /// Whether the gap is open at `at` and for `lasts_ms` after it.
    pub(crate) fn is_open(&self, at: u64, lasts_ms: u64) -> bool {
        self.start <= at && at.saturating_add(lasts_ms) <= self.until
    }
}
