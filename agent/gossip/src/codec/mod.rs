//! Codec: converts chitchat messages to bytes and back.
//!
//! chitchat 0.13 keeps its wire codec private. Outside chitchat, only its UDP socket encodes and decodes. So each cell
//! has one such socket, the *inner* one, connected to an *outer* socket of this crate on loopback. To encode, the inner
//! socket sends a message to the outer one, which reads it as bytes. To decode, the outer socket sends a peer's bytes
//! to the inner one, which reads them as an envelope.
//!
//! Both sockets are `connect`ed to each other, so the kernel drops datagrams of any other process. Otherwise, a local
//! user could block or corrupt gossip. Each payload is followed by a marker (the encoded `BadCluster`, which no peer
//! may send): a marker without an envelope before it shows that the payload could not be decoded. One payload is in
//! flight at a time. A self-test verifies all of this when the codec is opened; if it fails, gossip does not start.

mod outer_format;
mod socket_handle;

use crate::{
    admission::{CellReceiver, InboundMessage},
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

/// Longest datagram, and so the longest chitchat message, bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 65_507;
/// Longest wait for an encoded message. Loopback delivers within the sending call, unless the machine stalls.
const ENCODE_TIMEOUT: Duration = Duration::from_millis(100);
const DECODE_TIMEOUT: Duration = Duration::from_millis(200);
const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Receive attempts without a pause; further attempts are 1 ms apart.
const QUICK_TRIES: u32 = 4;

/// Marker message: it carries no state, has no effect on a member that receives it, and is never accepted from a peer.
fn marker() -> ChitchatEnvelope {
    ChitchatEnvelope {
        version: ProtocolVersion::V1,
        message: ChitchatMessage::BadCluster,
    }
}

/// Reason that the codec cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodecError {
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    /// An operation of chitchat's socket failed.
    #[error("{what}: {reason}")]
    Chitchat { what: &'static str, reason: String },
    /// The local sockets lost a message.
    #[error("the local codec sockets lost a message of {bytes} bytes")]
    Lost { bytes: usize },
    /// The self-test failed.
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

/// Payload in flight through the inner socket.
struct Pending {
    from: SocketAddr,
    until: Instant,
}

pub(crate) struct Codec {
    /// chitchat's socket: it alone encodes and decodes.
    inner: UdpSocket,
    /// Second handle on the inner socket, for operations that chitchat does not offer.
    twin: std::net::UdpSocket,
    /// Socket of this crate. Both `outer` and `twin` are non-blocking.
    outer: std::net::UdpSocket,
    outer_addr: SocketAddr,
    /// Longest time of a payload in flight.
    decode_timeout: Duration,
    marker: Vec<u8>,
    pending: Option<Pending>,
    decoded: Option<RecvOutcome>,
    buffer: Vec<u8>,
}

impl Codec {
    /// Opens, connects and tests the pair of sockets.
    pub(crate) async fn open() -> Result<Self, CodecError> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let inner = UdpSocket::open(loopback)
            .await
            .map_err(chitchat_failed("cannot open a socket on loopback"))?;
        let inner_addr = inner.local_addr().map_err(chitchat_failed(
            "cannot read the address of a loopback socket",
        ))?;
        let outer = std::net::UdpSocket::bind(loopback)
            .map_err(system("cannot open a socket on loopback"))?;
        let lock = || -> io::Result<(SocketAddr, std::net::UdpSocket)> {
            outer.set_nonblocking(true)?;
            outer.connect(inner_addr)?;
            let outer_addr = outer.local_addr()?;
            let twin = socket_handle::second_handle(&inner, inner_addr)?;
            twin.set_nonblocking(true)?;
            twin.connect(outer_addr)?;
            Ok((outer_addr, twin))
        };
        let (outer_addr, twin) =
            lock().map_err(system("cannot connect the local codec sockets"))?;
        let mut codec = Self {
            inner,
            twin,
            outer,
            outer_addr,
            decode_timeout: DECODE_TIMEOUT,
            marker: Vec::new(),
            pending: None,
            decoded: None,
            buffer: vec![0; MAX_PAYLOAD_BYTES + 1],
        };
        // Discards datagrams that other processes sent before the sockets were connected.
        drain(&codec.twin, &mut codec.buffer);
        drain(&codec.outer, &mut codec.buffer);
        codec.marker = codec.encode(marker()).await?;
        codec.self_test().await?;
        Ok(codec)
    }

    pub(crate) async fn encode(
        &mut self,
        envelope: ChitchatEnvelope,
    ) -> Result<Vec<u8>, CodecError> {
        // Discards what a cancelled `encode` left in the socket.
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

    /// Returns the next envelope of a peer, with the address to answer to; `None` once the inbox is closed. Cancel
    /// safe: a payload in flight is kept for the next call.
    pub(crate) async fn decode_next(
        &mut self,
        inbox: &mut mpsc::Receiver<InboundMessage>,
        receiver: &CellReceiver,
    ) -> Result<Option<RecvOutcome>, CodecError> {
        loop {
            let Some(Pending { from, until }) = self.pending else {
                let Some(next) = inbox.recv().await else {
                    return Ok(None);
                };
                self.submit(&next, receiver);
                continue;
            };
            let read = tokio::time::timeout_at(until, self.inner.recv()).await;
            match read {
                Ok(Ok(end)) if is_marker(&end) => {
                    self.pending = None;
                    match self.decoded.take() {
                        Some(outcome) => return Ok(Some(outcome)),
                        None => receiver.count_garbage(from),
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
                    // A late payload must not be attributed to the next peer.
                    drain(&self.twin, &mut self.buffer);
                    self.pending = None;
                    add(&receiver.counters.codec_late, 1);
                    if let Some(outcome) = self.decoded.take() {
                        return Ok(Some(outcome));
                    }
                }
            }
        }
    }

    /// Passes a payload and the marker to the inner socket, both or neither. Does not wait.
    fn submit(&mut self, next: &InboundMessage, receiver: &CellReceiver) {
        if !self.is_acceptable(&next.bytes) {
            return receiver.count_garbage(next.from);
        }
        self.decoded = None;
        let submitted = self
            .outer
            .send(&next.bytes)
            .and_then(|_| self.outer.send(&self.marker));
        match submitted {
            Ok(_) => {
                let until = Instant::now() + self.decode_timeout;
                let from = next.from;
                self.pending = Some(Pending { from, until });
            }
            Err(error) => {
                tracing::debug!(%error, "gossip message lost before decoding");
                drain(&self.twin, &mut self.buffer);
                add(&receiver.counters.codec_late, 1);
            }
        }
    }

    /// Whether the bytes have the form of a message that a member may send.
    fn is_acceptable(&self, bytes: &[u8]) -> bool {
        let magic = self.marker.first_chunk::<2>();
        bytes.len() <= MAX_PAYLOAD_BYTES
            && magic.is_some_and(|magic| outer_format::is_acceptable(*magic, bytes))
    }

    /// Verifies that messages have the expected form, the longest payload fits, datagrams of other sockets are dropped,
    /// and the marker is decoded as itself.
    async fn self_test(&mut self) -> Result<(), CodecError> {
        let failed = |reason: &str| CodecError::SelfTest {
            reason: reason.to_owned(),
        };
        for message in specimens() {
            let bytes = self.encode(message).await?;
            if !self.is_acceptable(&bytes) {
                return Err(failed("encoded messages do not have the expected form"));
            }
        }
        let inner_addr = self
            .twin
            .local_addr()
            .map_err(system("cannot read the address of a loopback socket"))?;
        let stranger = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(system("cannot open a socket on loopback"))?;
        // The kernel may refuse or drop the datagram.
        let _ = stranger.send_to(&self.marker, inner_addr);
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
            return Err(failed("a datagram from another socket was received"));
        }
        self.outer
            .send(&self.marker)
            .map_err(system("cannot send the marker"))?;
        match tokio::time::timeout(SELF_TEST_TIMEOUT, self.inner.recv()).await {
            Ok(Ok(outcome)) if is_marker(&outcome) => Ok(()),
            Ok(Ok(_)) => Err(failed("the marker is read as something else")),
            Ok(Err(e)) => Err(chitchat_failed("cannot decode")(e)),
            Err(_) => Err(failed("the marker does not arrive")),
        }
    }
}

/// One empty message of each type.
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

/// Discards all datagrams that wait in a socket.
fn drain(socket: &std::net::UdpSocket, buffer: &mut [u8]) {
    // Bounded, in case a process sends faster than this loop reads.
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
