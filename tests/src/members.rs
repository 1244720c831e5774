//! Three quorum members as processes, without other daemons: on loopback, or on hosts of their own.

use crate::{
    daemon::Daemon,
    netns::{Netns, Network},
    wait::{LOOK_EVERY, PATIENCE, eventually},
};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Mesh, MeshConfig, Role, SystemClock, Validity,
};
use lattice_quorum_client::{ClientConfig, QuorumClient};
use lattice_quorum_types::{VoterId, membership::MemberStatus};
use rustix::process::Signal;
use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const CLUSTER: &str = "faults";
/// Ids of the members.
pub const IDS: [VoterId; 3] = [1, 2, 3];
/// Port of each member on a host of its own.
const PORT: u16 = 7100;

/// Three quorum members.
#[derive(Debug)]
pub struct Members {
    /// Daemons by id, at index id - 1.
    daemons: Vec<Daemon>,
    hosts: Vec<Netns>,
    network: Option<Network>,
    addrs: Vec<SocketAddr>,
    authority: Authority,
    /// Folder of data, credentials and configurations.
    folder: tempfile::TempDir,
}

impl Members {
    /// Prepares members on loopback, not started; `extra` lines go into each configuration.
    pub fn prepare(program: &str, extra: &str) -> Self {
        Self::make(program, extra, None)
    }

    /// Prepares members on hosts of their own; see [`Network::turn`].
    pub fn on_hosts(program: &str, extra: &str) -> Self {
        Self::make(program, extra, Some(Network::new()))
    }

    fn make(program: &str, extra: &str, mut network: Option<Network>) -> Self {
        let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
        let hosts: Vec<Netns> = match &mut network {
            Some(network) => IDS.map(|id| network.host(&format!("m{id}"))).into(),
            None => Vec::new(),
        };
        let addrs = match hosts.is_empty() {
            true => crate::site::free_addresses(IDS.len()),
            false => hosts.iter().map(|h| (h.ip(), PORT).into()).collect(),
        };
        let mut members = Self {
            daemons: Vec::new(),
            hosts,
            network,
            addrs,
            authority: Authority::create(CLUSTER, validity).unwrap(),
            folder: tempfile::Builder::new()
                .prefix("lattice-members-")
                .tempdir()
                .unwrap(),
        };
        for id in IDS {
            members.credentials(Role::Quorum, &id.to_string());
            let config = members.path(&format!("member-{id}.yaml"));
            fs::write(&config, members.config(id, extra)).unwrap();
            let mut daemon = Daemon::new(&format!("quorum-{id}"), program, config);
            daemon.place(members.hosts.get(id as usize - 1).cloned());
            members.daemons.push(daemon);
        }
        members
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn credentials(&self, role: Role, id: &str) -> Credentials {
        let day = Duration::from_secs(86_400);
        let issued = Credentials::issued_now(&self.authority, CLUSTER, role, id, day).unwrap();
        if role == Role::Quorum {
            issued
                .save(&self.path(&format!("credentials-{id}")))
                .unwrap();
        }
        issued
    }

    fn config(&self, id: VoterId, extra: &str) -> String {
        let root = self.folder.path().display();
        let addr = self.addrs[id as usize - 1];
        let mut text = format!(
            "cluster: {CLUSTER}\nid: {id}\nlisten: {addr}\ndata_dir: {root}/data-{id}\n\
             credentials: {root}/credentials-{id}\nmembers:\n"
        );
        for (id, addr) in IDS.iter().zip(&self.addrs) {
            writeln!(text, "  - {{id: {id}, addr: \"{addr}\"}}").unwrap();
        }
        text + extra
    }

    /// Data directory of a member.
    pub fn data(&self, id: VoterId) -> PathBuf {
        self.path(&format!("data-{id}"))
    }

    /// Daemon of a member.
    pub fn member(&mut self, id: VoterId) -> &mut Daemon {
        &mut self.daemons[id as usize - 1]
    }

    /// Sends a signal to a member.
    pub fn signal(&self, id: VoterId, signal: Signal) {
        self.daemons[id as usize - 1].signal(signal);
    }

    /// Host of a member.
    ///
    /// # Panics
    /// When members have no hosts of their own.
    pub fn host(&self, id: VoterId) -> &Netns {
        &self.hosts[id as usize - 1]
    }

    /// Network between the hosts.
    ///
    /// # Panics
    /// When there is no network.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("members on hosts")
    }

