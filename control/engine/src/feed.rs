//! Change feed for readers that each keep their own position. The feed is bounded and never waits for a reader. A
//! reader that falls behind receives [`Change::Compacted`] and starts over from a view.

use lattice_quorum_types::{AllocationId, Event, NodeId, ProjectPath, Revision};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use tokio::sync::watch;

mod change_size;

/// Number of changes kept for readers that resume: more than a minute at a hundred changes per second.
const KEPT_CHANGES: usize = 8_192;
/// Approximate limit of the kept changes in bytes. The record of an allocation on ten thousand nodes has about a
/// megabyte.
const KEPT_BYTES: usize = 64 << 20;

/// One change. The view already shows a change when a reader receives it.
#[derive(Debug, Clone)]
pub enum Change {
    /// All events of one revision, in order; never empty. Allocation records come without their workload, and baselines
    /// without their classes, because both may be large; the view has them.
    Events(Arc<[Event]>),
    /// Changes that are not replicated: nodes, pending allocations and budgets with changed observed data.
    Observed(Arc<Observed>),
    /// The reader fell behind the kept changes. Read the view again; this subscription continues after `oldest` without
    /// a gap.
    Compacted {
        /// Revision after which every change follows.
        oldest: Revision,
    },
}

/// Changes without a revision. All sets are empty if something else in the view changed, such as whether this control
/// dispatches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Nodes with changed liveness, health, node document, class marks or drift.
    pub nodes: BTreeSet<NodeId>,
    /// Allocations with a changed pending reason.
    pub waiting: BTreeSet<AllocationId>,
    /// Tenants that have newly used up a budget.
    pub exhausted: BTreeSet<ProjectPath>,
}

impl Observed {
    fn merge(&mut self, other: &Self) {
        self.nodes.extend(other.nodes.iter().cloned());
        self.waiting.extend(other.waiting.iter().copied());
        self.exhausted.extend(other.exhausted.iter().cloned());
    }
}

#[derive(Debug)]
struct Ring {
    /// Kept changes, each with its weight in bytes.
    changes: VecDeque<(Change, usize)>,
    /// Position of the first of `changes`.
    first: u64,
    /// Total weight of `changes`, in bytes.
    bytes: usize,
    /// Every change after this revision is kept.
    oldest: Revision,
    /// Observations between `oldest` and the first of `changes`. With them, frequent node observations do not force
    /// readers to start over while the replicated state is quiet.
    evicted_observations: Observed,
    /// The last revision published.
    newest: Revision,
}

impl Ring {
    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    fn forget_first(&mut self) {
        let Some((change, weight)) = self.changes.pop_front() else {
            return;
        };
        self.first += 1;
        self.bytes -= weight;
        match change {
            Change::Events(events) => {
                if let Some(last) = events.last() {
                    self.oldest = last.revision;
                }
                self.evicted_observations = Observed::default();
            }
            Change::Observed(observed) => self.evicted_observations.merge(&observed),
            Change::Compacted { .. } => {}
        }
    }

    /// Position at which a reader of everything up to `since` continues, and the observations that it missed.
    fn after(&self, since: Revision) -> (u64, Observed) {
        let is_read = |(change, _): &(Change, usize)| match change {
            Change::Events(events) => events.last().is_some_and(|e| e.revision <= since),
            Change::Observed(_) | Change::Compacted { .. } => false,
        };
        match self.changes.iter().rposition(is_read) {
            Some(at) => (self.first + at as u64 + 1, Observed::default()),
            None => (self.first, self.evicted_observations.clone()),
        }
    }
}

/// Limits of the kept changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) changes: usize,
    pub(crate) bytes: usize,
}

/// Recent changes.
#[derive(Debug)]
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    bounds: Bounds,
    end: watch::Sender<u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Self::with_bounds(Bounds {
            changes: KEPT_CHANGES,
            bytes: KEPT_BYTES,
        })
    }
}

