//! Test support: three members in one process or as three processes, on loopback.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support"
)]

pub mod changes;
pub mod process;

use lattice_mesh::{
    Authority, Clock, Credentials, Mesh, MeshConfig, RateLimit, Role, SystemClock, Validity,
};
use lattice_quorum::{App, MemberFounder, Platform, ScrubSettings, Settings};
use lattice_quorum_client::{ClientConfig, QuorumClient};
use lattice_quorum_state::SegmentLimits;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal, UnixMillis,
    VclusterName, VoterId,
    command::{Principal, Privilege, SCHEMA},
    limit::Limits,
    spec::{AllocationSpec, Workload},
};
use std::{
    cell::Cell,
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub const CLUSTER: &str = "test";

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Validity of certificates, unless a test sets another.
const DAY: Duration = Duration::from_secs(86_400);
/// Longest wait for the address of a member that was stopped a moment ago.
const BIND_TIMEOUT: Duration = Duration::from_secs(20);

pub fn today() -> Validity {
    Validity::from_now(SystemClock.now(), DAY)
}

pub fn authority() -> Arc<Authority> {
    Arc::new(Authority::create(CLUSTER, today()).unwrap())
}

pub fn credentials(authority: &Authority, role: Role, id: &str) -> Credentials {
    Credentials::issued_now(authority, CLUSTER, role, id, DAY).unwrap()
}

pub fn control(authority: &Authority, id: &str) -> Mesh {
    let credentials = credentials(authority, Role::Control, id);
    Mesh::bind(any_port(), credentials, MeshConfig::default()).unwrap()
}

/// Client configuration for tests that do not concern deadlines.
pub fn patient() -> ClientConfig {
    ClientConfig {
        deadline: Duration::from_secs(60),
        ..ClientConfig::default()
    }
}

/// A client of these members for tests that do not concern deadlines.
pub fn client_of(authority: &Authority, id: &str, addrs: Vec<SocketAddr>) -> QuorumClient {
    QuorumClient::with_config(control(authority, id), addrs, patient())
}

/// A client that gives up after `seconds`.
pub fn hasty(
    authority: &Authority,
    id: &str,
    addrs: Vec<SocketAddr>,
    seconds: u64,
) -> QuorumClient {
    let config = ClientConfig {
        deadline: Duration::from_secs(seconds),
        ..ClientConfig::default()
    };
    QuorumClient::with_config(control(authority, id), addrs, config)
}

/// Waits until `probe` holds, with a limit: for states that other tasks produce.
pub async fn until<F: Future<Output = bool>>(what: &str, mut probe: impl FnMut() -> F) {
    let wait = async {
        while !probe().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .expect(what);
}

/// Three members in this process.
pub struct Cluster {
    pub authority: Arc<Authority>,
    pub folder: tempfile::TempDir,
    pub apps: Vec<Option<App>>,
    pub members: Vec<(VoterId, SocketAddr)>,
    pub snapshot_every: u64,
    /// Lifetime of certificates, including those of the members.
    pub lifetime: Duration,
    pub ground: Platform,
    /// Scrubber settings of members that start from now on.
    pub scrub: Option<ScrubSettings>,
}

impl Cluster {
    pub async fn start() -> Self {
        Self::start_with(5000).await
    }

    pub async fn start_with(snapshot_every: u64) -> Self {
        Self::start_as(snapshot_every, DAY).await
    }

    /// Starts a cluster with certificates of this lifetime.
    pub async fn start_short(lifetime: Duration) -> Self {
        Self::start_as(5000, lifetime).await
    }

    /// Starts a cluster with segments of `rows` rows.
    pub async fn start_with_segments(snapshot_every: u64, rows: u32) -> Self {
        let segment_bounds = SegmentLimits {
            rows,
            ..SegmentLimits::default()
        };
        let ground = Platform {
            segment_bounds,
            ..Platform::default()
        };
        Self::start_on(ground, snapshot_every, DAY).await
    }

    async fn start_as(snapshot_every: u64, lifetime: Duration) -> Self {
        Self::start_on(Platform::default(), snapshot_every, lifetime).await
    }

    async fn start_on(ground: Platform, snapshot_every: u64, lifetime: Duration) -> Self {
        let mut cluster = Self {
            authority: authority(),
            folder: tempfile::tempdir().unwrap(),
            apps: Vec::new(),
            members: Vec::new(),
            snapshot_every,
            lifetime,
            ground,
            scrub: None,
        };
        cluster.found().await;
        // A member without contact to a leader yet abstains, so one failure less would be tolerated.
        until("all members have joined", || async {
            let mut statuses = cluster.apps.iter().flatten().filter_map(App::status);
            statuses.all(|s| s.leader.is_some() && s.applied_index > 0)
        })
        .await;
        cluster
    }

    /// Starts one more member, which joins and has not been added yet.
    pub async fn join(&mut self) -> VoterId {
        let id = self.members.len() as VoterId + 1;
        let mut app = self.bind(id, any_port()).await;
        self.members.push((id, app.addr()));
        app.start(self.members.clone()).await.unwrap();
        self.apps.push(Some(app));
        id
    }

    async fn bind(&self, id: VoterId, addr: SocketAddr) -> App {
        let settings = self.settings(id, addr);
        self.founder().bind(settings).await.unwrap()
    }

    /// Settings of a member; members above 3 join.
    fn settings(&self, id: VoterId, addr: SocketAddr) -> Settings {
        let folder = self.folder.path().join(id.to_string());
        let mut settings = Settings::new(CLUSTER, id, addr, folder);
        settings.snapshot_every = self.snapshot_every;
        settings.join = id > 3;
        settings.scrub = self.scrub;
        settings.enrolment.lifetime = self.lifetime;
        settings.mesh.enrol_rate = RateLimit {
            burst: 1000,
            per_second: 1000.0,
        };
        settings
    }

    fn founder(&self) -> MemberFounder {
        MemberFounder {
            bind_timeout: BIND_TIMEOUT,
            platform: self.ground.clone(),
            ..MemberFounder::new(self.authority.clone(), self.lifetime)
        }
    }

    /// Issues credentials with the lifetime of the members' certificates.
    pub fn credentials(&self, role: Role, id: &str) -> Credentials {
        Credentials::issued_now(&self.authority, CLUSTER, role, id, self.lifetime).unwrap()
    }

    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|(_, addr)| *addr).collect()
    }

    pub fn client(&self, id: &str) -> QuorumClient {
        client_of(&self.authority, id, self.addrs())
    }

    /// Waits until every member has the first authority. A leader proposes it a while after its election, which changes
    /// the state.
    pub async fn knows_its_authority(&self) {
        until("the first authority is in force at all members", || async {
            let apps = self.apps.iter().flatten();
            let mut numbers = apps.map(|app| app.mesh().trust_state().number);
            numbers.all(|number| number > 0)
        })
        .await;
    }

    pub fn app(&self, id: VoterId) -> &App {
        self.apps[id as usize - 1].as_ref().unwrap()
    }

    /// Returns the member that reports itself as the leader.
    pub async fn leader(&self) -> VoterId {
        let find = || {
            let statuses = self.apps.iter().flatten().filter_map(App::status);
            statuses
                .filter(|s| s.leader == Some(s.id))
                .max_by_key(|s| s.term)
                .map(|s| s.id)
        };
        let found = Cell::new(None);
        until("a leader", || async {
            found.set(find());
            found.get().is_some()
        })
        .await;
        found.get().unwrap()
    }

    pub async fn stop_member(&mut self, id: VoterId) {
        let app = self.apps[id as usize - 1].take().unwrap();
        app.stop().await;
    }

    pub async fn restart_member(&mut self, id: VoterId) {
        let addr = self.members[id as usize - 1].1;
        let mut app = self.bind(id, addr).await;
        app.start(self.members.clone()).await.unwrap();
        self.apps[id as usize - 1] = Some(app);
    }

    /// Starts all members, which are stopped, at new addresses.
    pub async fn move_all(&mut self) {
        self.apps.clear();
        self.found().await;
    }

    /// Starts members 1 to 3 at new addresses, on existing data if there is any.
    async fn found(&mut self) {
        let settings = (1..=3).map(|id| self.settings(id, any_port()));
        let apps = self.founder().found(settings).await.unwrap();
        self.members = (1..=3).zip(apps.iter().map(App::addr)).collect();
        self.apps = apps.into_iter().map(Some).collect();
    }

    pub async fn stop(mut self) {
        for id in 1..=self.apps.len() as VoterId {
            if self.apps[id as usize - 1].is_some() {
                self.stop_member(id).await;
            }
        }
    }
}

