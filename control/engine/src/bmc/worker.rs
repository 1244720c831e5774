//! BMC worker: complete readings at long intervals, readings of power draw and limit at short ones.

use super::{
    config::{self, BmcPlan, BmcTarget, client},
    events::BmcEventLists,
    health::BmcHealth,
    host::Hosts,
    node::{NextReadingStep, Node, ReadingCause},
    reading_requests::{MOST_WAITING, ReadingRequest, RequestedReading, WORKER_PANICKED},
    readings::Readings,
};
use crate::history::History;
use futures::FutureExt as _;
use lattice_mesh::Clock;
use lattice_quorum_types::NodeId;
use lattice_redfish::{
    BmcReport, Breadth, Documents, Scope, Selector,
    http::{Bmc, EndpointError, ReadOnly},
};
use secrecy::ExposeSecret as _;
use std::{
    collections::BTreeMap, panic::AssertUnwindSafe, path::PathBuf, sync::Arc, time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// Timeout for closing a BMC session when control stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a first failed reading, and before a failed worker is restarted; it doubles with each further failure.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(60);

/// Dependencies shared by the workers.
#[derive(Clone)]
pub struct Edges {
    /// Clock of this control.
    pub clock: Arc<dyn Clock>,
    /// Store of the latest readings.
    pub readings: Readings,
    /// Store of node history.
    pub history: History,
    /// Host data of a node; `None` while the node has not been seen.
    pub hosts: Hosts,
    /// Stops the workers.
    pub stop: CancellationToken,
}

/// Plan and dependencies of the workers, with the limit of concurrent readings.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) edges: Edges,
    pub(super) at_a_time: Arc<Semaphore>,
    pub(super) plan: Arc<BmcPlan>,
}

/// Reader of one BMC.
pub(super) struct Worker<'n> {
    bmc: Bmc,
    endpoint: ReadOnly,
    password_file: PathBuf,
    event_lists: BmcEventLists,
    nodes: &'n mut BTreeMap<NodeId, Node>,
    /// Requests for an immediate reading.
    requests: mpsc::Receiver<ReadingRequest>,
    /// Number of successive readings that left a value unknown.
    failures: u32,
    /// Whether the last power reading returned a draw; `None` if it was not requested.
    draw_is_known: Option<bool>,
    shared: Shared,
}

/// The worker panicked, which is a bug in control.
#[derive(Debug, thiserror::Error)]
#[error("{WORKER_PANICKED}")]
pub(super) struct WorkerPanicked;

/// The nodes of a target, before their first reading.
pub(super) fn nodes(target: &BmcTarget, shared: &Shared) -> BTreeMap<NodeId, Node> {
    let node = |(name, selector): &(NodeId, Selector)| {
        let wrong = BmcHealth::new(shared.plan.table.clone());
        (
            name.clone(),
            Node::new(name.clone(), selector.clone(), wrong),
        )
    };
    target.nodes.iter().map(node).collect()
}

/// Creates the request queue for the nodes of a target and registers it.
pub(super) fn open_request_queue(
    target: &BmcTarget,
    shared: &Shared,
) -> mpsc::Receiver<ReadingRequest> {
    let (ask, asks) = mpsc::channel(MOST_WAITING);
    for (name, _) in &target.nodes {
        shared.edges.readings.put_worker(name.clone(), ask.clone());
    }
    asks
}

impl<'n> Worker<'n> {
    /// Creates a worker and registers its request queue.
    pub(super) fn new(
        target: &BmcTarget,
        shared: &Shared,
        nodes: &'n mut BTreeMap<NodeId, Node>,
    ) -> Result<Self, EndpointError> {
        Ok(Self {
            bmc: client(&target.endpoint)?,
            endpoint: target.endpoint.clone(),
            password_file: target.password_file.clone(),
            event_lists: BmcEventLists::default(),
            nodes,
            requests: open_request_queue(target, shared),
            failures: 0,
            draw_is_known: None,
            shared: shared.clone(),
        })
    }

    /// Runs until control stops or the worker panics. `asked` are requests that wait for the first reading.
    pub async fn run(mut self, asked: Vec<ReadingRequest>) -> Result<(), WorkerPanicked> {
        let stop = self.shared.edges.stop.clone();
        // After a panic only the session and the faults reported for the nodes are used.
        let reading = AssertUnwindSafe(self.read(asked)).catch_unwind();
        let ended = stop.run_until_cancelled(reading).await;
        // A pending request is abandoned; the session is closed.
        if timeout(CLOSE_TIMEOUT, self.bmc.close()).await.is_err() {
            tracing::warn!(
                bmc = self.bmc.address(),
                "BMC session stays open until it expires"
            );
        }
        match ended {
            None | Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(WorkerPanicked),
        }
    }

