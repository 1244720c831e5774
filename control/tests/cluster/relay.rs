//! UDP relay to an agent that can be cut for single senders.

use lattice_cluster::LOOPBACK;
use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{net::UdpSocket, task::JoinHandle};

const LONGEST: usize = 65_536;

/// Forwards datagrams to a target, with one socket per sender.
pub struct Relay {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    target: Option<SocketAddr>,
    cut_off: HashSet<SocketAddr>,
}

impl Relay {
    pub async fn open() -> Self {
        let socket = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
        let addr = socket.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let task = tokio::spawn(forward(socket, state.clone()));
        Self { addr, state, task }
    }

    /// Address of the relay.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn lead_to(&self, target: SocketAddr) {
        self.state.lock().unwrap().target = Some(target);
    }

    /// Cuts this sender off, in both directions.
    pub fn cut(&self, sender: SocketAddr) {
        self.state.lock().unwrap().cut_off.insert(sender);
    }

    pub fn heal(&self) {
        self.state.lock().unwrap().cut_off.clear();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(socket: Arc<UdpSocket>, state: Arc<Mutex<State>>) {
    let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut datagram = vec![0; LONGEST];
    loop {
        let Ok((length, sender)) = socket.recv_from(&mut datagram).await else {
            continue;
        };
        let target = {
            let state = state.lock().unwrap();
            state.target.filter(|_| !state.cut_off.contains(&sender))
        };
        let Some(target) = target else { continue };
        let way = match ways.get(&sender) {
            Some(way) => way.clone(),
            None => {
                let way = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
                tokio::spawn(back(socket.clone(), way.clone(), sender, state.clone()));
                ways.insert(sender, way.clone());
                way
            }
        };
        let _ = way.send_to(&datagram[..length], target).await;
    }
}

/// Forwards answers until the test ends.
async fn back(
    socket: Arc<UdpSocket>,
    way: Arc<UdpSocket>,
    sender: SocketAddr,
    state: Arc<Mutex<State>>,
) {
    let mut datagram = vec![0; LONGEST];
    loop {
        let Ok((length, _)) = way.recv_from(&mut datagram).await else {
            continue;
        };
        if !state.lock().unwrap().cut_off.contains(&sender) {
            let _ = socket.send_to(&datagram[..length], sender).await;
        }
    }
}