pub fn now() -> UnixMillis {
    SystemClock.now()
}

/// Creates an administrator's envelope, with a new key if none is given. On a stalled machine a new election is
/// possible at any time, and the client does not repeat commands without a key.
pub fn admin(key: Option<String>, command: Command) -> Envelope {
    envelope("alice", Privilege::Admin, key.or_else(some_key), command)
}

/// As [`admin`], for a control.
pub fn service(key: Option<String>, command: Command) -> Envelope {
    envelope(
        "service:control/c1",
        Privilege::Service,
        key.or_else(some_key),
        command,
    )
}

fn some_key() -> Option<String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    Some(format!("some-key-{n}"))
}

/// Removes the key: the client then does not repeat a command with unknown outcome.
pub fn without_key(envelope: Envelope) -> Envelope {
    Envelope {
        key: None,
        ..envelope
    }
}

pub fn envelope(name: &str, power: Privilege, key: Option<String>, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: name.to_owned(),
            privilege: power,
        },
        key,
        at: now(),
        fence: None,
        command,
    }
}

pub fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).unwrap()
}

pub fn node(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

pub fn create_project(text: &str, max_nodes: u64) -> Command {
    Command::CreateProject {
        path: path(text),
        limits: Some(Limits {
            max_nodes: Some(max_nodes),
            max_concurrent_allocations: None,
        }),
        admins: Vec::new(),
        description: String::new(),
    }
}

pub fn register(name: &str) -> Command {
    Command::RegisterNode {
        node: node(name),
        vcluster: VclusterName::new("default").unwrap(),
    }
}

pub fn ready(name: &str) -> Command {
    Command::SetLifecycle {
        node: node(name),
        lifecycle: lattice_quorum_types::node::Lifecycle::Ready,
    }
}

pub fn submit(project: &str, nodes: u32, name: &str) -> Command {
    Command::Submit {
        spec: Box::new(AllocationSpec {
            name: Some(name.to_owned()),
            walltime_ms: Some(60_000),
            class: 0,
            ..AllocationSpec::new(
                path(project),
                VclusterName::new("default").unwrap(),
                nodes,
                Workload {
                    argv: vec!["/bin/true".to_owned()],
                    ..Workload::default()
                },
            )
        }),
    }
}

pub fn submitted(result: Result<Applied, Refusal>) -> AllocationId {
    match result.unwrap().outcome {
        Outcome::Submitted { id } => id,
        other => panic!("{other:?}"),
    }
}

pub fn folder_of(root: &Path, id: VoterId) -> PathBuf {
    root.join(id.to_string())
}
