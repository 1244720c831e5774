//! Simulated network: late, lost, duplicated and reordered calls, links that work in one direction or not at all, and
//! endpoints that have left.
//!
//! It replaces QUIC, above handshakes and retransmission: a lost packet is a late call, and a cut link loses the call.

use futures::future::{BoxFuture, pending};
use lattice_mesh::{CallError, Caller, EndpointHandlers, Identity, Wire};
use lattice_quorum_types::UnixMillis;
use lattice_rng::Rng;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};

/// First wait before a retransmission; doubles.
const RETRANSMIT: Duration = Duration::from_millis(30);
/// Longest wait before a retransmission.
const MAX_RETRANSMIT_WAIT: Duration = Duration::from_secs(2);
/// Idle timeout of a connection, as the mesh is configured.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a waiting caller checks its connection.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Conditions of all links that are not cut.
#[derive(Debug, Clone, Copy)]
pub struct LinkConditions {
    /// Shortest latency, microseconds.
    pub min_us: u64,
    /// Longest latency, microseconds.
    pub max_us: u64,
    /// Messages per thousand that are 20 to 400 ms late, as after a retransmission.
    pub late: u64,
    /// Calls per thousand that arrive twice, if their method tolerates duplicates.
    pub duplicated: u64,
    /// Messages per thousand that are lost and then sent again.
    pub lost: u64,
}

impl LinkConditions {
    /// A healthy local network.
    pub const HEALTHY: Self = Self {
        min_us: 80,
        max_us: 400,
        late: 0,
        duplicated: 0,
        lost: 0,
    };
}

/// Counters of the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkCounters {
    /// Messages sent: calls, answers, stream items and retransmissions.
    pub calls: u64,
    /// Lost messages, those over cut links included.
    pub lost: u64,
    /// Calls delivered twice.
    pub doubled: u64,
}

struct Endpoint {
    incarnation: u64,
    caller: Caller,
    answers: Option<EndpointHandlers>,
}

struct State {
    endpoints: BTreeMap<SocketAddr, Endpoint>,
    /// Cut links, each from one address to another.
    cut: BTreeSet<(SocketAddr, SocketAddr)>,
    conditions: LinkConditions,
    links: BTreeMap<(SocketAddr, SocketAddr), Rng>,
    counters: NetworkCounters,
    incarnations: u64,
}

/// Network of one cluster and its clients.
pub struct Network {
    seed: u64,
    state: Mutex<State>,
}

/// One side of a call: address and incarnation of the endpoint.
#[derive(Clone, Copy)]
struct CallSide {
    addr: SocketAddr,
    incarnation: u64,
}

