//! The simulated network: calls that are late, lost, doubled or out of order, links that carry one
//! way or none, endpoints that are gone. It stands where QUIC does, above handshakes and
//! retransmission: a lost packet is a late call, a link that is cut loses it.

use futures::future::{BoxFuture, pending};
use lattice_mesh::{Answers, CallError, Caller, Identity, Wire};
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

/// First wait before something is sent again; doubles.
const RETRANSMIT: Duration = Duration::from_millis(30);
/// Longest wait before something is sent again.
const RETRANSMIT_AT_MOST: Duration = Duration::from_secs(2);
/// A connection that hears nothing for this long is dead, as the mesh is configured.
const IDLE: Duration = Duration::from_secs(30);
/// How often a waiting caller's connection is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What calls meet that no fault was told of.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Shortest way, microseconds.
    pub min_us: u64,
    /// Longest way, microseconds.
    pub max_us: u64,
    /// Calls in a thousand that are retransmitted, and so late.
    pub late: u64,
    /// Calls in a thousand that arrive twice, where the receiver must bear it.
    pub doubled: u64,
    /// Calls in a thousand that are lost.
    pub lost: u64,
}

impl Weather {
    /// A healthy local network.
    pub const FAIR: Self = Self {
        min_us: 80,
        max_us: 400,
        late: 0,
        doubled: 0,
        lost: 0,
    };
}

/// What the network did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Carried {
    /// Calls sent.
    pub calls: u64,
    /// Of them or their answers lost.
    pub lost: u64,
    /// Delivered twice.
    pub doubled: u64,
}

struct Endpoint {
    incarnation: u64,
    caller: Caller,
    answers: Option<Answers>,
}

struct State {
    endpoints: BTreeMap<SocketAddr, Endpoint>,
    /// Links that carry nothing, each from one address to another.
    cut: BTreeSet<(SocketAddr, SocketAddr)>,
    weather: Weather,
    links: BTreeMap<(SocketAddr, SocketAddr), Rng>,
    carried: Carried,
    incarnations: u64,
}

/// The network of one cluster and its clients.
pub struct Network {
    seed: u64,
    state: Mutex<State>,
}

/// One side of a call: who, in which life.
#[derive(Clone, Copy)]
struct Side {
    addr: SocketAddr,
    incarnation: u64,
}

impl Network {
    /// Nobody is on it yet.
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            endpoints: BTreeMap::new(),
            cut: BTreeSet::new(),
            weather: Weather::FAIR,
            links: BTreeMap::new(),
            carried: Carried::default(),
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

    /// Nobody is on it any more: what answers there holds the network, and would never be freed.
    pub fn close(&self) {
        let endpoints = std::mem::take(&mut self.lock().endpoints);
        drop(endpoints);
    }

