//! Reads BMCs for as long as control runs: everything now and then, draw and limit often.

use super::{
    BmcPlan, BmcTarget, Readings,
    ask::{Ask, BROKE_DOWN, Looked, MOST_WAITING},
    config::{self, client},
    deeds::Deeds,
    health::Wrong,
    kept,
    node::{Look, Next, Node},
};
use crate::history::History;
use futures::FutureExt as _;
use lattice_hwprobe::{ClassRecord, Identity};
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
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long a BMC may take to end a session as control stops.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// After a look that failed, and before one that broke down is tried again.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What a host says that it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// Serial number, vendor, product.
    pub(crate) identity: Identity,
    /// Class `bios` as its agent and its BMC tell it together, once it is put together.
    pub(crate) bios: Option<Arc<ClassRecord>>,
    /// Class `bmc`, as well.
    pub(crate) bmc: Option<Arc<ClassRecord>>,
}

impl From<Identity> for Host {
    fn from(identity: Identity) -> Self {
        Self {
            identity,
            ..Self::default()
        }
    }
}

/// What a host says that it is, by its node.
pub(crate) type Hosts = Arc<dyn Fn(&NodeId) -> Option<Host> + Send + Sync>;

/// What the workers share.
#[derive(Clone)]
pub(crate) struct Edges {
    /// Tells the time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Where what they read is put.
    pub(crate) readings: Readings,
    /// Where what changed is kept.
    pub(crate) history: History,
    /// What a node says of itself; none while it was not heard.
    pub(crate) hosts: Hosts,
    /// Ends them.
    pub(crate) stop: CancellationToken,
}

/// The plan, and who may ask at a time.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) edges: Edges,
    at_a_time: Arc<Semaphore>,
    pub(super) plan: Arc<BmcPlan>,
}

/// Reads every BMC of the plan until the end, and closes their sessions: a BMC has few.
pub(crate) async fn run(plan: Arc<BmcPlan>, edges: Edges) {
    let shared = Shared {
        edges,
        at_a_time: Arc::new(Semaphore::new(plan.at_a_time)),
        plan: plan.clone(),
    };
    let mut workers = JoinSet::new();
    for target in &plan.targets {
        workers.spawn(kept::keep(target.clone(), shared.clone()));
    }
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a BMC is not read any more");
        }
    }
}

pub(super) struct Worker<'n> {
    bmc: Bmc,
    endpoint: ReadOnly,
    password_file: PathBuf,
    deeds: Deeds,
    nodes: &'n mut BTreeMap<NodeId, Node>,
    /// Who wants it looked at now.
    asks: mpsc::Receiver<Ask>,
    /// Looks in a row that left something unknown.
    failures: u32,
    /// Whether it told a draw when it was last asked for that alone.
    told: Option<bool>,
    shared: Shared,
}

/// Reading it panicked: our bug.
#[derive(Debug, thiserror::Error)]
#[error("{BROKE_DOWN}")]
pub(super) struct BrokeDown;

/// Its nodes, of which nothing was read yet.
pub(super) fn nodes(target: &BmcTarget, shared: &Shared) -> BTreeMap<NodeId, Node> {
    let node = |(name, selector): &(NodeId, Selector)| {
        let wrong = Wrong::new(shared.plan.table.clone());
        (
            name.clone(),
            Node::new(name.clone(), selector.clone(), wrong),
        )
    };
    target.nodes.iter().map(node).collect()
}

/// Where those ask who want one of its nodes looked at, from now on.
pub(super) fn asks(target: &BmcTarget, shared: &Shared) -> mpsc::Receiver<Ask> {
    let (ask, asks) = mpsc::channel(MOST_WAITING);
    for (name, _) in &target.nodes {
        shared.edges.readings.put_worker(name.clone(), ask.clone());
    }
    asks
}

impl<'n> Worker<'n> {
    /// From now on it is asked for looks at its nodes.
    pub(super) fn new(
        target: &BmcTarget,
        shared: &Shared,
        nodes: &'n mut BTreeMap<NodeId, Node>,
    ) -> Result<Self, EndpointError> {
        Ok(Self {
            bmc: client(&target.endpoint)?,
            endpoint: target.endpoint.clone(),
            password_file: target.password_file.clone(),
            deeds: Deeds::default(),
            nodes,
            asks: asks(target, shared),
            failures: 0,
            told: None,
            shared: shared.clone(),
        })
    }

