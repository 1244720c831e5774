//! Watch feed: a bounded buffer of recent events, for readers with independent positions. The writer never waits for a
//! reader. A reader that falls behind the buffer receives [`FeedRead::Compacted`] and starts over.

use lattice_quorum_types::{
    Event, Revision,
    planted::{self, Bug},
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use tokio::sync::watch;

/// Maximum number of buffered events.
pub const MAX_BUFFERED_EVENTS: usize = 65_536;
/// Approximate maximum of buffered bytes: events carry workloads of up to 64 KiB.
const MAX_BUFFERED_BYTES: usize = 64 << 20;
/// Events in one step of a watch; a step that reaches the limit ends with its current revision.
const STEP_EVENTS: usize = 1024;
/// Approximate bytes in one step; at least one revision. The mesh accepts 16 MiB in one item by default.
const STEP_BYTES: usize = 2 << 20;

struct Ring {
    events: VecDeque<(usize, Event)>,
    bytes: usize,
    /// Oldest revision that a watch can start from: `events` holds everything after it.
    oldest: Revision,
}

/// Result of reading the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedRead {
    /// Complete revisions, in order, and the reader's new position.
    Events(Vec<Event>, Revision),
    /// No new events.
    Nothing,
    /// Events after the reader's position are no longer buffered. The revision is the oldest from which a watch can
    /// start.
    Compacted(Revision),
}

/// Events of recent revisions.
pub struct Feed {
    ring: Mutex<Ring>,
    newest: watch::Sender<Revision>,
}

impl Feed {
    /// Creates an empty feed for a state at `revision`.
    pub fn new(revision: Revision) -> Self {
        let ring = Ring {
            events: VecDeque::new(),
            bytes: 0,
            oldest: revision,
        };
        Self {
            ring: Mutex::new(ring),
            newest: watch::Sender::new(revision),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }

    /// Adds events, in order of revision, all later than the published ones.
    pub fn publish(&self, events: impl IntoIterator<Item = Event>) {
        let mut newest = None;
        {
            let mut ring = self.ring();
            for event in events {
                newest = Some(event.revision);
                let bytes = event.memory_bytes();
                ring.bytes += bytes;
                ring.events.push_back((bytes, event));
            }
            ring.shrink();
        }
        if let Some(revision) = newest {
            self.newest.send_replace(revision);
        }
    }

    /// Restarts at `revision`, after a snapshot has replaced the state.
    pub fn reset(&self, revision: Revision) {
        {
            let mut ring = self.ring();
            ring.events.clear();
            ring.bytes = 0;
            ring.oldest = revision;
        }
        self.newest.send_replace(revision);
    }

    /// Subscribes to the newest published revision.
    pub fn newest(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }

    /// Returns the events after `since`.
    pub fn after(&self, since: Revision) -> FeedRead {
        let ring = self.ring();
        if since < ring.oldest {
            return FeedRead::Compacted(ring.oldest);
        }
        let start = ring
            .events
            .partition_point(|(_, event)| event.revision <= since);
        let start = match planted::is_planted(Bug::EventsLost) && since.0.is_multiple_of(7) {
            true => (start + 1).min(ring.events.len()),
            false => start,
        };
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0;
        for (event_bytes, event) in ring.events.range(start..) {
            let last = events.last().map(|e| e.revision);
            let full = events.len() >= STEP_EVENTS || bytes >= STEP_BYTES;
            if full && last != Some(event.revision) {
                break;
            }
            bytes += event_bytes;
            events.push(event.clone());
        }
        match events.last().map(|event| event.revision) {
            Some(revision) => FeedRead::Events(events, revision),
            None => FeedRead::Nothing,
        }
    }
}

impl Ring {
    /// Drops whole revisions from the front, down to the limits.
    fn shrink(&mut self) {
        while self.events.len() > MAX_BUFFERED_EVENTS
            || self.bytes > MAX_BUFFERED_BYTES && self.events.len() > 1
        {
            let Some((bytes, event)) = self.events.pop_front() else {
                return;
            };
            self.bytes -= bytes;
            self.oldest = event.revision;
        }
        while self
            .events
            .front()
            .is_some_and(|(_, event)| event.revision <= self.oldest)
        {
            if let Some((bytes, _)) = self.events.pop_front() {
                self.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::state_machine::feed::*;
    use lattice_quorum_types::{ProjectPath, UnixMillis, event::EventKind};

    fn event(revision: u64, ordinal: u32) -> Event {
        #[expect(clippy::unwrap_used, reason = "tests")]
        let path = ProjectPath::new("atlas").unwrap();
        let kind = EventKind::ProjectDeleted { path };
        Event {
            revision: Revision(revision),
            ordinal,
            at: UnixMillis(0),
            kind,
        }
    }
    fn revisions(step: FeedRead) -> Vec<u64> {
        match step {
            FeedRead::Events(events, _) => events.iter().map(|e| e.revision.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_gets_what_follows_its_place_in_whole_revisions() {
        let feed = Feed::new(Revision(4));
        feed.publish([event(5, 0), event(5, 1), event(6, 0)]);
        assert_eq!(revisions(feed.after(Revision(4))), [5, 5, 6]);
        assert_eq!(revisions(feed.after(Revision(5))), [6]);
        assert_eq!(feed.after(Revision(6)), FeedRead::Nothing);
        assert_eq!(feed.after(Revision(9)), FeedRead::Nothing);
        assert_eq!(feed.after(Revision(3)), FeedRead::Compacted(Revision(4)));
    }

    #[test]
    fn a_step_is_bounded_and_never_splits_a_revision() {
        let feed = Feed::new(Revision(0));
        feed.publish((0..1500).map(|i| event(1, i)).chain([event(2, 0)]));
        assert_eq!(revisions(feed.after(Revision(0))).len(), 1500);
        assert_eq!(revisions(feed.after(Revision(1))), [2]);
    }

    #[test]
    fn old_revisions_are_dropped_whole() {
        let feed = Feed::new(Revision(0));
        feed.publish([event(1, 0), event(1, 1)]);
        for revision in 2..=MAX_BUFFERED_EVENTS as u64 {
            feed.publish([event(revision, 0)]);
        }
        assert_eq!(feed.after(Revision(0)), FeedRead::Compacted(Revision(1)));
        assert_eq!(revisions(feed.after(Revision(1)))[0], 2);
    }

    #[test]
    fn a_reset_compacts_everything_before_it() {
        let feed = Feed::new(Revision(0));
        feed.publish([event(1, 0)]);
        feed.reset(Revision(7));
        assert_eq!(feed.after(Revision(1)), FeedRead::Compacted(Revision(7)));
        assert_eq!(feed.after(Revision(7)), FeedRead::Nothing);
    }
}
