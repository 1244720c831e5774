//! What happens on the node beside changes: put together where it comes often, numbered, and left
//! to be written.

use super::history::NodeHistory;
use super::publication::Publication;
use lattice_hwprobe::history::{Cause, Fold, Folded, Happening, Record};
use lattice_mesh::Clock;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often what was counted is looked at.
const LOOK: Duration = Duration::from_secs(30);

/// What a [`Publication`] is shared as: changes and events are one sequence of numbers.
pub type Shared = Arc<Mutex<Publication>>;

/// Whole between statements, so a panic elsewhere does not spoil it.
pub(super) fn publication(shared: &Shared) -> MutexGuard<'_, Publication> {
    shared.lock()
}

/// A handle; they all mean the same node. Telling does not wait for the disk.
#[derive(Clone)]
pub struct NodeEvents(Arc<Inner>);

struct Inner {
    publication: Shared,
    history: NodeHistory,
    clock: Arc<dyn Clock>,
    boot_id: String,
    fold: Mutex<Fold<Happening>>,
}

impl std::fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeEvents({:?})", self.0.boot_id)
    }
}

impl NodeEvents {
    /// Goes on after `newest`, what was written down before.
    pub fn new(
        publication: Shared,
        history: NodeHistory,
        clock: Arc<dyn Clock>,
        boot_id: String,
        newest: &[Record],
    ) -> Self {
        let mut fold = Fold::default();
        for record in newest {
            if let Record::Event(event) = record {
                fold.spend(event.event.rule(), event.at);
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

    /// Where the journal could not be read at the start and can be later: goes on from it, and has
    /// the node read, since what was seen meanwhile was compared with nothing.
    pub fn go_on_later(&self, trigger: mpsc::Sender<Cause>) {
        let shared = self.0.publication.clone();
        let boot_id = self.0.boot_id.clone();
        self.0.history.goes_on_with(move |history, reopened| {
            // Whoever leaves lines holds it.
            let mut publication = publication(&shared);
            let (restored, events) = reopened.take(history);
            publication.resume(restored);
            let cause = publication.history().start_cause(&boot_id);
            let lines = events
                .into_iter()
                .map(|folded| publication.enter(&boot_id, folded));
            history.record(lines.collect(), Vec::new());
            // Where one waits, the node is read anyway.
            let _ = trigger.try_send(cause);
        });
    }

    /// The agent begins to run, on a host that may have been booted since.
    pub fn began(&self, version: &str, booted_at: Option<u64>) {
        let boot_id = &self.0.boot_id;
        let before = publication(&self.0.publication)
            .history()
            .boot_before(boot_id)
            .map(str::to_owned);
        if before.is_some() {
            self.tell(Happening::Boot { before, booted_at });
        }
        let version = version.to_owned();
        self.tell(Happening::Agent { version });
    }

    /// Something happens now.
    pub fn tell(&self, what: Happening) {
        self.tell_of(self.0.clock.now().0, what);
    }

    /// Something happened at `at`, Unix milliseconds.
    pub fn tell_of(&self, at: u64, what: Happening) {
        let now = self.0.clock.now().0;
        // Held until it is numbered, so that what happened first has the lower number.
        let mut fold = self.fold();
        let (key, rule) = (what.key(), what.rule());
        if let Some(folded) = fold.take(now, at, key, rule, what) {
            self.enter(vec![folded]);
        }
    }

    /// Writes down what was counted, for as long as the agent runs.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look();
        }
    }

    /// Writes down what is due.
    pub(super) fn look(&self) {
        let now = self.0.clock.now().0;
        let mut fold = self.fold();
        let due = fold.due(now);
        self.enter(due);
    }

    /// The agent ends as it was told to: with what was counted and is not due yet.
    pub fn end(&self, version: &str) {
        self.tell(Happening::Stopped {
            version: version.to_owned(),
        });
        let now = self.0.clock.now().0;
        let mut fold = self.fold();
        let rest = fold.rest(now);
        self.enter(rest);
    }

    fn fold(&self) -> MutexGuard<'_, Fold<Happening>> {
        self.0.fold.lock()
    }

    fn enter(&self, happened: Vec<Folded<Happening>>) {
        if happened.is_empty() {
            return;
        }
        // Held until it is left to be written, so that lines are in the order of their numbers.
        let mut publication = publication(&self.0.publication);
        let lines = happened
            .into_iter()
            .map(|folded| publication.enter(&self.0.boot_id, folded));
        self.0.history.record(lines.collect(), Vec::new());
    }
}

#[cfg(test)]
mod tests;
