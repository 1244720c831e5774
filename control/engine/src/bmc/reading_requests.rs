//! Requests for an immediate BMC reading.

use super::parts::Parts;
use lattice_conformance::Class;
use lattice_quorum_types::NodeId;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

/// Capacity of one worker's request queue. Further requests wait until the queue has room.
pub(super) const MOST_WAITING: usize = 16;

/// A request for an immediate reading.
#[derive(Debug)]
pub(super) struct ReadingRequest {
    /// Node of the BMC that the request concerns.
    pub(super) node: NodeId,
    /// Principal that sent the request.
    pub(super) requester: String,
    /// Channel for the result.
    pub(super) answer: oneshot::Sender<RequestedReading>,
}

/// Reason reported while a worker restarts after a panic, which is a bug in control.
pub(crate) const WORKER_PANICKED: &str = "the BMC reader task panicked and restarts";

/// Result of a requested reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedReading {
    /// The BMC answered.
    Read {
        /// Classes that differ from the published records; a change is published once it is read twice.
        differs: Vec<Class>,
    },
    /// The BMC returned no data for the node.
    Silent {
        /// Reason why no data is available.
        why: String,
    },
    /// The reading did not finish in time and continues, or the request found no room in the queue.
    Late {
        /// Time waited, from the start of the request.
        within: Duration,
    },
}

/// Closure that returns the latest data from the BMC of the requested node.
type LatestParts<'a> = &'a (dyn Fn() -> Option<Arc<Parts>> + Sync);

/// Time for which a reading that outlasted its request answers a repeated request of the same principal.
const LATE_REUSE_TIMEOUT: Duration = Duration::from_secs(120);

/// A requested reading that is not finished.
#[derive(Debug)]
struct PendingReading {
    answered: oneshot::Receiver<RequestedReading>,
    /// Data from the BMC when the reading was requested.
    before: Option<Arc<Parts>>,
    /// Time at which a request last stopped waiting for this reading; `None` while the first request waits.
    abandoned_at: Option<Instant>,
}

impl PendingReading {
    /// Whether this reading may answer a request made now; `now` is the present BMC data. A fault that this reading
    /// itself discovered since it was requested must not be confirmed by the same reading.
    fn is_fresh_enough(&self, now: Option<&Parts>) -> bool {
        let drains = |parts: Option<&Parts>| parts.is_some_and(|p| p.drains_now().next().is_some());
        let is_suspected_by_it = drains(now) && !drains(self.before.as_deref());
        self.is_kept() && !is_suspected_by_it
    }

    fn is_kept(&self) -> bool {
        self.abandoned_at
            .is_none_or(|at| at.elapsed() <= LATE_REUSE_TIMEOUT)
    }
}

/// Waits for a reading. When the wait ends early for any reason, drop stores the reading for the principal's next
/// request.
struct ReadingWaiter<'a> {
    asks: &'a ReadingRequests,
    key: (NodeId, String),
    pending: Option<PendingReading>,
}

impl ReadingWaiter<'_> {
    /// Waits for the result. `None` if the worker of the BMC failed.
    async fn wait(mut self, latest: LatestParts<'_>) -> Option<RequestedReading> {
        let underway = self.pending.as_mut()?;
        let looked = (&mut underway.answered).await;
        let PendingReading {
            before,
            abandoned_at: left_at,
            ..
        } = self.pending.take()?;
        let mut looked = looked.ok()?;
        if let RequestedReading::Read { differs } = &mut looked
            && left_at.is_some()
            && let Some((before, now)) = before.zip(latest())
        {
            // A change that this reading confirmed is published already and is not reported as a difference again.
            differs.retain(|class| before.records.get(class) == now.records.get(class));
        }
        Some(looked)
    }
}

impl Drop for ReadingWaiter<'_> {
    fn drop(&mut self) {
        let Some(mut underway) = self.pending.take() else {
            return;
        };
        underway.abandoned_at = Some(Instant::now());
        let mut all = self.asks.late.lock();
        all.retain(|_, late| late.is_kept());
        all.insert(self.key.clone(), underway);
    }
}

/// Request queues of the workers, and the readings that outlasted their requests.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadingRequests {
    /// Request queue of the worker for each node's BMC.
    workers: Arc<Mutex<BTreeMap<NodeId, mpsc::Sender<ReadingRequest>>>>,
    /// Unfinished readings by node and requesting principal.
    late: Arc<Mutex<BTreeMap<(NodeId, String), PendingReading>>>,
}

impl ReadingRequests {
    pub(super) fn put_worker(&self, node: NodeId, worker: mpsc::Sender<ReadingRequest>) {
        self.workers.lock().insert(node, worker);
    }

    /// See [`Readings::look`](super::Readings::look).
    pub(super) async fn look(
        &self,
        (node, requester): (&NodeId, &str),
        within: Duration,
        latest: LatestParts<'_>,
    ) -> Option<RequestedReading> {
        let worker = self.workers.lock().get(node).cloned()?;
        let key = (node.clone(), requester.to_owned());
        let until = Instant::now() + within;
        let broke_down = || RequestedReading::Silent {
            why: WORKER_PANICKED.to_owned(),
        };
        let before = latest();
        let late = self.late.lock().remove(&key);
        let underway = match late.filter(|late| late.is_fresh_enough(before.as_deref())) {
            Some(late) => late,
            None => {
                let (answer, answered) = oneshot::channel();
                let (node, requester) = key.clone();
                let ask = worker.send(ReadingRequest {
                    node,
                    requester,
                    answer,
                });
                match timeout_at(until, ask).await {
                    Ok(Ok(())) => PendingReading {
                        answered,
                        before,
                        abandoned_at: None,
                    },
                    Ok(Err(_)) => return Some(broke_down()),
                    // The queue stayed full, so the request was not accepted.
                    Err(_) => return Some(RequestedReading::Late { within }),
                }
            }
        };
        let waiting = ReadingWaiter {
            asks: self,
            key,
            pending: Some(underway),
        };
        match timeout_at(until, waiting.wait(latest)).await {
            Ok(looked) => Some(looked.unwrap_or_else(broke_down)),
            Err(_) => Some(RequestedReading::Late { within }),
        }
    }
}
