//! Events of the many jobs, as a watcher receives them.

use futures::{Stream, StreamExt};
use lattice_quorum_types::{
    AllocationId, AllocationState, Event, Revision,
    event::{AllocationChange, EventKind},
    size,
    view::WatchItem,
};
use lattice_tests::{observer::Observer, wait::eventually};
use std::{
    collections::BTreeSet,
    pin::Pin,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Watch that started before the submit.
pub struct SubmitWatch {
    items: Pin<Box<dyn Stream<Item = WatchItem> + Send>>,
    count: usize,
    last_revision: Revision,
}

/// Result of a watch.
pub struct WatchReport {
    pub first_start: Instant,
    pub last_end: Instant,
    /// Completed allocations.
    pub done: BTreeSet<AllocationId>,
    pub events: u64,
    /// Size of the events on the wire to one watcher.
    pub bytes: u64,
}

impl SubmitWatch {
    /// Starts a watch for `count` jobs.
    pub async fn from_now(observer: &Observer, count: usize) -> Self {
        let hot = eventually("the quorum answers", || observer.hot()).await;
        Self {
            items: Box::pin(observer.watch(hot.revision)),
            count,
            last_revision: hot.revision,
        }
    }

    /// Waits until all jobs are done.
    ///
    /// # Panics
    /// When they are not done within `patience`, or one did not complete.
    pub async fn all(mut self, patience: Duration) -> WatchReport {
        let now = Instant::now();
        let mut seen = WatchReport {
            first_start: now,
            last_end: now,
            done: BTreeSet::new(),
            events: 0,
            bytes: 0,
        };
        let mut has_started = false;
        let listen = async {
            while seen.done.len() < self.count {
                let Some(item) = self.items.next().await else {
                    panic!("the watch ended");
                };
                let WatchItem::Events(events) = item else {
                    assert!(!matches!(item, WatchItem::Compacted { .. }), "{item:?}");
                    continue;
                };
                let now = Instant::now();
                for event in events
                    .iter()
                    .filter(|event| event.revision > self.last_revision)
                {
                    has_started |= seen.count(event, has_started, now);
                }
                self.last_revision = events
                    .last()
                    .map_or(self.last_revision, |event| event.revision);
            }
        };
        let in_time = timeout(patience, listen).await.is_ok();
        let (done, count) = (seen.done.len(), self.count);
        assert!(in_time, "{done} of {count} were done within {patience:?}");
        seen
    }
}

impl WatchReport {
    /// Counts an event; returns whether it is a start.
    fn count(&mut self, event: &Event, has_started: bool, now: Instant) -> bool {
        self.events += 1;
        self.bytes += size::encoded_bytes(event) as u64;
        let EventKind::Allocation { change, record } = &event.kind else {
            return false;
        };
        // An array is done with its last element.
        if record.spec.terms.array.is_some() {
            return false;
        }
        if record.state.is_terminal() {
            assert_eq!(record.state, AllocationState::Completed, "{record:?}");
            self.done.insert(record.id);
            self.last_end = now;
        }
        let is_start = *change == AllocationChange::Started;
        if is_start && !has_started {
            self.first_start = now;
        }
        is_start
    }
}