impl Feed {
    pub(crate) fn with_bounds(bounds: Bounds) -> Self {
        let ring = Ring {
            changes: VecDeque::new(),
            first: 0,
            bytes: 0,
            oldest: Revision(0),
            evicted_observations: Observed::default(),
            newest: Revision(0),
        };
        Self {
            ring: Mutex::new(ring),
            bounds,
            end: watch::Sender::new(0),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }

    pub(crate) fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let end = {
            let mut ring = self.ring();
            for mut change in changes {
                change_size::drop_large_parts(&mut change);
                let weight = change_size::weight(&change);
                if let Change::Events(events) = &change
                    && let Some(last) = events.last()
                {
                    ring.newest = last.revision;
                }
                ring.changes.push_back((change, weight));
                ring.bytes += weight;
            }
            while ring.changes.len() > self.bounds.changes || ring.bytes > self.bounds.bytes {
                ring.forget_first();
            }
            ring.end()
        };
        self.end.send_replace(end);
    }

    /// Starts over at `revision`: the replicated state was read again, and the events in between are unknown.
    pub(crate) fn reset(&self, revision: Revision) {
        let end = {
            let mut ring = self.ring();
            // A reader at the end must notice the reset as well.
            ring.first = ring.end() + 1;
            ring.changes.clear();
            ring.bytes = 0;
            ring.evicted_observations = Observed::default();
            (ring.oldest, ring.newest) = (revision, revision);
            ring.first
        };
        self.end.send_replace(end);
    }

    /// Creates a reader after `since`; `None` starts at the present.
    pub(crate) fn subscribe(self: &Arc<Self>, since: Option<Revision>) -> Subscription {
        let ring = self.ring();
        let (place, missed) = match since {
            None => (ring.end(), Observed::default()),
            Some(since) => ring.after(since),
        };
        Subscription {
            feed: self.clone(),
            place,
            missed: (missed != Observed::default()).then(|| Arc::new(missed)),
            compacted: since.is_some_and(|since| since < ring.oldest),
            after: since.unwrap_or(ring.newest),
            end: self.end.subscribe(),
        }
    }
}

/// One reader's position in the feed.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Feed>,
    place: u64,
    /// Observations since the requested revision that are kept only in merged form.
    missed: Option<Arc<Observed>>,
    compacted: bool,
    after: Revision,
    end: watch::Receiver<u64>,
}

impl Subscription {
    /// Revision after which this subscription began: it receives every later change.
    pub fn after(&self) -> Revision {
        self.after
    }

    /// Waits for the next change. Cancel safe.
    pub async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.try_next() {
                return change;
            }
            // The sender lives in the feed, which this subscription keeps alive.
            if self.end.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the next change if there is one. Successive observations are merged into one, because readers show the
    /// present state and not each step.
    pub fn try_next(&mut self) -> Option<Change> {
        self.end.borrow_and_update();
        let mut seen: Vec<Arc<Observed>> = Vec::new();
        {
            let ring = self.feed.ring();
            if self.compacted || self.place < ring.first {
                (self.compacted, self.missed) = (false, None);
                self.place = ring.first;
                return Some(Change::Compacted {
                    oldest: ring.oldest,
                });
            }
            seen.extend(self.missed.take());
            let at = usize::try_from(self.place - ring.first).unwrap_or(usize::MAX);
            for (change, _) in ring.changes.iter().skip(at) {
                match change {
                    Change::Observed(observed) => seen.push(observed.clone()),
                    change if seen.is_empty() => {
                        self.place += 1;
                        return Some(change.clone());
                    }
                    _ => break,
                }
                self.place += 1;
            }
        }
        let mut seen = seen.into_iter();
        let first = seen.next()?;
        if seen.len() == 0 {
            return Some(Change::Observed(first));
        }
        let mut sum = Observed::clone(&first);
        seen.for_each(|observed| sum.merge(&observed));
        Some(Change::Observed(Arc::new(sum)))
    }
}

#[cfg(test)]
mod tests;
