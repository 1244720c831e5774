//! Bytes out of chitchat and into it.
//!
//! chitchat 0.13 keeps its wire codec private; the only thing outside it that encodes and decodes
//! is its own UDP socket. So each cell has one, the *inner* socket, joined to an *outer* one of
//! ours on loopback: what chitchat would send is sent to the outer socket and read there as bytes;
//! bytes from a peer are sent from the outer to the inner socket and read there as an envelope.
//!
//! Both ends are `connect`ed to each other, so that the kernel drops what any other process sends
//! them: unconnected, a local user could silence or confuse gossip. A payload is followed by a
//! marker (the encoded `BadCluster`, which no peer may send), so that it is known when a payload
//! turned out not to be decodable. One payload is in flight at a time. All of this is proved once
//! when it is opened; if it does not work, gossip does not start.

mod shape;
mod twin;

use crate::{
    door::{Door, Inbound},
    stats::add,
};
use chitchat::{
    ChitchatEnvelope, ChitchatMessage, ProtocolVersion,
    transport::{RecvOutcome, Socket, UdpSocket},
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};

/// Longest datagram, and so the longest message of chitchat.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 65_507;
/// Loopback delivers within the sending call; a machine that is stopped for a while may not.
const ENCODE_TIMEOUT: Duration = Duration::from_millis(100);
const DECODE_TIMEOUT: Duration = Duration::from_millis(200);
const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Tries without a pause before waiting a millisecond between them.
const QUICK_TRIES: u32 = 4;

/// The marker: no state, no effect on a member that gets it, and never forwarded from a peer.
fn marker() -> ChitchatEnvelope {
    ChitchatEnvelope {
        version: ProtocolVersion::V1,
        message: ChitchatMessage::BadCluster,
    }
}