    /// A new life at an address; the one before is gone.
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
        let side = Side { addr, incarnation };
        Arc::new(Port {
            network: self.clone(),
            side,
        })
    }

    /// Whoever lives at this address is gone.
    pub fn leave(&self, addr: SocketAddr) {
        self.lock().endpoints.remove(&addr);
    }

    /// Sets what every call meets.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Cuts a link in one direction.
    pub fn cut(&self, from: SocketAddr, to: SocketAddr) {
        self.lock().cut.insert((from, to));
    }

    /// Mends all links.
    pub fn mend(&self) {
        self.lock().cut.clear();
    }

    /// What it did so far.
    pub fn carried(&self) -> Carried {
        self.lock().carried
    }

    /// How long the way takes; `None` when the message is lost.
    fn way(&self, from: SocketAddr, to: SocketAddr) -> Option<(Duration, bool)> {
        let mut state = self.lock();
        let (seed, weather) = (self.seed, state.weather);
        state.carried.calls += 1;
        let is_cut = state.cut.contains(&(from, to));
        let link = state
            .links
            .entry((from, to))
            .or_insert_with(|| Rng::new(seed, &format!("{from}>{to}")));
        let mut us = link.range(weather.min_us, weather.max_us);
        if link.chance(weather.late) {
            us += link.range(20_000, 400_000);
        }
        let (lost, doubled) = (link.chance(weather.lost), link.chance(weather.doubled));
        if is_cut || lost {
            state.carried.lost += 1;
            return None;
        }
        Some((Duration::from_micros(us), doubled))
    }

    /// Sends until it is through, as QUIC does, for as long as a connection lives. Says whether it
    /// came twice.
    async fn send(&self, from: SocketAddr, to: SocketAddr) -> Option<bool> {
        let (mut wait, mut waited) = (RETRANSMIT, Duration::ZERO);
        loop {
            if let Some((way, doubled)) = self.way(from, to) {
                sleep(way).await;
                if !self.is_cut(from, to) {
                    return Some(doubled);
                }
            }
            if waited > IDLE {
                return None;
            }
            sleep(wait).await;
            waited += wait;
            wait = (wait * 2).min(RETRANSMIT_AT_MOST);
        }
    }

    /// Which life answers at an address.
    fn who(&self, addr: SocketAddr) -> Option<u64> {
        let state = self.lock();
        let there = state.endpoints.get(&addr).filter(|e| e.answers.is_some());
        there.map(|e| e.incarnation)
    }

    fn is_here(&self, side: Side) -> bool {
        let state = self.lock();
        let here = state.endpoints.get(&side.addr);
        here.is_some_and(|e| e.incarnation == side.incarnation)
    }

    fn is_cut(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.lock().cut.contains(&(from, to))
    }

    /// Who answers at `to` for a message that has arrived from `from`.
    fn arrive(&self, from: Side, to: SocketAddr) -> Option<(Answers, Caller, Side)> {
        let state = self.lock();
        let sender = state.endpoints.get(&from.addr)?;
        if sender.incarnation != from.incarnation || state.cut.contains(&(from.addr, to)) {
            return None;
        }
        let endpoint = state.endpoints.get(&to)?;
        let side = Side {
            addr: to,
            incarnation: endpoint.incarnation,
        };
        Some((endpoint.answers.clone()?, sender.caller.clone(), side))
    }
}

/// What a receiver must bear twice. Everything else QUIC delivers once or not at all.
fn may_come_twice(method: &str) -> bool {
    method.starts_with("raft.") || method == "quorum.read" || method == "quorum.status"
}

type Reply = Result<Vec<u8>, CallError>;

/// One endpoint's end of the network, in one life.
pub struct Port {
    network: Arc<Network>,
    side: Side,
}

impl Wire for Port {
    fn serve(&self, answers: Answers) {
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
            if doubled && may_come_twice(method) {
                let again = {
                    let mut state = network.lock();
                    state.carried.doubled += 1;
                    state.carried.doubled * 37 % 300
                };
                let (network, body) = (network.clone(), body.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(again)).await;
                    deliver(network, from, to, method, body, None).await;
                });
            }
            let there = network.who(to);
            let (answer, mut answered) = oneshot::channel();
            // The receiver goes on when the caller gives up.
            tokio::spawn(deliver(
                network.clone(),
                from,
                to,
                method,
                body,
                Some(answer),
            ));
            // A host that is gone is silent. One that is there again knows nothing of the
            // connection, and says so.
            let mut silent_for = Duration::ZERO;
            while silent_for < IDLE {
                tokio::select! {
                    biased;
                    Ok(reply) = &mut answered => return reply,
                    () = sleep(LOOK) => silent_for += LOOK,
                }
                let is = network.who(to);
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

/// A request that has arrived, its handler, and the answer on its way back.
async fn deliver(
    network: Arc<Network>,
    from: Side,
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
        // The caller hears nothing, and not that nobody is left to answer.
        None => answer.closed().await,
    }
}

/// Items of a stream in order, for as long as both ends live. A link that is cut holds them up.
async fn carry(
    network: Arc<Network>,
    from: Side,
    to: Side,
    mut items: mpsc::Receiver<Vec<u8>>,
    ended: BoxFuture<'static, Result<(), CallError>>,
    out: mpsc::Sender<Reply>,
) {
    let mut handler = Aborted(tokio::spawn(ended));
    loop {
        let item = tokio::select! {
            biased;
            () = out.closed() => return,
            item = items.recv() => item,
        };
        loop {
            if !network.is_here(to) || !network.is_here(from) {
                // Nobody resets a connection whose host is gone: it is silent, then times out.
                sleep(Duration::from_secs(2)).await;
                let _ = out.send(Err(lost(to.addr))).await;
                return;
            }
            if let Some((way, _)) = network.way(to.addr, from.addr) {
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

/// A task that ends with its handle.
struct Aborted<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
