//! Temporary cluster on loopback: a CA, a control, and any number of agents.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use crate::support::{Ledger, NOBODY, PATIENCE, is_root, open_to_others, program};
use futures::future::BoxFuture;
use lattice_agent::{App, Dependencies, Settings};
use lattice_agent_rpc::Report;
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_gossip::{Cell, CellConfig, Gossip, Member, PublishedState};
use lattice_hwprobe::{Host, NvmlSource};
use lattice_mesh::{
    Authority, Clock, Credentials, EnrolRefused, EnrolRequest, Enroller, ExpectedIdentity,
    HandlerFailed, Identity, Issued, JoinToken, Mesh, MeshConfig, Peer, Role, Router, SystemClock,
    Validity,
};
use lattice_quorum_types::wire::Unavailable;
use lattice_quorum_types::{NodeId, UnixMillis};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
pub const CELL: &str = "c0";

/// System clock plus an offset that tests increase. A certificate expires exactly when a test requires it, not during a
/// delay of a busy machine.
#[derive(Debug, Default)]
pub struct OffsetClock(AtomicU64);

impl OffsetClock {
    pub fn forward(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> UnixMillis {
        SystemClock.now().after(self.0.load(Ordering::SeqCst))
    }
}

pub struct Cluster {
    /// Clock of the control and of every agent.
    pub clock: Arc<OffsetClock>,
    pub authority: Arc<Authority>,
    pub folder: tempfile::TempDir,
    pub ledger: Arc<Ledger>,
    pub control: Mesh,
    pub cell: Cell,
}

const LIFETIME: Duration = Duration::from_secs(3600);

fn validity() -> Validity {
    Validity::from_now(SystemClock.now(), LIFETIME)
}

impl Cluster {
    pub async fn start() -> Self {
        Self::reporting_to(Ledger::new()).await
    }

    pub async fn reporting_to(ledger: Arc<Ledger>) -> Self {
        let authority = Arc::new(Authority::create("test", validity()).unwrap());
        let folder = tempfile::tempdir().unwrap();
        open_to_others(folder.path());
        let clock = Arc::<OffsetClock>::default();
        let config = MeshConfig {
            clock: clock.clone(),
            ..patient()
        };
        let own = issue(&authority, Role::Control, "c1");
        let control = Mesh::bind(LOOPBACK, own, config).unwrap();
        let gossip = Gossip::new();
        let reports = ledger.clone();
        let router = Router::new().rpc::<Report, _, _>(move |_, report| {
            let answer = reports.take(report).map_err(|_| Unavailable::NoMajority);
            async move { Ok(answer) }
        });
        control.serve(gossip.route(router)).unwrap();
        let mut config = CellConfig::new(CELL.parse().unwrap(), SystemClock.now().0);
        config.interval = Duration::from_millis(50);
        let cell = gossip
            .join(&control, config, &PublishedState::default())
            .await
            .unwrap();
        Self {
            clock,
            authority,
            folder,
            ledger,
            control,
            cell,
        }
    }

    pub fn credentials(&self, node: &str) -> Credentials {
        issue(&self.authority, Role::Agent, node)
    }

    /// Settings of an agent named `node`.
    pub fn settings(&self, node: &str, host: Host) -> Settings {
        let data_dir = self.folder.path().join(node);
        let mut settings = Settings::new(NodeId::new(node).unwrap(), LOOPBACK, data_dir, host);
        settings.control = vec![self.control.local_addr()];
        settings.topology_group = Some("g0".to_owned());
        settings.gossip.cell = Some(CELL.parse().unwrap());
        settings.gossip.interval = Some(Duration::from_millis(50));
        settings.executor.run_as = is_root().then_some(NOBODY);
        settings.executor.allow_same_user = true;
        settings.executor.working_dir = Some("/".into());
        settings.executor.grace = Duration::from_secs(5);
        settings
    }

