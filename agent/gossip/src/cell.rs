//! A cell this process is in.

use crate::{
    Belief, CellName, CellStats, Member, NotPublishable, Published, Snapshot, door::Door,
    run::Texts, text,
};
use lattice_mesh::Identity;
use std::{fmt, sync::Arc};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A cell this process is in. Clones share it; the last one dropped leaves the cell.
#[derive(Clone)]
pub struct Cell {
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    door: Arc<Door>,
    publish: watch::Sender<Texts>,
    changes: watch::Receiver<Arc<Snapshot>>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
    _stop_on_drop: DropGuard,
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({} in {})", self.shared.identity, self.name())
    }
}

impl Cell {
    pub(crate) fn new(
        identity: Identity,
        door: Arc<Door>,
        publish: watch::Sender<Texts>,
        changes: watch::Receiver<Arc<Snapshot>>,
        stop: CancellationToken,
        task: JoinHandle<()>,
    ) -> Self {
        let shared = Shared {
            identity,
            door,
            publish,
            changes,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
            task: Mutex::new(Some(task)),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Which.
    pub fn name(&self) -> &CellName {
        &self.shared.door.name
    }

    /// Who this process is in it.
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// From now on says this of itself, and nothing it said before. Unchanged values cost
    /// nothing. Returns at once; refuses what would be too much for everyone else.
    pub fn publish(&self, published: &Published) -> Result<(), NotPublishable> {
        let texts = text::to_texts(published)?;
        self.shared.publish.send_if_modified(|last| {
            let changed = **last != texts;
            if changed {
                *last = Arc::new(texts);
            }
            changed
        });
        Ok(())
    }

    /// Everyone known now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.changes.borrow().clone()
    }

    /// Everyone known now, in order of identity.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.snapshot().members.values().cloned().collect()
    }

    /// What is known of one member now.
    pub fn member(&self, identity: &Identity) -> Option<Arc<Member>> {
        self.snapshot().members.get(identity).cloned()
    }

    /// The latest snapshot, and each later one as it is taken; snapshots in between may be
    /// skipped by a slow reader. Its sender ends when the cell is left.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.changes.clone()
    }

    /// What the cell has done so far.
    pub fn stats(&self) -> CellStats {
        self.shared.door.counters.read()
    }

    /// Leaves the cell: the others see this process fall silent. Returns when nothing of it runs
    /// any more, after about 2 s at most. Idempotent.
    pub async fn leave(&self) {
        self.shared.stop.cancel();
        let mut task = self.shared.task.lock().await;
        if let Some(running) = task.as_mut() {
            let _ = running.await;
            *task = None;
        }
    }

    /// How many others are heard of now.
    pub fn alive_others(&self) -> usize {
        let snapshot = self.snapshot();
        let own = snapshot.members.get(self.identity());
        let own_counts = own.is_some_and(|m| m.belief == Belief::Alive);
        snapshot.alive().count() - usize::from(own_counts)
    }
}