    /// Until control stops, or it breaks down. `asked`: who waits for its first look already.
    pub(super) async fn run(mut self, asked: Vec<Ask>) -> Result<(), BrokeDown> {
        let stop = self.shared.edges.stop.clone();
        // Nothing is used of it afterwards but its session, and what its nodes' BMC named.
        let reading = AssertUnwindSafe(self.read(asked)).catch_unwind();
        let ended = stop.run_until_cancelled(reading).await;
        // A request that was under way is given up; the session is not.
        if timeout(CLOSE_WITHIN, self.bmc.close()).await.is_err() {
            tracing::warn!(
                bmc = self.bmc.address(),
                "its session stays until it ends it"
            );
        }
        match ended {
            None | Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(BrokeDown),
        }
    }

    async fn read(&mut self, mut waiting: Vec<Ask>) {
        for node in self.nodes.values_mut() {
            node.resume(&self.shared.edges.history).await;
        }
        // Spread over one interval, so that five thousand are not asked in the same moment.
        let spread = self.shared.plan.power_interval.mul_f64(rand::random());
        let mut power_at = Instant::now() + spread;
        let mut whole_at = power_at;
        // Until then a change that was seen once is not read again: what a BMC says seconds later is
        // the same garbage.
        let mut confirm_at: Option<Instant> = None;
        loop {
            let mut asked = std::mem::take(&mut waiting);
            if asked.is_empty() {
                tokio::select! {
                    () = sleep_until(power_at.min(whole_at)) => {}
                    // The readings hold the other end.
                    Some(ask) = self.asks.recv() => asked.push(ask),
                }
            }
            let turn = Arc::clone(&self.shared.at_a_time);
            // It is never closed.
            let Ok(turn) = turn.acquire_owned().await else {
                return;
            };
            // One look serves all who asked until it begins.
            while let Ok(ask) = self.asks.try_recv() {
                asked.push(ask);
            }
            if self.is_unheard() && self.renew_password().await {
                whole_at = Instant::now();
            }
            let waits = confirm_at.is_some_and(|at| Instant::now() < at);
            if waits && !asked.is_empty() && Instant::now() < whole_at {
                self.answer(asked).await;
            } else if !asked.is_empty() || Instant::now() >= whole_at {
                let next = self.look(asked).await;
                self.failures = match next {
                    Next::Again => self.failures.saturating_add(1),
                    Next::Rest | Next::Confirm => 0,
                };
                whole_at = Instant::now() + self.pause(next);
                let waits = self.nodes.values().any(Node::waits);
                confirm_at = waits.then(|| Instant::now() + self.shared.plan.confirm_after);
                power_at = Instant::now() + self.shared.plan.power_interval;
            } else {
                if self.look_at_power().await {
                    // What else it tells is not known any more either, or again.
                    let soon = Instant::now() + self.shared.plan.confirm_after;
                    whole_at = whole_at.min(soon);
                }
                power_at += self.shared.plan.power_interval;
                power_at = power_at.max(Instant::now());
            }
            drop(turn);
        }
    }

    /// Whether it did not tell all that it should when it was last asked.
    fn is_unheard(&self) -> bool {
        self.failures > 0 || self.told == Some(false)
    }

