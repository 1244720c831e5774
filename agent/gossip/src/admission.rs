//! Inbox of one gossip cell, and the identities of its senders.

use crate::{
    CellName,
    rate::PeerRates,
    stats::{Counters, add},
};
use bytes::Bytes;
use lattice_mesh::{Caller, Identity};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Capacity of the inbox, messages. A member of a full cell gets about 10 per round.
const INBOX_CAPACITY: usize = 256;
/// Maximum number of addresses with a remembered identity.
const MAX_KNOWN: usize = 4096;

/// Received message with its sender's address.
#[derive(Debug)]
pub(crate) struct InboundMessage {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Bytes,
}

/// Receiving side of one cell: inbox, rate limits and counters. The mesh's message handler and the tasks of the cell
/// share this value.
#[derive(Debug)]
pub(crate) struct CellReceiver {
    pub(crate) name: CellName,
    pub(crate) counters: Counters,
    inbox: Mutex<Option<mpsc::Sender<InboundMessage>>>,
    rates: Mutex<PeerRates>,
    /// Identity of the certificate last seen at each address.
    known: Mutex<HashMap<SocketAddr, Identity>>,
}

impl CellReceiver {
    pub(crate) fn new(name: CellName, interval: Duration) -> Self {
        Self {
            name,
            counters: Counters::default(),
            inbox: Mutex::default(),
            rates: Mutex::new(PeerRates::new(interval)),
            known: Mutex::default(),
        }
    }

    /// Opens a new inbox and closes the previous one.
    pub(crate) fn open(&self) -> mpsc::Receiver<InboundMessage> {
        let (sender, receiver) = mpsc::channel(INBOX_CAPACITY);
        *self.inbox.lock() = Some(sender);
        receiver
    }

    /// Closes the inbox: its reader sees the end of the channel.
    pub(crate) fn close(&self) {
        *self.inbox.lock() = None;
    }

    /// Queues a message, or drops and counts it.
    pub(crate) fn deliver(&self, caller: Caller, bytes: Bytes) {
        add(&self.counters.received, 1);
        add(&self.counters.received_bytes, bytes.len() as u64);
        if !self.rates.lock().admit(&caller.identity, Instant::now()) {
            add(&self.counters.over_rate, 1);
            return;
        }
        self.remember_identity(caller.addr, caller.identity);
        let from = caller.addr;
        let inbox = self.inbox.lock().clone();
        let taken =
            inbox.is_some_and(|inbox| inbox.try_send(InboundMessage { from, bytes }).is_ok());
        if !taken {
            add(&self.counters.overflowed, 1);
        }
    }

    /// Counts an undecodable message, and penalises its sender.
    pub(crate) fn count_garbage(&self, from: SocketAddr) {
        add(&self.counters.garbage, 1);
        if let Some(peer) = self.known_at(from) {
            self.rates.lock().punish(&peer);
        }
    }

    /// Queues a message without the checks of [`CellReceiver::deliver`].
    #[cfg(test)]
    pub(crate) async fn inject(&self, message: InboundMessage) {
        let inbox = self.inbox.lock().clone();
        if let Some(inbox) = inbox {
            let _ = inbox.send(message).await;
        }
    }

    fn remember_identity(&self, addr: SocketAddr, identity: Identity) {
        let mut known = self.known.lock();
        if known.get(&addr) == Some(&identity) {
            return;
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(addr, identity);
    }

    /// Identity last seen at an address.
    pub(crate) fn known_at(&self, addr: SocketAddr) -> Option<Identity> {
        self.known.lock().get(&addr).cloned()
    }
}
