//! Node events other than inventory changes: merged if frequent, numbered, and queued for the history.

use super::history::NodeHistory;
use super::publication::Publication;
use lattice_conformance::history::{Cause, EventFold, EventKind, FoldedLine, HistoryRecord};
use lattice_mesh::Clock;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval at which merged events are checked.
const FOLD_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Shared [`Publication`]: changes and events share one sequence of numbers.
pub type SharedPublication = Arc<Mutex<Publication>>;

/// Locks the publication, which is consistent between statements, so a panic elsewhere leaves it valid.
pub(super) fn publication(shared: &SharedPublication) -> MutexGuard<'_, Publication> {
    shared.lock()
}

/// Handle on the events of one node. Clones share the state. Reporting an event does not wait for the disk.
#[derive(Clone)]
pub struct NodeEvents(Arc<Inner>);

struct Inner {
    publication: SharedPublication,
    history: NodeHistory,
    clock: Arc<dyn Clock>,
    boot_id: String,
    fold: Mutex<EventFold<EventKind>>,
}

impl std::fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeEvents({:?})", self.0.boot_id)
    }
}

impl NodeEvents {
    /// Continues after `newest`, the last records on disk.
    pub fn new(
        publication: SharedPublication,
        history: NodeHistory,
        clock: Arc<dyn Clock>,
        boot_id: String,
        newest: &[HistoryRecord],
    ) -> Self {
        let mut fold = EventFold::default();
        for record in newest {
            if let HistoryRecord::Event(event) = record {
                fold.count_line(event.event.recording_limit(), event.at);
            }
        }
        Self(Arc::new(Inner {
            publication,
            history,
            clock,
            boot_id,
            fold: Mutex::new(fold),
        }))
    }

    /// Registers the continuation for a journal that becomes readable after the start. The node is then read again,
    /// because earlier reads were compared with an empty history.
    pub fn resume_when_readable(&self, trigger: mpsc::Sender<Cause>) {
        let shared = self.0.publication.clone();
        let boot_id = self.0.boot_id.clone();
        self.0.history.set_continuation(move |history, reopened| {
            // Every writer of lines holds this lock.
            let mut publication = publication(&shared);
            let (restored, events) = reopened.take(history);
            publication.resume(restored);
            let cause = publication.history().start_cause(&boot_id);
            let lines = events
                .into_iter()
                .map(|folded| publication.number_event(&boot_id, folded));
            history.record(lines.collect(), Vec::new());
            // If the channel is full, a read is due anyway.
            let _ = trigger.try_send(cause);
        });
    }

    /// Records the start of the agent and, if the host has rebooted since the last record, the boot.
    pub fn record_start(&self, version: &str, booted_at: Option<u64>) {
        let boot_id = &self.0.boot_id;
        let before = publication(&self.0.publication)
            .history()
            .boot_before(boot_id)
            .map(str::to_owned);
        if before.is_some() {
            self.record_now(EventKind::Boot { before, booted_at });
        }
        let version = version.to_owned();
        self.record_now(EventKind::Agent { version });
    }

    /// Records an event that happens now.
    pub fn record_now(&self, what: EventKind) {
        self.record_event(self.0.clock.now().0, what);
    }

    /// Records an event that happened at `at`, Unix milliseconds.
    pub fn record_event(&self, at: u64, what: EventKind) {
        let now = self.0.clock.now().0;
        // Locked until the event is numbered, so that the earlier event has the lower number.
        let mut fold = self.fold();
        let (key, rule) = (what.key(), what.recording_limit());
        if let Some(folded) = fold.add_event(now, at, key, rule, what) {
            self.number_and_queue(vec![folded]);
        }
    }

    /// Writes merged events for as long as the agent runs.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(FOLD_CHECK_INTERVAL).await;
            self.write_due();
        }
    }

    /// Writes the merged events that are due.
    pub(super) fn write_due(&self) {
        let now = self.0.clock.now().0;
        let mut fold = self.fold();
        let due = fold.take_due_lines(now);
        self.number_and_queue(due);
    }

    /// Records an orderly stop of the agent, and writes all merged events.
    pub fn record_stop(&self, version: &str) {
        self.record_now(EventKind::Stopped {
            version: version.to_owned(),
        });
        let now = self.0.clock.now().0;
        let mut fold = self.fold();
        let rest = fold.drain(now);
        self.number_and_queue(rest);
    }

    fn fold(&self) -> MutexGuard<'_, EventFold<EventKind>> {
        self.0.fold.lock()
    }

    fn number_and_queue(&self, happened: Vec<FoldedLine<EventKind>>) {
        if happened.is_empty() {
            return;
        }
        // Locked until the lines are queued, so that they are in the order of their numbers.
        let mut publication = publication(&self.0.publication);
        let lines = happened
            .into_iter()
            .map(|folded| publication.number_event(&self.0.boot_id, folded));
        self.0.history.record(lines.collect(), Vec::new());
    }
}

#[cfg(test)]
mod tests;
