//! Gossip cell that this process is a member of.

use crate::{
    CellName, CellStats, GossipLiveness, Member, NotPublishable, PublishedState, Snapshot,
    admission::CellReceiver,
    text::{self, Texts},
};
use lattice_mesh::Identity;
use std::{fmt, sync::Arc};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Gossip cell that this process is a member of. Clones share it; dropping the last one leaves the cell.
#[derive(Clone)]
pub struct Cell {
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    receiver: Arc<CellReceiver>,
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
        receiver: Arc<CellReceiver>,
        publish: watch::Sender<Texts>,
        changes: watch::Receiver<Arc<Snapshot>>,
        stop: CancellationToken,
        task: JoinHandle<()>,
    ) -> Self {
        let shared = Shared {
            identity,
            receiver,
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

    /// Name of the cell.
    pub fn name(&self) -> &CellName {
        &self.shared.receiver.name
    }

    /// Identity of this process in the cell.
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// Replaces the published state of this process. Unchanged values cost nothing. Returns at once.
    ///
    /// # Errors
    /// The state exceeds the limits of a member, or contains an invalid text.
    pub fn publish(&self, published: &PublishedState) -> Result<(), NotPublishable> {
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

    /// Latest snapshot of the cell.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.changes.borrow().clone()
    }

    /// All known members, in order of identity.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.snapshot().members.values().cloned().collect()
    }

    /// Present state of one member.
    pub fn member(&self, identity: &Identity) -> Option<Arc<Member>> {
        self.snapshot().members.get(identity).cloned()
    }

    /// Receiver of snapshots: the latest one and each later one. A slow reader may skip snapshots. The sender is
    /// dropped when the cell is left.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.changes.clone()
    }

    /// Counters of the cell.
    pub fn stats(&self) -> CellStats {
        self.shared.receiver.counters.read()
    }

    /// Leaves the cell; other members then see this process as silent. Returns when the task of the cell has ended,
    /// after about 2 s at most. Idempotent.
    pub async fn leave(&self) {
        self.shared.stop.cancel();
        let mut task = self.shared.task.lock().await;
        if let Some(running) = task.as_mut() {
            let _ = running.await;
            *task = None;
        }
    }

    /// Number of alive members, without this process.
    pub fn alive_peer_count(&self) -> usize {
        let snapshot = self.snapshot();
        let own = snapshot.members.get(self.identity());
        let own_counts = own.is_some_and(|m| m.liveness == GossipLiveness::Alive);
        snapshot.alive().count() - usize::from(own_counts)
    }
}
