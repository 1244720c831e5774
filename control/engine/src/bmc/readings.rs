//! Latest BMC readings by node, and requests for an immediate reading.

use super::{
    parts::Parts,
    reading_requests::{ReadingRequest, ReadingRequests, RequestedReading},
};
use lattice_conformance::{LimitState, Power};
use lattice_quorum_types::{NodeId, UnixMillis};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};

/// Latest power reading of a node by its BMC.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerSeen {
    /// Result of the last reading.
    pub power: Power,
    /// Time of the last reading with a known value; `None` if there was none.
    pub read_at: Option<UnixMillis>,
}

/// Whether a reading has any known value. A reading has none if its request was not sent or not answered.
fn has_known_value(power: &Power) -> bool {
    power.draw.is_known() || power.limit_state != LimitState::Unknown
}

/// Latest BMC readings, written by the workers and read by the rest of control.
#[derive(Debug, Clone)]
pub struct Readings {
    power: Arc<Mutex<BTreeMap<NodeId, Arc<PowerSeen>>>>,
    parts: Arc<Mutex<BTreeMap<NodeId, Arc<Parts>>>>,
    /// Requests for an immediate reading.
    asks: ReadingRequests,
    /// Incremented with every change of a node's records, findings or faults. Power changes constantly and wakes no
    /// receiver.
    version: watch::Sender<u64>,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            power: Arc::default(),
            parts: Arc::default(),
            asks: ReadingRequests::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Readings {
    /// A node's power; `None` if the node has no configured BMC, or the BMC was not read yet.
    pub fn power(&self, node: &NodeId) -> Option<Arc<PowerSeen>> {
        self.power.lock().get(node).cloned()
    }

    /// Latest class records, findings and faults of a node from its BMC; `None` if nothing is stored yet.
    pub fn parts(&self, node: &NodeId) -> Option<Arc<Parts>> {
        self.parts.lock().get(node).cloned()
    }

    /// Whether the last reading of the BMC requires the node to be drained.
    pub(crate) fn drains_now(&self, node: &NodeId) -> bool {
        self.parts(node)
            .is_some_and(|parts| parts.drains_now().next().is_some())
    }

    /// Latest class records, findings and faults of all nodes from their BMCs.
    pub(crate) fn all_parts(&self) -> BTreeMap<NodeId, Arc<Parts>> {
        self.parts.lock().clone()
    }

    /// Requests an immediate reading of a node's BMC for a principal, and waits up to `within`. A changed value counts
    /// only after a second reading, as usual. A slow BMC takes minutes for a complete reading. That reading continues
    /// after the timeout and answers the next request of the same principal; otherwise such a BMC could answer no
    /// request. `None` if no BMC of the node is configured.
    pub async fn look(
        &self,
        node: &NodeId,
        requester: &str,
        within: Duration,
    ) -> Option<RequestedReading> {
        let latest = || self.parts(node);
        self.asks.look((node, requester), within, &latest).await
    }

    pub(super) fn put_worker(&self, node: NodeId, worker: mpsc::Sender<ReadingRequest>) {
        self.asks.put_worker(node, worker);
    }

    /// Answers requests for this node in place of a worker, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn answers(&self, node: NodeId, looks: impl Fn() -> RequestedReading + Send + 'static) {
        let (worker, mut asks) =
            mpsc::channel::<ReadingRequest>(super::reading_requests::MOST_WAITING);
        self.put_worker(node, worker);
        tokio::spawn(async move {
            while let Some(ask) = asks.recv().await {
                let _ = ask.answer.send(looks());
            }
        });
    }

    /// Receiver that wakes when the records, findings or faults of a node change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Stores the result of a power reading at `now`. A reading without known values keeps the time of the last known
    /// one.
    pub fn put_power(&self, node: NodeId, power: Power, now: UnixMillis) {
        let mut all = self.power.lock();
        let read_at = match has_known_value(&power) {
            true => Some(now),
            false => all.get(&node).and_then(|seen| seen.read_at),
        };
        all.insert(node, Arc::new(PowerSeen { power, read_at }));
    }

    /// Stores what a BMC reported of a node, and wakes the receivers of [`Self::changes`] if the records, findings or
    /// faults differ.
    pub fn put_parts(&self, node: NodeId, parts: Parts) {
        let is_news = {
            let mut all = self.parts.lock();
            let old = all.insert(node, Arc::new(parts.clone()));
            // A change of the reported faults counts by itself: a fault may come and go without any other change.
            old.is_none_or(|old| {
                (&old.records, &old.findings) != (&parts.records, &parts.findings)
                    || old.named() != parts.named()
            })
        };
        if is_news {
            self.version.send_modify(|version| *version += 1);
        }
    }
}
