//! Peer handle: one connection, dialled on first use and again after it closed, with growing waits between failures.

use crate::{
    ExpectedIdentity, Identity, MAX_MESSAGE_BYTES, MeshError, MessageDropped, backoff,
    endpoint::{link::Link, state::Core},
    rpc::message::write_message,
};
use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};

/// Maximum number of messages queued for one peer. A longer queue would only hold staler messages.
const MESSAGE_QUEUE: usize = 8;
/// Longest time to send one message. A slower message is dropped, and the next one follows.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);

type Dialling = Shared<BoxFuture<'static, Result<Link, MeshError>>>;

/// State of the connection to a peer.
enum ConnectionState {
    Closed,
    Dialling(Dialling),
    Open(Link),
}

struct Dials {
    connection: ConnectionState,
    failures: u32,
    /// Time before which no new dial starts, and the error of the last dial.
    wait: Option<(Instant, Arc<MeshError>)>,
}

/// State shared by all handles on a peer.
pub(crate) struct PeerState {
    pub(crate) core: Weak<Core>,
    pub(crate) addr: SocketAddr,
    pub(crate) expect: ExpectedIdentity,
    dials: Mutex<Dials>,
    messages: Mutex<Option<mpsc::Sender<(u16, Bytes)>>>,
    used_at: Mutex<Instant>,
}

/// Cheap handle on one peer; clones share its connection.
#[derive(Clone)]
pub struct Peer {
    pub(crate) state: Arc<PeerState>,
    /// Longest reply accepted through this handle, bytes, where the endpoint's limit is higher.
    pub(crate) max_reply: Option<usize>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} at {})", self.state.expect, self.state.addr)
    }
}

impl PeerState {
    pub(crate) fn new(core: &Arc<Core>, addr: SocketAddr, expect: ExpectedIdentity) -> Self {
        Self {
            core: Arc::downgrade(core),
            addr,
            expect,
            dials: Mutex::new(Dials {
                connection: ConnectionState::Closed,
                failures: 0,
                wait: None,
            }),
            messages: Mutex::new(None),
            used_at: Mutex::new(Instant::now()),
        }
    }

    pub(crate) fn idle_for(&self) -> Duration {
        self.used_at.lock().elapsed()
    }

    fn core(&self) -> Result<Arc<Core>, MeshError> {
        self.core.upgrade().ok_or(MeshError::Closed)
    }

    /// Returns the open connection, or dials. Concurrent callers wait for the same dial; a caller that gives up does
    /// not end the dial.
    pub(crate) async fn link(self: &Arc<Self>) -> Result<Link, MeshError> {
        let core = self.core()?;
        *self.used_at.lock() = Instant::now();
        let dialling = {
            let mut dials = self.dials.lock();
            match &dials.connection {
                ConnectionState::Open(link) if usable(link) => return Ok(link.clone()),
                ConnectionState::Dialling(dialling) => dialling.clone(),
                ConnectionState::Open(_) | ConnectionState::Closed => {
                    match self.start(&core, &mut dials)? {
                        DialStart::Reused(link) => return Ok(link),
                        DialStart::Dialling(dialling) => dialling,
                    }
                }
            }
        };
        dialling.await
    }

    fn start(
        self: &Arc<Self>,
        core: &Arc<Core>,
        dials: &mut Dials,
    ) -> Result<DialStart, MeshError> {
        if let Some(link) = core.open_with(self.addr, &self.expect) {
            dials.connection = ConnectionState::Open(link.clone());
            return Ok(DialStart::Reused(link));
        }
        if let Some((until, last)) = &dials.wait {
            let retry_in = until.saturating_duration_since(Instant::now());
            if !retry_in.is_zero() {
                let (addr, last) = (self.addr, last.clone());
                return Err(MeshError::BackingOff {
                    addr,
                    retry_in,
                    last,
                });
            }
        }
        let (state, core) = (self.clone(), core.clone());
        let dial = tokio::spawn(async move {
            let result = core.dial(state.addr, &state.expect).await;
            state.record_dial(&core, &result);
            result
        });
        let dialling = dial
            .map(|joined| joined.unwrap_or(Err(MeshError::Closed)))
            .boxed()
            .shared();
        dials.connection = ConnectionState::Dialling(dialling.clone());
        Ok(DialStart::Dialling(dialling))
    }