impl Network {
    /// Creates a network without endpoints.
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            endpoints: BTreeMap::new(),
            cut: BTreeSet::new(),
            conditions: LinkConditions::HEALTHY,
            links: BTreeMap::new(),
            counters: NetworkCounters::default(),
            incarnations: 0,
        };
        Arc::new(Self {
            seed,
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Removes all endpoints. Their handlers hold the network, so it would never be freed otherwise.
    pub fn close(&self) {
        let endpoints = std::mem::take(&mut self.lock().endpoints);
        drop(endpoints);
    }

    /// Adds a new incarnation of the endpoint at an address. The previous one is removed.
    pub fn join(self: &Arc<Self>, addr: SocketAddr, identity: Identity) -> Arc<Port> {
        let mut state = self.lock();
        state.incarnations += 1;
        let incarnation = state.incarnations;
        let caller = Caller {
            identity,
            issued_at: UnixMillis(0),
            addr,
        };
        let endpoint = Endpoint {
            incarnation,
            caller,
            answers: None,
        };
        state.endpoints.insert(addr, endpoint);
        let side = CallSide { addr, incarnation };
        Arc::new(Port {
            network: self.clone(),
            side,
        })
    }

    /// Removes the endpoint at an address.
    pub fn leave(&self, addr: SocketAddr) {
        self.lock().endpoints.remove(&addr);
    }

    /// Sets the conditions for all calls.
    pub fn set_conditions(&self, weather: LinkConditions) {
        self.lock().conditions = weather;
    }

    /// Cuts a link in one direction.
    pub fn cut(&self, from: SocketAddr, to: SocketAddr) {
        self.lock().cut.insert((from, to));
    }

    /// Restores all links.
    pub fn restore_links(&self) {
        self.lock().cut.clear();
    }

    /// Counters so far.
    pub fn counters(&self) -> NetworkCounters {
        self.lock().counters
    }

    /// Latency of one message and whether it is duplicated; `None` if the message is lost.
    fn draw_delivery(&self, from: SocketAddr, to: SocketAddr) -> Option<(Duration, bool)> {
        let mut state = self.lock();
        let (seed, weather) = (self.seed, state.conditions);
        state.counters.calls += 1;
        let is_cut = state.cut.contains(&(from, to));
        let link = state
            .links
            .entry((from, to))
            .or_insert_with(|| Rng::new(seed, &format!("{from}>{to}")));
        let mut us = link.range(weather.min_us, weather.max_us);
        if link.chance(weather.late) {
            us += link.range(20_000, 400_000);
        }
        let (lost, doubled) = (link.chance(weather.lost), link.chance(weather.duplicated));
        if is_cut || lost {
            state.counters.lost += 1;
            return None;
        }
        Some((Duration::from_micros(us), doubled))
    }

    /// Sends until the message arrives, as QUIC does, until the idle timeout. Returns whether the message arrived
    /// twice; `None` on timeout.
    async fn send(&self, from: SocketAddr, to: SocketAddr) -> Option<bool> {
        let (mut wait, mut waited) = (RETRANSMIT, Duration::ZERO);
        loop {
            if let Some((way, doubled)) = self.draw_delivery(from, to) {
                sleep(way).await;
                if !self.is_cut(from, to) {
                    return Some(doubled);
                }
            }
            if waited > IDLE_TIMEOUT {
                return None;
            }
            sleep(wait).await;
            waited += wait;
            wait = (wait * 2).min(MAX_RETRANSMIT_WAIT);
        }
    }

    /// Incarnation that answers at an address.
    fn incarnation_at(&self, addr: SocketAddr) -> Option<u64> {
        let state = self.lock();
        let there = state.endpoints.get(&addr).filter(|e| e.answers.is_some());
        there.map(|e| e.incarnation)
    }

    fn is_here(&self, side: CallSide) -> bool {
        let state = self.lock();
        let here = state.endpoints.get(&side.addr);
        here.is_some_and(|e| e.incarnation == side.incarnation)
    }

    fn is_cut(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.lock().cut.contains(&(from, to))
    }

    /// Receiver at `to` for a message that has arrived from `from`.
    fn arrive(
        &self,
        from: CallSide,
        to: SocketAddr,
    ) -> Option<(EndpointHandlers, Caller, CallSide)> {
        let state = self.lock();
        let sender = state.endpoints.get(&from.addr)?;
        if sender.incarnation != from.incarnation || state.cut.contains(&(from.addr, to)) {
            return None;
        }
        let endpoint = state.endpoints.get(&to)?;
        let side = CallSide {
            addr: to,
            incarnation: endpoint.incarnation,
        };
        Some((endpoint.answers.clone()?, sender.caller.clone(), side))
    }
}

/// Checks whether a method tolerates duplicates. QUIC delivers all other calls once or not at all.
fn tolerates_duplicates(method: &str) -> bool {
    method.starts_with("raft.") || method == "quorum.read" || method == "quorum.status"
}

type Reply = Result<Vec<u8>, CallError>;

/// Network port of one incarnation of an endpoint.
pub struct Port {
    network: Arc<Network>,
    side: CallSide,
}

impl Wire for Port {
    fn serve(&self, answers: EndpointHandlers) {
        let mut state = self.network.lock();
        if let Some(endpoint) = state.endpoints.get_mut(&self.side.addr)
            && endpoint.incarnation == self.side.incarnation
        {
            endpoint.answers = Some(answers);
        }
    }

    fn dial(&self, to: SocketAddr) -> BoxFuture<'static, Result<Identity, String>> {
        let (network, from) = (self.network.clone(), self.side);
        Box::pin(async move {
            let gone = || "no answer".to_owned();
            network.send(from.addr, to).await.ok_or_else(gone)?;
            if network.arrive(from, to).is_none() {
                return pending().await;
            }
            network.send(to, from.addr).await.ok_or_else(gone)?;
            let state = network.lock();
            let found = state.endpoints.get(&to).map(|e| e.caller.identity.clone());
            found.ok_or_else(gone)
        })
    }

    fn call(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Reply> {
        let (network, from) = (self.network.clone(), self.side);
        Box::pin(async move {
            let doubled = network.send(from.addr, to).await.ok_or_else(|| lost(to))?;
            if doubled && tolerates_duplicates(method) {
                let again = {
                    let mut state = network.lock();
                    state.counters.doubled += 1;
                    state.counters.doubled * 37 % 300
                };
                let (network, body) = (network.clone(), body.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(again)).await;
                    deliver(network, from, to, method, body, None).await;
                });
            }
            let there = network.incarnation_at(to);
            let (answer, mut answered) = oneshot::channel();
            // The receiver continues when the caller gives up.
            tokio::spawn(deliver(
                network.clone(),
                from,
                to,
                method,
                body,
                Some(answer),
            ));
            // A host that has left is silent. A restarted host does not have the connection, and resets it.
            let mut silent_for = Duration::ZERO;
            while silent_for < IDLE_TIMEOUT {
                tokio::select! {
                    biased;
                    Ok(reply) = &mut answered => return reply,
                    () = sleep(CONNECTION_CHECK_INTERVAL) => silent_for += CONNECTION_CHECK_INTERVAL,
                }
                let is = network.incarnation_at(to);
                if is.is_some() && is != there && !network.is_cut(to, from.addr) {
                    break;
                }
            }
            Err(lost(to))
        })
    }

    fn open(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<mpsc::Receiver<Reply>, CallError>> {
        let (network, from) = (self.network.clone(), self.side);
        Box::pin(async move {
            network.send(from.addr, to).await.ok_or_else(|| lost(to))?;
            let Some((answers, caller, side)) = network.arrive(from, to) else {
                return pending().await;
            };
            let (items, ended) = answers.open(caller, method, &body)?;
            let (out, received) = mpsc::channel(4);
            tokio::spawn(carry(network, from, side, items, ended, out));
            Ok(received)
        })
    }
}