    async fn read(&mut self, mut waiting: Vec<ReadingRequest>) {
        for node in self.nodes.values_mut() {
            node.resume(&self.shared.edges.history).await;
        }
        // The start is spread over one interval, so that five thousand BMCs are not read at the same moment.
        let spread = self.shared.plan.power_interval.mul_f64(rand::random());
        let mut power_at = Instant::now() + spread;
        let mut whole_at = power_at;
        // Until this time no reading confirms a change that was read once: within seconds a BMC may return the same
        // invalid data.
        let mut confirm_at: Option<Instant> = None;
        loop {
            let mut asked = std::mem::take(&mut waiting);
            if asked.is_empty() {
                tokio::select! {
                    () = sleep_until(power_at.min(whole_at)) => {}
                    // The sender is held by the readings, so the channel stays open.
                    Some(ask) = self.requests.recv() => asked.push(ask),
                }
            }
            let turn = Arc::clone(&self.shared.at_a_time);
            // The semaphore is never closed.
            let Ok(turn) = turn.acquire_owned().await else {
                return;
            };
            // One reading serves all requests that arrive before it begins.
            while let Ok(ask) = self.requests.try_recv() {
                asked.push(ask);
            }
            if self.has_unknown_value() && self.renew_password().await {
                whole_at = Instant::now();
            }
            let waits = confirm_at.is_some_and(|at| Instant::now() < at);
            if waits && !asked.is_empty() && Instant::now() < whole_at {
                self.answer(asked).await;
            } else if !asked.is_empty() || Instant::now() >= whole_at {
                let next = self.read_complete(asked).await;
                self.failures = match next {
                    NextReadingStep::Retry => self.failures.saturating_add(1),
                    NextReadingStep::WaitInterval | NextReadingStep::Confirm => 0,
                };
                whole_at = Instant::now() + self.pause(next);
                let waits = self.nodes.values().any(Node::waits);
                confirm_at = waits.then(|| Instant::now() + self.shared.plan.confirm_after);
                power_at = Instant::now() + self.shared.plan.power_interval;
            } else {
                if self.poll_power().await {
                    // The other values may have become unknown or known as well.
                    let soon = Instant::now() + self.shared.plan.confirm_after;
                    whole_at = whole_at.min(soon);
                }
                power_at += self.shared.plan.power_interval;
                power_at = power_at.max(Instant::now());
            }
            drop(turn);
        }
    }

    /// Whether the last reading left a value unknown.
    fn has_unknown_value(&self) -> bool {
        self.failures > 0 || self.draw_is_known == Some(false)
    }