    /// Records the outcome of a dial.
    fn record_dial(&self, core: &Core, result: &Result<Link, MeshError>) {
        let mut dials = self.dials.lock();
        match result {
            Ok(link) => {
                *dials = Dials {
                    connection: ConnectionState::Open(link.clone()),
                    failures: 0,
                    wait: None,
                };
            }
            Err(error) => {
                let failures = dials.failures.saturating_add(1);
                let wait = backoff(core.config.min_backoff, core.config.max_backoff, failures);
                tracing::debug!(addr = %self.addr, expect = %self.expect, %error, failures, "mesh dial failed");
                let wait = Some((Instant::now() + wait, Arc::new(error.clone())));
                *dials = Dials {
                    connection: ConnectionState::Closed,
                    failures,
                    wait,
                };
            }
        }
    }

    /// Stops using `link`, which has been silent for a whole deadline. Calls that run on the link continue.
    pub(crate) fn stop_using(&self, link: &Link) {
        link.no_new_calls.store(true, Ordering::Relaxed);
        let mut dials = self.dials.lock();
        if let ConnectionState::Open(open) = &dials.connection
            && open.connection.stable_id() == link.connection.stable_id()
        {
            dials.connection = ConnectionState::Closed;
        }
    }
}

enum DialStart {
    Reused(Link),
    Dialling(Dialling),
}

/// Checks that the link is open and that new calls may start on it.
fn usable(link: &Link) -> bool {
    link.connection.close_reason().is_none() && !link.no_new_calls.load(Ordering::Relaxed)
}

impl Peer {
    /// Address that this handle dials.
    pub fn addr(&self) -> SocketAddr {
        self.state.addr
    }

    /// Identity that this handle expects at the address.
    pub fn expect(&self) -> &ExpectedIdentity {
        &self.state.expect
    }

    /// Returns a handle on the same peer that accepts replies and stream items of at most `bytes` bytes, below the
    /// endpoint's own limits.
    #[must_use]
    pub fn with_max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = Some(bytes);
        self
    }

    pub(crate) fn core(&self) -> Result<Arc<Core>, MeshError> {
        self.state.core()
    }

    /// Dials unless a connection is open, and returns the peer's identity.
    pub async fn connected(&self) -> Result<Identity, MeshError> {
        let core = self.core()?;
        if let Some(wire) = &core.config.wire {
            let addr = self.addr();
            let dialled = tokio::time::timeout(core.config.connect_timeout, wire.dial(addr)).await;
            let reached =
                dialled.unwrap_or_else(|_| Err("no answer within the connect timeout".to_owned()));
            return reached.map_err(|reason| MeshError::Unreachable { addr, reason });
        }
        Ok(self.state.link().await?.identity)
    }

    /// Queues a message and returns at once. The message is dropped when the peer's queue is full or the peer is
    /// unreachable. Must run inside a tokio runtime.
    pub fn send_message(&self, kind: u16, message: Bytes) -> Result<(), MessageDropped> {
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(MessageDropped::TooLarge);
        }
        let core = self.state.core.upgrade().ok_or(MessageDropped::Closed)?;
        if core.cancel.is_cancelled() {
            return Err(MessageDropped::Closed);
        }
        *self.state.used_at.lock() = Instant::now();
        let mut messages = self.state.messages.lock();
        let queue = match &*messages {
            Some(queue) if !queue.is_closed() => queue.clone(),
            _ => {
                let (queue, waiting) = mpsc::channel(MESSAGE_QUEUE);
                *messages = Some(queue.clone());
                let stop = core.cancel.clone();
                let sending = send_messages(Arc::downgrade(&self.state), waiting);
                core.tasks
                    .spawn(async move { stop.run_until_cancelled(sending).await });
                queue
            }
        };
        queue
            .try_send((kind, message))
            .map_err(|_| MessageDropped::QueueFull)
    }
}

/// Sends queued messages one after the other, until the peer state is dropped.
async fn send_messages(state: Weak<PeerState>, mut waiting: mpsc::Receiver<(u16, Bytes)>) {
    while let Some((kind, message)) = waiting.recv().await {
        let Some(state) = state.upgrade() else { return };
        let sent = async {
            let link = state.link().await.map_err(|e| e.to_string())?;
            let _running = link.running_calls.begin();
            write_message(&link.connection, kind, &message).await
        };
        match tokio::time::timeout(MESSAGE_TIMEOUT, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => {
                tracing::trace!(addr = %state.addr, kind, %reason, "mesh message dropped");
            }
            Err(_) => tracing::trace!(addr = %state.addr, kind, "mesh message dropped: too slow"),
        }
    }
}