    pub fn edges(&self, node: &str) -> Dependencies {
        let mut edges = Dependencies::system().unwrap();
        edges.credentials = Some(self.credentials(node));
        edges.program = program();
        edges.clock = self.clock.clone();
        edges.mesh = MeshConfig {
            clock: self.clock.clone(),
            ..patient()
        };
        edges
    }

    /// Starts an agent.
    pub async fn agent(&self, node: &str, host: Host) -> App {
        let mut app = App::bind(self.settings(node, host), self.edges(node))
            .await
            .unwrap();
        app.start().await.unwrap();
        app
    }

    /// Connection from the control to the agent.
    pub fn peer(&self, app: &App) -> Peer {
        let expect = ExpectedIdentity::exactly(Role::Agent, app.node().as_str());
        self.control.peer(app.addr(), expect)
    }

    /// State of a node in the control's gossip, once it satisfies `wanted`.
    pub async fn member(&self, node: &str, wanted: impl Fn(&Member) -> bool) -> Arc<Member> {
        let identity = Identity::new("test", Role::Agent, node).unwrap();
        let mut changes = self.cell.changes();
        let found = changes.wait_for(|now| now.members.get(&identity).is_some_and(|m| wanted(m)));
        let snapshot = tokio::time::timeout(PATIENCE, found)
            .await
            .expect("in time")
            .unwrap();
        snapshot.members[&identity].clone()
    }
}

/// Mesh endpoint of another role.
pub fn bind(authority: &Authority, role: Role, id: &str) -> Mesh {
    Mesh::bind(LOOPBACK, issue(authority, role, id), patient()).unwrap()
}

/// Mesh limits that tolerate slow peers on a busy machine.
fn patient() -> MeshConfig {
    MeshConfig {
        connect_timeout: PATIENCE,
        ..MeshConfig::default()
    }
}

fn issue(authority: &Authority, role: Role, id: &str) -> Credentials {
    Credentials::issued_now(authority, "test", role, id, LIFETIME).unwrap()
}

/// Captured host of the fixtures. The fake library in a probe child replaces its GPU driver.
pub fn captured(name: &str) -> Host {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/hosts")
        .join(name);
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(program(), Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    Host::new(root, nvml)
}

/// Empty tree: probes find nothing and need no waiting.
pub fn empty_host(cluster: &Cluster) -> Host {
    Host::new(cluster.folder.path().join("no-host"), NvmlSource::Disabled)
}

/// Enroller that issues one certificate for one token.
pub struct OneToken {
    pub authority: Arc<Authority>,
    pub token: JoinToken,
    pub used: AtomicBool,
}

impl Enroller for OneToken {
    fn enrol(
        &self,
        request: EnrolRequest,
        _remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        Box::pin(async move {
            let is_ours = request.token_hash == self.token.hash();
            if !is_ours || self.used.swap(true, Ordering::SeqCst) {
                return Err(EnrolRefused::TokenRefused);
            }
            let identity = Identity::new("test", Role::Agent, request.name).unwrap();
            let chain = self
                .authority
                .issue(&identity, &request.csr, validity())
                .unwrap();
            Ok(Issued {
                chain: chain.iter().map(|c| c.to_vec()).collect(),
                roots: vec![self.authority.certificate().to_vec()],
                cell: Some(CELL.to_owned()),
            })
        })
    }
}

/// Quorum member that enrols one agent with `token`.
pub fn enrolling_quorum(cluster: &Cluster) -> (Mesh, JoinToken) {
    let token = JoinToken::generate(Role::Agent, cluster.authority.pin());
    let quorum = bind(&cluster.authority, Role::Quorum, "1");
    let enroller = OneToken {
        authority: cluster.authority.clone(),
        token: token.clone(),
        used: AtomicBool::new(false),
    };
    quorum
        .serve(Router::new().enrolment(Arc::new(enroller)))
        .unwrap();
    (quorum, token)
}

/// Handler failure for tests.
pub fn failed(reason: &str) -> HandlerFailed {
    HandlerFailed::new(reason)
}