    /// Takes up the password that is in its file now. Whether that is another one: its BMC is asked
    /// anew then, however long it was to be left alone.
    async fn renew_password(&mut self) -> bool {
        let path = self.password_file.clone();
        let password = match spawn_blocking(move || config::password(&path)).await {
            Ok(Ok(password)) => password,
            Ok(Err(why)) => {
                let bmc = self.bmc.address();
                tracing::warn!(bmc, why, "its password stays the former one");
                return false;
            }
            // The runtime ends.
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
                let _ = timeout(CLOSE_WITHIN, former.close()).await;
                let bmc = self.bmc.address();
                tracing::info!(
                    bmc,
                    "its password file has another password, which is tried"
                );
                true
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "the other password is not tried");
                false
            }
        }
    }

    fn pause(&self, next: Next) -> Duration {
        match next {
            Next::Rest => {
                // A tenth of jitter either way keeps controls and BMCs out of step.
                let tenth = 0.9 + 0.2 * rand::random::<f64>();
                self.shared.plan.interval.mul_f64(tenth)
            }
            Next::Confirm => self.shared.plan.confirm_after,
            // A key that this account may never read must not make it look every minute for ever.
            Next::Again => {
                let doubled = self.failures.saturating_sub(1).min(16);
                let pause = AGAIN_AFTER.saturating_mul(1 << doubled);
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

    /// Looks for those who ask while a change waits to be read again, and leaves everything but what
    /// is wrong to the look that comes.
    async fn answer(&mut self, asked: Vec<Ask>) {
        let (report, _) = self.read_all().await;
        let edges = &self.shared.edges;
        let now = edges.clock.now();
        let mut looked = BTreeMap::new();
        for (name, node) in self.nodes.iter_mut() {
            if node.judge(&report, now) {
                edges.readings.put_parts(name.clone(), node.parts(now));
            }
            looked.insert(name.clone(), node.looked(&report));
        }
        tell(asked, &looked);
        // What is read again is read with a fresh session.
        self.bmc.close().await;
    }

    /// Looks at everything, and answers who asked.
    async fn look(&mut self, asked: Vec<Ask>) -> Next {
        let (report, documents) = self.read_all().await;
        let edges = &self.shared.edges;
        let look = Look::of(&asked, edges.clock.now());
        let mut next = Next::Rest;
        let mut looked = BTreeMap::new();
        for (name, node) in self.nodes.iter_mut() {
            let (then, came) = node.take(&report, &look);
            next = next.max(then);
            looked.insert(name.clone(), came);
            // What is told elsewhere must be in the history by then.
            node.write(&edges.history, look.at).await;
            node.compare((edges.hosts)(name).as_ref(), look.at);
            edges.readings.put_parts(name.clone(), node.parts(look.at));
            let power = node.power(&report);
            edges.readings.put_power(name.clone(), power, look.at);
        }
        let is_quiet = asked.is_empty() && next == Next::Rest;
        tell(asked, &looked);
        if !report.nodes.is_empty() {
            self.look_at_deeds(documents, is_quiet).await;
        }
        if next == Next::Confirm {
            // What is read again is read with a fresh session.
            self.bmc.close().await;
        }
        next
    }

    /// What it did, written down for each node it concerns.
    async fn look_at_deeds(&mut self, documents: Documents, is_quiet: bool) {
        let read = self.deeds.read(&self.bmc, documents, is_quiet).await;
        let (lists, deeds) = read;
        let edges = &self.shared.edges;
        let now = edges.clock.now();
        for (name, node) in self.nodes.iter() {
            let of_node = deeds.iter().filter(|deed| node.is_concerned(&deed.systems));
            let told = (lists.clone(), of_node.cloned().collect());
            let kept = edges.history.append_deeds(name.to_string(), told, now.0);
            if let Err(error) = kept.await {
                let error: &dyn std::error::Error = &error;
                tracing::error!(node = %name, error, "what its BMC did is not written yet");
                self.deeds.forget();
            }
        }
    }

    /// Draw and limit by the way found before. Whether it fell silent with it, or answers again, or
    /// the way leads nowhere any more.
    async fn look_at_power(&mut self) -> bool {
        let edges = &self.shared.edges;
        let mut told = None;
        let mut is_stale = false;
        for (name, node) in self.nodes.iter_mut() {
            let now = edges.clock.now();
            node.write(&edges.history, now).await;
            // The host may have been heard only since its BMC was looked at.
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
            told = Some(told == Some(true) || read.power.draw.is_known());
            if read.is_stale {
                // That nothing is at the known path says nothing of the draw: what was told last
                // stays, until the look at everything finds the path of now.
                is_stale = true;
                node.lose_route();
                continue;
            }
            let now = edges.clock.now();
            edges.readings.put_power(name.clone(), read.power, now);
        }
        let before = std::mem::replace(&mut self.told, told);
        is_stale || (before.is_some() && told.is_some() && before != told)
    }
}

/// Answers who asked.
pub(super) fn tell(asked: Vec<Ask>, looked: &BTreeMap<NodeId, Looked>) {
    for ask in asked {
        if let Some(came) = looked.get(&ask.node) {
            // Who asked may have gone.
            let _ = ask.answer.send(came.clone());
        }
    }
}