    /// Loads the password file again. Returns whether the password changed; the BMC is then read at once, whatever
    /// pause was due.
    async fn renew_password(&mut self) -> bool {
        let path = self.password_file.clone();
        let password = match spawn_blocking(move || config::password(&path)).await {
            Ok(Ok(password)) => password,
            Ok(Err(why)) => {
                let bmc = self.bmc.address();
                tracing::warn!(bmc, why, "BMC password unchanged");
                return false;
            }
            // The runtime shuts down.
            Err(_) => return false,
        };
        if password.expose_secret() == self.endpoint.0.password.expose_secret() {
            return false;
        }
        let mut endpoint = self.endpoint.clone();
        endpoint.0.password = password;
        match client(&endpoint) {
            Ok(bmc) => {
                let former = std::mem::replace(&mut self.bmc, bmc);
                self.endpoint = endpoint;
                let _ = timeout(CLOSE_TIMEOUT, former.close()).await;
                let bmc = self.bmc.address();
                tracing::info!(bmc, "BMC password file changed; trying the new password");
                true
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "new BMC password not tried");
                false
            }
        }
    }

    fn pause(&self, next: NextReadingStep) -> Duration {
        match next {
            NextReadingStep::WaitInterval => {
                // Jitter of ten percent either way spreads the readings of controls and BMCs over time.
                let tenth = 0.9 + 0.2 * rand::random::<f64>();
                self.shared.plan.interval.mul_f64(tenth)
            }
            NextReadingStep::Confirm => self.shared.plan.confirm_after,
            // A value that the account may never read must not cause a complete reading every minute.
            NextReadingStep::Retry => {
                let doubled = self.failures.saturating_sub(1).min(16);
                let pause = RETRY_PAUSE.saturating_mul(1 << doubled);
                pause.min(self.shared.plan.interval)
            }
        }
    }

    async fn read_all(&mut self) -> (BmcReport, Documents) {
        let systems = match self.nodes.values().next() {
            Some(node) if self.nodes.len() == 1 => node.selector().clone(),
            _ => Selector::Every,
        };
        let scope = Scope {
            systems,
            breadth: Breadth::Everything,
        };
        let look = self.bmc.read(&scope).await;
        (look.interpretation.report, look.documents)
    }

    /// Answers requests while a change waits for confirmation. Updates only the health state; the rest is left to the
    /// next complete reading.
    async fn answer(&mut self, asked: Vec<ReadingRequest>) {
        let (report, _) = self.read_all().await;
        let edges = &self.shared.edges;
        let now = edges.clock.now();
        let mut looked = BTreeMap::new();
        for (name, node) in self.nodes.iter_mut() {
            if node.update_health(&report, now) {
                edges.readings.put_parts(name.clone(), node.parts(now));
            }
            looked.insert(name.clone(), node.compare_reading(&report));
        }
        answer_requests(asked, &looked);
        // The confirming reading uses a new session.
        self.bmc.close().await;
    }

    /// Performs a complete reading and answers the requests.
    async fn read_complete(&mut self, asked: Vec<ReadingRequest>) -> NextReadingStep {
        let (report, documents) = self.read_all().await;
        let edges = &self.shared.edges;
        let look = ReadingCause::of(&asked, edges.clock.now());
        let mut next = NextReadingStep::WaitInterval;
        let mut looked = BTreeMap::new();
        for (name, node) in self.nodes.iter_mut() {
            let (then, came) = node.take(&report, &look);
            next = next.max(then);
            looked.insert(name.clone(), came);
            // The history is written before the data is published elsewhere.
            node.write(&edges.history, look.at).await;
            node.compare((edges.hosts)(name).as_ref(), look.at);
            edges.readings.put_parts(name.clone(), node.parts(look.at));
            let power = node.power(&report);
            edges.readings.put_power(name.clone(), power, look.at);
        }
        let is_quiet = asked.is_empty() && next == NextReadingStep::WaitInterval;
        answer_requests(asked, &looked);
        if !report.nodes.is_empty() {
            self.read_events(documents, is_quiet).await;
        }
        if next == NextReadingStep::Confirm {
            // The confirming reading uses a new session.
            self.bmc.close().await;
        }
        next
    }

    /// Reads the BMC's events and stores them for each node that they concern.
    async fn read_events(&mut self, documents: Documents, is_quiet: bool) {
        let read = self.event_lists.read(&self.bmc, documents, is_quiet).await;
        let (lists, deeds) = read;
        let edges = &self.shared.edges;
        let now = edges.clock.now();
        for (name, node) in self.nodes.iter() {
            let of_node = deeds.iter().filter(|deed| node.is_concerned(&deed.systems));
            let events_read = (lists.clone(), of_node.cloned().collect());
            let kept = edges
                .history
                .append_bmc_events(name.to_string(), events_read, now.0);
            if let Err(error) = kept.await {
                let error: &dyn std::error::Error = &error;
                tracing::error!(node = %name, error, "BMC log entries not written yet");
                self.event_lists.forget();
            }
        }
    }

    /// Reads power draw and limit by the known routes. Returns whether the BMC became silent or answers again, or
    /// whether a route is stale.
    async fn poll_power(&mut self) -> bool {
        let edges = &self.shared.edges;
        let mut draw_is_known = None;
        let mut is_stale = false;
        for (name, node) in self.nodes.iter_mut() {
            let now = edges.clock.now();
            node.write(&edges.history, now).await;
            // The host may have been seen only after its BMC was read.
            if node.compare((edges.hosts)(name).as_ref(), now) {
                let read_at = edges
                    .readings
                    .parts(name)
                    .map_or(now, |parts| parts.read_at);
                edges.readings.put_parts(name.clone(), node.parts(read_at));
            }
            let Some(route) = node.route() else {
                continue;
            };
            let read = self.bmc.read_power(route).await;
            draw_is_known = Some(draw_is_known == Some(true) || read.power.draw.is_known());
            if read.is_stale {
                // A missing resource does not show that the draw is unknown. The last value stays until the complete
                // reading finds the present path.
                is_stale = true;
                node.lose_route();
                continue;
            }
            let now = edges.clock.now();
            edges.readings.put_power(name.clone(), read.power, now);
        }
        let before = std::mem::replace(&mut self.draw_is_known, draw_is_known);
        is_stale || (before.is_some() && draw_is_known.is_some() && before != draw_is_known)
    }
}

/// Answers the requests with the results for their nodes.
pub(super) fn answer_requests(
    asked: Vec<ReadingRequest>,
    looked: &BTreeMap<NodeId, RequestedReading>,
) {
    for ask in asked {
        if let Some(came) = looked.get(&ask.node) {
            // The requester may have stopped waiting.
            let _ = ask.answer.send(came.clone());
        }
    }
}
