//! What changed, for readers that each keep their own place. Bounded: nobody waits for a reader,
//! and one that falls behind is told so and starts over from a view.

use lattice_quorum_types::{AllocationId, Event, NodeId, ProjectPath, Revision};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use tokio::sync::watch;

mod weight;

/// Changes kept for readers that resume: at a hundred a second, more than a minute.
const KEPT_CHANGES: usize = 8_192;
/// And no more than this, about: the record of an allocation on ten thousand nodes has a megabyte.
const KEPT_BYTES: usize = 64 << 20;

/// One step of what changed. The view already shows it when a reader gets it.
#[derive(Debug, Clone)]
pub enum Change {
    /// Everything one revision changed, in order; never empty. The records of allocations come
    /// without their workload, which never changes and may be large: [`crate::View::allocation`]
    /// has it.
    Events(Arc<[Event]>),
    /// What is not replicated: nodes and waiting allocations now seen to be different.
    Observed(Arc<Observed>),
    /// The reader fell out of what is kept. Read the view again; this subscription goes on from
    /// `oldest`, after which nothing is missing.
    Compacted {
        /// Everything after this revision follows.
        oldest: Revision,
    },
}

/// What changed without a revision. Both sets are empty when it was something else in the view,
/// such as whether this control acts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Nodes whose liveness, health, facts, marks or drift changed.
    pub nodes: BTreeSet<NodeId>,
    /// Allocations whose reason to wait changed.
    pub waiting: BTreeSet<AllocationId>,
    /// Tenants that have used all of a budget since.
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
    /// Each with its weight.
    changes: VecDeque<(Change, usize)>,
    /// Position of the first of `changes`.
    first: u64,
    /// What `changes` weigh.
    bytes: usize,
    /// Everything after this revision is kept.
    oldest: Revision,
    /// What was seen between `oldest` and the first of `changes`: a quiet state must not make
    /// its readers start over because nodes are busy.
    between: Observed,
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
                self.between = Observed::default();
            }
            Change::Observed(observed) => self.between.merge(&observed),
            Change::Compacted { .. } => {}
        }
    }

    /// Where a reader goes on that has everything up to `since`, and what it missed before there.
    fn after(&self, since: Revision) -> (u64, Observed) {
        let is_read = |(change, _): &(Change, usize)| match change {
            Change::Events(events) => events.last().is_some_and(|e| e.revision <= since),
            Change::Observed(_) | Change::Compacted { .. } => false,
        };
        match self.changes.iter().rposition(is_read) {
            Some(at) => (self.first + at as u64 + 1, Observed::default()),
            None => (self.first, self.between.clone()),
        }
    }
}

/// How much is kept.
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
        Self::keeping(Bounds {
            changes: KEPT_CHANGES,
            bytes: KEPT_BYTES,
        })
    }
}

impl Feed {
    pub(crate) fn keeping(bounds: Bounds) -> Self {
        let ring = Ring {
            changes: VecDeque::new(),
            first: 0,
            bytes: 0,
            oldest: Revision(0),
            between: Observed::default(),
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
                weight::slim(&mut change);
                let weight = weight::of(&change);
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

    /// Starts over at `revision`: the replicated half was read anew, what came between is unknown.
    pub(crate) fn reset(&self, revision: Revision) {
        let end = {
            let mut ring = self.ring();
            // A reader standing at the end must notice as well.
            ring.first = ring.end() + 1;
            ring.changes.clear();
            ring.bytes = 0;
            ring.between = Observed::default();
            (ring.oldest, ring.newest) = (revision, revision);
            ring.first
        };
        self.end.send_replace(end);
    }

    /// A reader after `since`; `None` starts at the present.
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

/// One reader's place.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Feed>,
    place: u64,
    /// Seen since the revision it asked for, and kept only as a sum.
    missed: Option<Arc<Observed>>,
    compacted: bool,
    after: Revision,
    end: watch::Receiver<u64>,
}

impl Subscription {
    /// The revision it began after: everything later is told.
    pub fn after(&self) -> Revision {
        self.after
    }

    /// The next change, as soon as there is one. Cancel safe.
    pub async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.try_next() {
                return change;
            }
            // The sender lives in the feed, which this holds.
            if self.end.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next change if there is one. What was seen in a row comes as one: it is shown as it is
    /// now, not as it was.
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
