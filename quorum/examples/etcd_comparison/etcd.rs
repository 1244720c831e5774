//! etcd side: three members as processes, and a client for the required part of the etcd API.

use crate::{
    below,
    machine::{free_ports, spawn},
    rpc::{Put, PutDone, Range, RangeReply, StatusFound, StatusRequest},
    side::{Client, MEMBERS, Processes, Side, Status},
};
use futures::{StreamExt, stream::FuturesUnordered};
use prost::Message;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// Heartbeat interval, as for Lattice members.
pub const HEARTBEAT_MS: u32 = 100;
/// Election timeout, as for Lattice members. etcd adds a random time of up to the same length. A Lattice member adds
/// its own election window, 150 to 400 ms.
pub const ELECTION_MS: u32 = 500;

/// Time without an answer after which an attempt looks for the present leader, as in the Lattice client.
const LEADER_CHECK_AFTER: Duration = Duration::from_millis(300);
/// Timeout of one status request, as in the Lattice client.
const LOCATE_TIMEOUT: Duration = Duration::from_millis(250);
/// Pause between attempts; the waits of the Lattice client grow from 10 ms to 200 ms.
const PAUSE: Duration = Duration::from_millis(10);
/// Time without an answer after which a write has failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// The three etcd members.
pub struct Etcd {
    root: PathBuf,
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
    processes: Processes,
    status_client: EtcdClient,
}

impl Etcd {
    /// Prepares members that keep their data below `root`. Starts none.
    pub fn prepare(root: &Path, bytes: usize) -> Self {
        let mut ports = free_ports(2 * MEMBERS);
        let peers = ports.split_off(MEMBERS);
        Self {
            root: below(root, "etcd"),
            status_client: EtcdClient::new(&ports, 1, bytes),
            clients: ports,
            peers,
            processes: Processes::default(),
        }
    }

    /// Returns the client addresses of the members.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.clients
    }
}

impl Side for Etcd {
    const NAME: &'static str = "etcd";
    type Client = EtcdClient;

    fn start(&mut self, member: usize) {
        let url = |addr: &SocketAddr| format!("http://{addr}");
        let peers = self.peers.iter().enumerate();
        let cluster: Vec<_> = peers.map(|(i, p)| format!("m{i}={}", url(p))).collect();
        let (client, peer) = (url(&self.clients[member]), url(&self.peers[member]));
        let mut command = std::process::Command::new("etcd");
        command
            .args(["--name", &format!("m{member}")])
            .arg("--data-dir")
            .arg(self.data(member))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--election-timeout", &ELECTION_MS.to_string()])
            .args(["--quota-backend-bytes", &(8_u64 << 30).to_string()])
            .args(["--logger", "zap", "--log-level", "warn"]);
        let log = self.root.join(format!("m{member}.log"));
        self.processes.put(member, spawn(&mut command, &log));
    }

    fn kill(&mut self, member: usize) {
        self.processes.kill(member);
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.ids()
    }

    fn data(&self, member: usize) -> PathBuf {
        self.root.join(format!("data-{member}"))
    }

    fn client(&self, connections: usize) -> EtcdClient {
        EtcdClient::new(
            &self.clients,
            connections,
            self.status_client.shared.value.len(),
        )
    }

    async fn statuses(&self) -> [Option<Status>; MEMBERS] {
        let found = [0, 1, 2].map(|member| self.status_client.status(member));
        let found = futures::future::join_all(found).await;
        let mut found = found.into_iter().map(|found| {
            let found = found.ok()?;
            let own = found.header.map_or(0, |header| header.member_id);
            Some(Status {
                is_leader: found.leader == own,
                has_leader: found.leader != 0,
                term: found.raft_term,
                applied: found.applied,
            })
        });
        std::array::from_fn(|_| found.next().flatten())
    }

    async fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut from = vec![0];
        loop {
            let request = Range {
                key: from,
                // A zero byte as the range end selects all keys from `key` on.
                range_end: vec![0],
                limit: 5000,
                keys_only: true,
            };
            let leader = self.status_client.target().await.expect("a leader");
            let way = self.status_client.channel(leader, 0);
            let found: RangeReply = call(way, request, "/etcdserverpb.KV/Range").await.unwrap();
            let texts = found.pairs.into_iter().map(|pair| pair.key);
            names.extend(texts.map(|key| String::from_utf8(key).unwrap()));
            if !found.more {
                return names;
            }
            from = names.last().unwrap().clone().into_bytes();
            from.push(0);
        }
    }
}

/// Client that finds the leader and writes to it, as the Lattice client does.
#[derive(Clone)]
pub struct EtcdClient {
    shared: Arc<Shared>,
}

