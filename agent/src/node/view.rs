//! Node view: what the mesh's handlers may read.

use super::Publication;
use super::events::{self, SharedPublication};
use bytes::Bytes;
use lattice_conformance::{Digest, Schemas};
use parking_lot::MutexGuard;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Longest wait for a read: the driver's own timeout plus a margin.
const READ_TIMEOUT: Duration = Duration::from_secs(25);

/// Reason that no inventory is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InventoryUnavailable {
    /// The probes take longer than the caller may wait.
    #[error("the probes have not answered within {} s", READ_TIMEOUT.as_secs())]
    Slow,
    /// The probes ran and failed.
    #[error("the probes failed")]
    Failed,
    /// The agent is stopping.
    #[error("the agent is stopping")]
    Stopping,
}

/// Longest stored name of a caller, characters.
const MAX_NAME_CHARS: usize = 128;

/// Request for a fresh read.
#[derive(Debug)]
pub(super) struct ReadRequest {
    /// Name of the caller; `None` for a routine check.
    pub(super) by: Option<String>,
    pub(super) answer: oneshot::Sender<Bytes>,
}

/// View of the node, shared by the prober, which writes it, and all readers.
#[derive(Debug, Clone)]
pub struct NodeView {
    publication: SharedPublication,
    /// JSON of the last inventory.
    latest: watch::Receiver<Option<Bytes>>,
    requests: mpsc::Sender<ReadRequest>,
}

impl NodeView {
    pub(super) fn new(
        publication: SharedPublication,
        latest: watch::Receiver<Option<Bytes>>,
        wishes: mpsc::Sender<ReadRequest>,
    ) -> Self {
        Self {
            publication,
            latest,
            requests: wishes,
        }
    }

    /// Locks the publication, which is consistent between statements, so a panic elsewhere leaves it valid.
    pub(super) fn publication(&self) -> MutexGuard<'_, Publication> {
        events::publication(&self.publication)
    }

    /// Schema that this agent writes for each class.
    pub(crate) fn schemas(&self) -> Schemas {
        self.publication().schemas()
    }

    /// Content with this digest: the preimage of a class, or the node's document.
    pub fn content(&self, digest: [u8; 32]) -> Option<Bytes> {
        self.publication().content(&Digest(digest))
    }

    /// JSON of the last inventory; waits for the first read.
    pub async fn latest(&self) -> Result<Bytes, InventoryUnavailable> {
        let mut latest = self.latest.clone();
        let first = latest.wait_for(Option::is_some);
        let found = with_timeout(first).await?;
        let found = found.map_err(|_| InventoryUnavailable::Stopping)?.clone();
        found.ok_or(InventoryUnavailable::Stopping)
    }

    /// JSON of a fresh inventory. `by`: name of the operator or program that requested it, if any.
    pub async fn fresh(&self, by: Option<String>) -> Result<Bytes, InventoryUnavailable> {
        let (answer, answered) = oneshot::channel();
        let by = by.map(|name| {
            let plain = name.chars().filter(|c| !c.is_control());
            plain.take(MAX_NAME_CHARS).collect()
        });
        let asked = async {
            let sent = self.requests.send(ReadRequest { by, answer }).await;
            sent.map_err(|_| InventoryUnavailable::Stopping)?;
            answered.await.map_err(|_| match self.requests.is_closed() {
                true => InventoryUnavailable::Stopping,
                false => InventoryUnavailable::Failed,
            })
        };
        with_timeout(asked).await?
    }
}

async fn with_timeout<T>(wait: impl Future<Output = T>) -> Result<T, InventoryUnavailable> {
    let waited = tokio::time::timeout(READ_TIMEOUT, wait).await;
    waited.map_err(|_| InventoryUnavailable::Slow)
}