/// Why the codec cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodecError {
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    /// chitchat's socket refused something.
    #[error("{what}: {reason}")]
    Chitchat { what: &'static str, reason: String },
    /// The local sockets lost a message.
    #[error("the local codec sockets lost a message of {bytes} bytes")]
    Lost { bytes: usize },
    /// The self-test found that it does not work here.
    #[error("the self-test of the local codec sockets failed: {reason}")]
    SelfTest { reason: String },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> CodecError {
    move |source| CodecError::System { what, source }
}

fn chitchat_failed(what: &'static str) -> impl FnOnce(anyhow::Error) -> CodecError {
    move |e| CodecError::Chitchat {
        what,
        reason: format!("{e:#}"),
    }
}

/// A payload on its way through the inner socket.
struct Pending {
    from: SocketAddr,
    until: Instant,
}

pub(crate) struct Codec {
    /// chitchat's: the only thing that encodes and decodes.
    inner: UdpSocket,
    /// The same socket, for what chitchat offers no way to do.
    twin: std::net::UdpSocket,
    /// Ours. Neither it nor `twin` blocks.
    outer: std::net::UdpSocket,
    outer_addr: SocketAddr,
    /// How long a payload may be on its way.
    decode_timeout: Duration,
    mark: Vec<u8>,
    pending: Option<Pending>,
    decoded: Option<RecvOutcome>,
    buffer: Vec<u8>,
}

impl Codec {
    /// Opens, locks and tests the pair.
    pub(crate) async fn open() -> Result<Self, CodecError> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let inner = UdpSocket::open(loopback)
            .await
            .map_err(chitchat_failed("cannot open a socket on loopback"))?;
        let inner_addr = inner
            .local_addr()
            .map_err(chitchat_failed("cannot name a socket on loopback"))?;
        let outer = std::net::UdpSocket::bind(loopback)
            .map_err(system("cannot open a socket on loopback"))?;
        let lock = || -> io::Result<(SocketAddr, std::net::UdpSocket)> {
            outer.set_nonblocking(true)?;
            outer.connect(inner_addr)?;
            let outer_addr = outer.local_addr()?;
            let twin = twin::of(&inner, inner_addr)?;
            twin.set_nonblocking(true)?;
            twin.connect(outer_addr)?;
            Ok((outer_addr, twin))
        };
        let (outer_addr, twin) = lock().map_err(system("cannot lock the local codec sockets"))?;
        let mut codec = Self {
            inner,
            twin,
            outer,
            outer_addr,
            decode_timeout: DECODE_TIMEOUT,
            mark: Vec::new(),
            pending: None,
            decoded: None,
            buffer: vec![0; MAX_PAYLOAD_BYTES + 1],
        };
        // What strangers sent before the lock.
        drain(&codec.twin, &mut codec.buffer);
        drain(&codec.outer, &mut codec.buffer);
        codec.mark = codec.encode(marker()).await?;
        codec.self_test().await?;
        Ok(codec)
    }

    /// The bytes of an envelope.
    pub(crate) async fn encode(
        &mut self,
        envelope: ChitchatEnvelope,
    ) -> Result<Vec<u8>, CodecError> {
        // What an abandoned call left behind.
        drain(&self.outer, &mut self.buffer);
        let sent = self
            .inner
            .send(self.outer_addr, envelope)
            .await
            .map_err(chitchat_failed("cannot encode"))?
            .num_bytes_sent;
        let until = Instant::now() + ENCODE_TIMEOUT;
        let mut tries = 0;
        loop {
            match self.outer.recv(&mut self.buffer) {
                Ok(n) if n == sent => return Ok(self.buffer.get(..n).unwrap_or_default().to_vec()),
                Ok(_) => {}
                Err(_) if Instant::now() >= until => return Err(CodecError::Lost { bytes: sent }),
                Err(_) => pause(&mut tries).await,
            }
        }
    }

    /// The next envelope that a peer sent, with the address to answer to; `None` once the inbox
    /// is closed. May be dropped at any await and called again: what is under way is kept.
    pub(crate) async fn decode_next(
        &mut self,
        inbox: &mut mpsc::Receiver<Inbound>,
        door: &Door,
    ) -> Result<Option<RecvOutcome>, CodecError> {
        loop {
            let Some(Pending { from, until }) = self.pending else {
                let Some(next) = inbox.recv().await else {
                    return Ok(None);
                };
                self.submit(&next, door);
                continue;
            };
            let read = tokio::time::timeout_at(until, self.inner.recv()).await;
            match read {
                Ok(Ok(end)) if is_marker(&end) => {
                    self.pending = None;
                    match self.decoded.take() {
                        Some(outcome) => return Ok(Some(outcome)),
                        None => door.garbage(from),
                    }
                }
                Ok(Ok(outcome)) => {
                    let from_addr = from;
                    self.decoded = Some(RecvOutcome {
                        from_addr,
                        ..outcome
                    });
                }
                Ok(Err(e)) => return Err(chitchat_failed("cannot decode")(e)),
                Err(_) => {
                    // A late payload must not be taken for the next peer's.
                    drain(&self.twin, &mut self.buffer);
                    self.pending = None;
                    add(&door.counters.codec_late, 1);
                    if let Some(outcome) = self.decoded.take() {
                        return Ok(Some(outcome));
                    }
                }
            }
        }
    }

    /// Hands a payload and the marker to the inner socket, both or neither. Does not wait.
    fn submit(&mut self, next: &Inbound, door: &Door) {
        if !self.is_acceptable(&next.bytes) {
            return door.garbage(next.from);
        }
        self.decoded = None;
        let submitted = self
            .outer
            .send(&next.bytes)
            .and_then(|_| self.outer.send(&self.mark));
        match submitted {
            Ok(_) => {
                let until = Instant::now() + self.decode_timeout;
                let from = next.from;
                self.pending = Some(Pending { from, until });
            }
            Err(error) => {
                tracing::debug!(%error, "gossip message lost before decoding");
                drain(&self.twin, &mut self.buffer);
                add(&door.counters.codec_late, 1);
            }
        }
    }

    /// Of the form of a message that a member may send.
    fn is_acceptable(&self, bytes: &[u8]) -> bool {
        let magic = self.mark.first_chunk::<2>();
        bytes.len() <= MAX_PAYLOAD_BYTES
            && magic.is_some_and(|magic| shape::is_acceptable(*magic, bytes))
    }

    /// Proves that messages have the form we know, that the longest payload fits, that strangers
    /// are kept out, and that the marker comes back as itself.
    async fn self_test(&mut self) -> Result<(), CodecError> {
        let failed = |reason: &str| CodecError::SelfTest {
            reason: reason.to_owned(),
        };
        for message in specimens() {
            let bytes = self.encode(message).await?;
            if !self.is_acceptable(&bytes) {
                return Err(failed("messages have another form than expected"));
            }
        }
        let inner_addr = self
            .twin
            .local_addr()
            .map_err(system("cannot name a socket"))?;
        let stranger = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(system("cannot open a socket on loopback"))?;
        // Refused or dropped: both are right.
        let _ = stranger.send_to(&self.mark, inner_addr);
        let longest = vec![0; MAX_PAYLOAD_BYTES];
        self.outer
            .send(&longest)
            .map_err(system("cannot send the longest payload"))?;
        let until = Instant::now() + SELF_TEST_TIMEOUT;
        let mut tries = 0;
        let first = loop {
            match self.twin.recv(&mut self.buffer) {
                Ok(n) => break n,
                Err(_) if Instant::now() >= until => {
                    return Err(failed("the longest payload does not arrive"));
                }
                Err(_) => pause(&mut tries).await,
            }
        };
        if first != longest.len() {
            return Err(failed("a stranger's message came through"));
        }
        self.outer
            .send(&self.mark)
            .map_err(system("cannot send the marker"))?;
        match tokio::time::timeout(SELF_TEST_TIMEOUT, self.inner.recv()).await {
            Ok(Ok(outcome)) if is_marker(&outcome) => Ok(()),
            Ok(Ok(_)) => Err(failed("the marker is read as something else")),
            Ok(Err(e)) => Err(chitchat_failed("cannot decode")(e)),
            Err(_) => Err(failed("the marker does not arrive")),
        }
    }
}

/// One message of each type, without content.
fn specimens() -> [ChitchatEnvelope; 3] {
    let (digest, delta) = (Default::default(), Default::default());
    [
        ChitchatMessage::Syn {
            cluster_id: "self-test".to_owned(),
            digest: Default::default(),
        },
        ChitchatMessage::SynAck { digest, delta },
        ChitchatMessage::Ack {
            delta: Default::default(),
        },
    ]
    .map(|message| ChitchatEnvelope {
        version: ProtocolVersion::V1,
        message,
    })
}

fn is_marker(outcome: &RecvOutcome) -> bool {
    matches!(outcome.envelope.message, ChitchatMessage::BadCluster)
}

/// Reads and forgets whatever waits in a socket.
fn drain(socket: &std::net::UdpSocket, buffer: &mut [u8]) {
    // Bounded, should someone be able to send faster than we read.
    for _ in 0..10_000 {
        if socket.recv(buffer).is_err() {
            return;
        }
    }
}

async fn pause(tries: &mut u32) {
    *tries += 1;
    if *tries <= QUICK_TRIES {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod tests;