struct Shared {
    /// Connections to each member.
    channels: Vec<Vec<Channel>>,
    ids: Mutex<[u64; MEMBERS]>,
    leader: Mutex<Option<usize>>,
    value: Vec<u8>,
}

async fn call<Q, A>(channel: Channel, request: Q, method: &'static str) -> Result<A, String>
where
    Q: Message + Default + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel).max_decoding_message_size(64 << 20);
    grpc.ready().await.map_err(|error| error.to_string())?;
    let path = PathAndQuery::from_static(method);
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(Request::new(request), path, codec).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| format!("{:?}: {}", status.code(), status.message()))
}

impl EtcdClient {
    pub fn new(addrs: &[SocketAddr], connections: usize, bytes: usize) -> Self {
        let connect = |addr: &SocketAddr| {
            let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
            let endpoint = endpoint
                .tcp_nodelay(true)
                .connect_timeout(Duration::from_secs(1));
            let each = (0..connections).map(|_| endpoint.connect_lazy());
            each.collect()
        };
        Self {
            shared: Arc::new(Shared {
                channels: addrs.iter().map(connect).collect(),
                ids: Mutex::default(),
                leader: Mutex::default(),
                value: vec![b'x'; bytes],
            }),
        }
    }

    fn channel(&self, member: usize, writer: usize) -> Channel {
        let channels = &self.shared.channels[member];
        channels[writer % channels.len()].clone()
    }

    async fn status(&self, member: usize) -> Result<StatusFound, String> {
        let method = "/etcdserverpb.Maintenance/Status";
        let asked = call(self.channel(member, 0), StatusRequest {}, method);
        let asked = timeout(LOCATE_TIMEOUT, asked).await;
        let found: StatusFound = asked.map_err(|_| "no answer".to_owned())??;
        if let Some(header) = &found.header {
            self.shared.ids.lock().unwrap()[member] = header.member_id;
        }
        Ok(found)
    }

    /// Queries all members for the leader. Uses the answer with the highest term once a majority has answered.
    async fn locate(&self) -> Option<usize> {
        let mut asked: FuturesUnordered<_> = (0..MEMBERS).map(|m| self.status(m)).collect();
        let (mut answers, mut newest) = (0, None::<StatusFound>);
        while let Some(found) = asked.next().await {
            let Ok(found) = found else { continue };
            answers += 1;
            let rank = |s: &StatusFound| (s.raft_term, s.leader != 0);
            if newest.as_ref().is_none_or(|n| rank(&found) > rank(n)) {
                newest = Some(found);
            }
            let knows = newest.as_ref().is_some_and(|n| n.leader != 0);
            if answers * 2 > MEMBERS && knows {
                break;
            }
        }
        let leader = newest?.leader;
        let ids = self.shared.ids.lock().unwrap();
        ids.iter().position(|id| *id == leader && leader != 0)
    }

    async fn target(&self) -> Option<usize> {
        let known = *self.shared.leader.lock().unwrap();
        if known.is_some() {
            return known;
        }
        let found = self.locate().await?;
        *self.shared.leader.lock().unwrap() = Some(found);
        Some(found)
    }

    fn clear_leader(&self, member: usize) {
        let mut leader = self.shared.leader.lock().unwrap();
        if *leader == Some(member) {
            *leader = None;
        }
    }

    /// Attempts the write once. If another member leads, records that leader and fails.
    async fn attempt(&self, member: usize, writer: usize, put: Put) -> Result<(), String> {
        let call = call::<Put, PutDone>(self.channel(member, writer), put, "/etcdserverpb.KV/Put");
        let mut call = std::pin::pin!(call);
        let mut patience = LEADER_CHECK_AFTER;
        loop {
            match timeout(patience, &mut call).await {
                Ok(answer) => return answer.map(|_| ()),
                Err(_) => {
                    patience = LEADER_CHECK_AFTER / 4;
                    if let Some(other) = self.locate().await.filter(|other| *other != member) {
                        *self.shared.leader.lock().unwrap() = Some(other);
                        return Err(format!("member {other} leads now"));
                    }
                }
            }
        }
    }
}

impl Client for EtcdClient {
    async fn write(&self, writer: usize, name: String) -> Result<(), String> {
        let begun = Instant::now();
        let put = Put {
            key: name.into_bytes(),
            value: self.shared.value.clone(),
        };
        let mut last = "no leader".to_owned();
        while begun.elapsed() < DEADLINE {
            if let Some(member) = self.target().await {
                match self.attempt(member, writer, put.clone()).await {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        self.clear_leader(member);
                        last = error;
                    }
                }
            }
            sleep(PAUSE).await;
        }
        Err(last)
    }
}
