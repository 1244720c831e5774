//! Where messages of one cell come in, and what is known of their senders.

use crate::{
    CellName,
    rate::PeerRates,
    stats::{Counters, add},
};
use bytes::Bytes;
use lattice_mesh::{Caller, Identity};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Messages that wait to be decoded. A member of a full cell gets about 10 a round.
const INBOX: usize = 256;
/// Addresses remembered with who answers there.
const MAX_KNOWN: usize = 4096;

/// A message and the address to answer to.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Bytes,
}

/// One cell's entrance. Shared by the mesh's handler and the cell's tasks; owns neither.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: CellName,
    pub(crate) counters: Counters,
    inbox: Mutex<Option<mpsc::Sender<Inbound>>>,
    rates: Mutex<PeerRates>,
    /// Who was seen, by certificate, at an address.
    known: Mutex<HashMap<SocketAddr, Identity>>,
}

/// The locks here guard values that are whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    pub(crate) fn new(name: CellName, interval: Duration) -> Self {
        Self {
            name,
            counters: Counters::default(),
            inbox: Mutex::default(),
            rates: Mutex::new(PeerRates::new(interval)),
            known: Mutex::default(),
        }
    }

    /// A new inbox; the one before is closed.
    pub(crate) fn open(&self) -> mpsc::Receiver<Inbound> {
        let (sender, receiver) = mpsc::channel(INBOX);
        *lock(&self.inbox) = Some(sender);
        receiver
    }

    /// Takes no more messages; who reads them is told.
    pub(crate) fn close(&self) {
        *lock(&self.inbox) = None;
    }

    /// Takes a message, or drops and counts it.
    pub(crate) fn deliver(&self, caller: Caller, bytes: Bytes) {
        add(&self.counters.received, 1);
        add(&self.counters.received_bytes, bytes.len() as u64);
        if !lock(&self.rates).admit(&caller.identity, Instant::now()) {
            add(&self.counters.over_rate, 1);
            return;
        }
        self.learn(caller.addr, caller.identity);
        let from = caller.addr;
        let inbox = lock(&self.inbox).clone();
        let taken = inbox.is_some_and(|inbox| inbox.try_send(Inbound { from, bytes }).is_ok());
        if !taken {
            add(&self.counters.overflowed, 1);
        }
    }

    /// What came from there was no gossip.
    pub(crate) fn garbage(&self, from: SocketAddr) {
        add(&self.counters.garbage, 1);
        if let Some(peer) = self.known_at(from) {
            lock(&self.rates).punish(&peer);
        }
    }

    /// As if it had come and been let in.
    #[cfg(test)]
    pub(crate) async fn inject(&self, message: Inbound) {
        let inbox = lock(&self.inbox).clone();
        if let Some(inbox) = inbox {
            let _ = inbox.send(message).await;
        }
    }

    fn learn(&self, addr: SocketAddr, identity: Identity) {
        let mut known = lock(&self.known);
        if known.get(&addr) == Some(&identity) {
            return;
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(addr, identity);
    }

    /// Who was last seen at an address.
    pub(crate) fn known_at(&self, addr: SocketAddr) -> Option<Identity> {
        lock(&self.known).get(&addr).cloned()
    }
}
