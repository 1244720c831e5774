//! Transport of chitchat over the mesh.

use crate::{
    CellName, Seed,
    admission::{CellReceiver, InboundMessage},
    codec::Codec,
    frame::{MESSAGE_KIND, header},
    snapshot::identity_of,
    stats::add,
};
use async_trait::async_trait;
use bytes::Bytes;
use chitchat::{
    Chitchat, ChitchatEnvelope,
    transport::{RecvOutcome, SendOutcome, Socket, Transport},
};
use lattice_mesh::{ExpectedIdentity, Mesh};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, OnceLock, Weak},
};
use tokio::sync::mpsc;

/// Reference to the server's state, set once the server runs.
pub(crate) type StateSlot = Arc<OnceLock<Weak<tokio::sync::Mutex<Chitchat>>>>;

/// Transport with one socket, which chitchat opens once.
pub(crate) struct MeshTransport(Mutex<Option<MeshSocket>>);

pub(crate) struct MeshSocket {
    codec: Codec,
    inbox: mpsc::Receiver<InboundMessage>,
    receiver: Arc<CellReceiver>,
    mesh: Mesh,
    advertise: SocketAddr,
    header: Vec<u8>,
    seeds: HashMap<SocketAddr, ExpectedIdentity>,
    state: StateSlot,
}

impl MeshTransport {
    pub(crate) fn new(socket: MeshSocket) -> Self {
        Self(Mutex::new(Some(socket)))
    }
}

#[async_trait]
impl Transport for MeshTransport {
    async fn open(&self, _: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        match self.0.lock().take() {
            Some(socket) => Ok(Box::new(socket)),
            None => anyhow::bail!("the gossip transport is opened once"),
        }
    }
}

impl MeshSocket {
    pub(crate) fn new(
        codec: Codec,
        receiver: Arc<CellReceiver>,
        mesh: Mesh,
        advertise: SocketAddr,
        seeds: &[Seed],
        state: StateSlot,
    ) -> Self {
        let name: &CellName = &receiver.name;
        Self {
            codec,
            inbox: receiver.open(),
            header: header(name),
            receiver,
            mesh,
            advertise,
            seeds: seeds
                .iter()
                .map(|seed| (seed.addr, ExpectedIdentity::role(seed.role)))
                .collect(),
            state,
        }
    }

    /// Expected identity at an address: the identity last seen there, else the role of the configured seed, else the
    /// identity that gossip reports. The mesh rejects any other peer, so a forged report has no effect.
    async fn expected_at(&self, addr: SocketAddr) -> Option<ExpectedIdentity> {
        if let Some(identity) = self.receiver.known_at(addr) {
            return Some(ExpectedIdentity::exactly(identity.role(), identity.id()));
        }
        if let Some(expect) = self.seeds.get(&addr) {
            return Some(expect.clone());
        }
        let state = self.state.get()?.upgrade()?;
        let state = state.lock().await;
        let named = state
            .node_states()
            .keys()
            .rev()
            .find(|id| id.gossip_advertise_addr == addr)?;
        let identity = identity_of(self.mesh.identity().cluster(), &named.node_id)?;
        Some(ExpectedIdentity::exactly(identity.role(), identity.id()))
    }
}

#[async_trait]
impl Socket for MeshSocket {
    fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.advertise)
    }

    /// Never waits for a peer: the mesh queues or drops the message.
    async fn send(
        &mut self,
        to: SocketAddr,
        envelope: ChitchatEnvelope,
    ) -> anyhow::Result<SendOutcome> {
        let bytes = self.codec.encode(envelope).await?;
        let num_bytes_sent = bytes.len();
        let counters = &self.receiver.counters;
        let Some(expect) = self.expected_at(to).await else {
            add(&counters.unsent, 1);
            return Ok(SendOutcome { num_bytes_sent });
        };
        let mut message = self.header.clone();
        message.extend_from_slice(&bytes);
        let peer = self.mesh.peer(to, expect);
        match peer.send_message(MESSAGE_KIND, Bytes::from(message)) {
            Ok(()) => {
                add(&counters.sent, 1);
                add(&counters.sent_bytes, num_bytes_sent as u64);
            }
            Err(_) => add(&counters.unsent, 1),
        }
        Ok(SendOutcome { num_bytes_sent })
    }

    async fn recv(&mut self) -> anyhow::Result<RecvOutcome> {
        let next = self
            .codec
            .decode_next(&mut self.inbox, &self.receiver)
            .await?;
        next.ok_or_else(|| anyhow::anyhow!("the gossip inbox is closed"))
    }
}
