//! What changed, for readers that each keep their own place. Bounded: nobody waits for a reader,
//! and one that falls behind is told so and starts over from a view.

use lattice_quorum_types::{AllocationId, Event, NodeId, Revision};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Changes kept for readers that resume: at a hundred a second, more than a minute.
const KEPT_CHANGES: usize = 8_192;

/// One step of what changed. The view already shows it when a reader gets it.
#[derive(Debug, Clone)]
pub enum Change {
    /// Everything one revision changed, in order; never empty.
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
}

#[derive(Debug)]
struct Ring {
    changes: VecDeque<Change>,
    /// Position of the first of `changes`.
    first: u64,
    /// Everything after this revision is kept.
    oldest: Revision,
}

/// Recent changes.
#[derive(Debug)]
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    kept: usize,
    end: watch::Sender<u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Self::keeping(KEPT_CHANGES)
    }
}

impl Feed {
    pub(crate) fn keeping(kept: usize) -> Self {
        let ring = Ring {
            changes: VecDeque::new(),
            first: 0,
            oldest: Revision(0),
        };
        Self {
            ring: Mutex::new(ring),
            kept,
            end: watch::Sender::new(0),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let end = {
            let mut ring = self.ring();
            ring.changes.extend(changes);
            while ring.changes.len() > self.kept {
                if let Some(Change::Events(events)) = ring.changes.pop_front()
                    && let Some(last) = events.last()
                {
                    ring.oldest = last.revision;
                }
                ring.first += 1;
            }
            ring.first + ring.changes.len() as u64
        };
        self.end.send_replace(end);
    }

    /// Starts over at `revision`: the replicated half was read anew, what came between is unknown.
    pub(crate) fn reset(&self, revision: Revision) {
        let end = {
            let mut ring = self.ring();
            ring.first += ring.changes.len() as u64;
            ring.changes.clear();
            ring.oldest = revision;
            // A reader standing at the end must notice as well.
            ring.first += 1;
            ring.first
        };
        self.end.send_replace(end);
    }

    /// A reader after `since`; `None` starts at the present.
    pub(crate) fn subscribe(self: &Arc<Self>, since: Option<Revision>) -> Subscription {
        let ring = self.ring();
        let end = ring.first + ring.changes.len() as u64;
        let place = match since {
            None => end,
            Some(since) if since < ring.oldest => ring.first,
            Some(since) => {
                let is_new = |change: &Change| match change {
                    Change::Events(events) => events.last().is_some_and(|e| e.revision > since),
                    Change::Observed(_) | Change::Compacted { .. } => false,
                };
                let skipped = ring.changes.iter().position(is_new);
                skipped.map_or(end, |at| ring.first + at as u64)
            }
        };
        let compacted = since.is_some_and(|since| since < ring.oldest);
        Subscription {
            feed: self.clone(),
            place,
            compacted,
            end: self.end.subscribe(),
        }
    }
}

/// One reader's place.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Feed>,
    place: u64,
    compacted: bool,
    end: watch::Receiver<u64>,
}

impl Subscription {
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

    /// The next change if there is one.
    pub fn try_next(&mut self) -> Option<Change> {
        self.end.borrow_and_update();
        let ring = self.feed.ring();
        if self.compacted || self.place < ring.first {
            self.compacted = false;
            self.place = ring.first;
            return Some(Change::Compacted {
                oldest: ring.oldest,
            });
        }
        let at = usize::try_from(self.place - ring.first).ok()?;
        let change = ring.changes.get(at)?.clone();
        self.place += 1;
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "tests")]
    use super::*;
    use lattice_quorum_types::{ProjectPath, UnixMillis, event::EventKind};

    fn revision(n: u64) -> Change {
        let path = match ProjectPath::new("atlas") {
            Ok(path) => path,
            Err(e) => panic!("{e}"),
        };
        let event = Event {
            revision: Revision(n),
            ordinal: 0,
            at: UnixMillis(n),
            kind: EventKind::ProjectDeleted { path },
        };
        Change::Events(Arc::from([event]))
    }

    fn numbers(subscription: &mut Subscription) -> Vec<u64> {
        std::iter::from_fn(|| subscription.try_next())
            .map(|change| match change {
                Change::Events(events) => events[0].revision.0,
                Change::Observed(_) => 0,
                Change::Compacted { oldest } => 1_000 + oldest.0,
            })
            .collect()
    }

    #[test]
    fn a_reader_resumes_after_its_revision_and_misses_nothing() {
        let feed = Arc::new(Feed::keeping(10));
        feed.publish([revision(1), revision(2), revision(3)]);
        let mut late = feed.subscribe(Some(Revision(1)));
        let mut now = feed.subscribe(None);
        feed.publish([Change::Observed(Arc::default()), revision(4)]);
        assert_eq!(numbers(&mut late), [2, 3, 0, 4]);
        assert_eq!(numbers(&mut now), [0, 4]);
    }

    #[test]
    fn a_reader_too_far_behind_is_told_and_goes_on() {
        let feed = Arc::new(Feed::keeping(2));
        let mut slow = feed.subscribe(None);
        feed.publish([revision(1), revision(2), revision(3), revision(4)]);
        assert_eq!(numbers(&mut slow), [1_002, 3, 4]);
        let mut old = feed.subscribe(Some(Revision(1)));
        assert_eq!(numbers(&mut old), [1_002, 3, 4]);
    }

    #[test]
    fn a_reset_reaches_readers_that_had_read_everything() {
        let feed = Arc::new(Feed::keeping(10));
        let mut reader = feed.subscribe(None);
        feed.reset(Revision(70));
        feed.publish([revision(71)]);
        assert_eq!(numbers(&mut reader), [1_070, 71]);
    }
}