    /// Starts all members.
    pub fn start_all(&mut self) {
        self.daemons.iter_mut().for_each(Daemon::start);
    }

    /// Kills all members.
    pub fn kill_all(&mut self) {
        self.daemons.iter_mut().for_each(Daemon::kill);
    }

    /// Client of all members, with the identity of a control of that name and a deadline of 60 s.
    pub fn client(&self, name: &str) -> QuorumClient {
        self.client_of(name, self.addrs.clone())
    }

    /// Client with the address of one member only; the member may redirect it to others.
    pub fn client_of_one(&self, name: &str, id: VoterId) -> QuorumClient {
        self.client_of(name, vec![self.addr(id)])
    }

    fn client_of(&self, name: &str, addrs: Vec<SocketAddr>) -> QuorumClient {
        let config = ClientConfig {
            deadline: Duration::from_secs(60),
            ..ClientConfig::default()
        };
        QuorumClient::with_config(self.mesh(name), addrs, config)
    }

    /// Mesh endpoint with the identity of a control of that name.
    pub fn mesh(&self, name: &str) -> Mesh {
        let own = self.network.as_ref().map(Network::own_ip);
        let ip = own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let credentials = self.credentials(Role::Control, name);
        Mesh::bind((ip, 0).into(), credentials, MeshConfig::default()).unwrap()
    }

    /// Mesh address of a member.
    pub fn addr(&self, id: VoterId) -> SocketAddr {
        self.addrs[id as usize - 1]
    }

    /// Waits until a started member has ended, and returns its exit code and output.
    ///
    /// # Panics
    /// When the member does not end.
    pub async fn ends(&mut self, id: VoterId) -> (Option<i32>, String) {
        let begun = Instant::now();
        while self.member(id).is_running() {
            assert!(begun.elapsed() < PATIENCE, "member {id} runs on");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let status = self.member(id).ended();
        (status.code(), self.member(id).said())
    }

    /// Moves a member's data directory away, as the member's error message advises.
    pub fn begin_anew(&self, id: VoterId) {
        let (data, away) = (self.data(id), self.path(&format!("away-{id}")));
        let _ = fs::remove_dir_all(&away);
        fs::rename(data, away).unwrap();
    }
}

/// Status of each member that answers.
pub async fn statuses(client: &QuorumClient) -> Vec<MemberStatus> {
    let all = client.status().await;
    all.into_iter()
        .filter_map(|(_, status)| status.ok())
        .collect()
}

/// Waits until these members, and no others, agree on a leader among them. Returns the leader's id and term.
pub async fn led(client: &QuorumClient, among: &[VoterId]) -> (VoterId, u64) {
    eventually("members agree on a leader", || async {
        let mut found = statuses(client).await;
        found.retain(|status| among.contains(&status.id));
        let first = found.first()?;
        let same = |s: &MemberStatus| (s.leader, s.term) == (first.leader, first.term);
        let leader = first.leader.filter(|leader| among.contains(leader))?;
        let agree = found.len() == among.len() && found.iter().all(same);
        agree.then_some((leader, first.term))
    })
    .await
}

/// Waits until a member has applied the log up to the newest index at the time of the call.
pub async fn caught_up(client: &QuorumClient, id: VoterId) {
    let newest = statuses(client).await;
    let newest = newest.iter().map(|status| status.applied_index).max();
    eventually("a member has caught up", || async {
        let found = statuses(client).await;
        let own = found.iter().find(|status| status.id == id)?;
        (own.leader.is_some() && Some(own.applied_index) >= newest).then_some(())
    })
    .await;
}

/// All files below a folder with their contents, sorted by path.
pub fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}