/// Delivers a request that has arrived to its handler, and returns the answer.
async fn deliver(
    network: Arc<Network>,
    from: CallSide,
    to: SocketAddr,
    method: &'static str,
    body: Vec<u8>,
    answer: Option<oneshot::Sender<Reply>>,
) {
    let Some((answers, caller, side)) = network.arrive(from, to) else {
        if let Some(mut answer) = answer {
            answer.closed().await;
        }
        return;
    };
    let reply = answers.call(caller, method, &body).await;
    let Some(mut answer) = answer else { return };
    let back = async {
        network.is_here(side).then_some(())?;
        network.send(to, from.addr).await?;
        (network.is_here(side) && network.is_here(from)).then_some(())
    };
    let arrived = tokio::select! {
        biased;
        () = answer.closed() => None,
        arrived = back => arrived,
    };
    match arrived {
        Some(()) => drop(answer.send(reply)),
        // The caller receives nothing, not even an error.
        None => answer.closed().await,
    }
}

/// Carries the items of a stream in order while both endpoints exist. A cut link delays them.
async fn carry(
    network: Arc<Network>,
    from: CallSide,
    to: CallSide,
    mut items: mpsc::Receiver<Vec<u8>>,
    ended: BoxFuture<'static, Result<(), CallError>>,
    out: mpsc::Sender<Reply>,
) {
    let mut handler = AbortOnDrop(tokio::spawn(ended));
    loop {
        let item = tokio::select! {
            biased;
            () = out.closed() => return,
            item = items.recv() => item,
        };
        loop {
            if !network.is_here(to) || !network.is_here(from) {
                // No reset arrives from a host that has left: the connection is silent and then times out.
                sleep(Duration::from_secs(2)).await;
                let _ = out.send(Err(lost(to.addr))).await;
                return;
            }
            if let Some((way, _)) = network.draw_delivery(to.addr, from.addr) {
                sleep(way).await;
                break;
            }
            sleep(Duration::from_millis(50)).await;
            if out.is_closed() {
                return;
            }
        }
        let Some(item) = item else {
            if let Ok(Err(error)) = (&mut handler.0).await {
                let _ = out.send(Err(error)).await;
            }
            return;
        };
        if out.send(Ok(item)).await.is_err() {
            return;
        }
    }
}

fn lost(addr: SocketAddr) -> CallError {
    CallError::Transport {
        addr,
        sent: true,
        reason: format!("lost the connection to {addr}"),
    }
}

/// A task that is aborted when its handle is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
