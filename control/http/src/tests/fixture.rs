//! Interfaces of a control on loopback: real TLS, real sockets, the real state machine behind the store (one copy
//! instead of three), and an agent's interface on the mesh.

use crate::Auth;
use crate::{
    Stores,
    oidc::Issuer,
    state::{Api, Bounds},
};
use bytes::Bytes;
use lattice_agent_rpc::{
    CheckHealth, GateFailed, GetHealth, GetInventory, ListAttempts, LogStream, ReadLog,
};
use lattice_client::{AllocationRequest, Client, Endpoint, SubmitOptions};
use lattice_conformance::{Class, ClassMark, Digest, Inventory};
use lattice_engine::{
    Core, History,
    bmc::Readings,
    core::Parts,
    fold,
    node_records::NodeRecords,
    observed_state,
    preimages::Preimages,
    tasks::{
        scheduler_parts::{PlanningTurns, SchedulerParts},
        testing::{store::SingleCopy, world::World},
    },
};
use lattice_mesh::{
    Authority, Clock, Credentials, Mesh, MeshConfig, Pin, Role, Router, SystemClock, Validity,
};
use lattice_placement::Health;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, ProjectPath, Refusal, VclusterName,
    allocation::RankExit,
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode, Fence, Principal, Privilege, RankReport, SCHEMA},
    id::LeaseName,
    node::Lifecycle,
};
use lattice_view::GossipedNode;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpSocket, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Token of each role.
pub(super) const TOKENS: &str = "tokens:\n\
    - {name: root, role: admin, token: root-root-root-root-root}\n\
    - {name: op, role: operator, token: op-op-op-op-op-op-op-op}\n\
    - {name: alice, role: user, token: alice-alice-alice-alice}\n\
    - {name: bob, role: user, token: bob-bob-bob-bob-bob-bob}\n\
    - {name: warden, role: admin, token: warden-warden-warden-warden, tenants: [ocean]}\n\
    - {name: diver, role: operator, token: diver-diver-diver-diver, tenants: [ocean]}\n\
    - {name: dean, role: tenant-admin, token: dean-dean-dean-dean-dean, tenants: [ocean]}\n\
    - {name: waldur, role: service, token: waldur-waldur-waldur-waldur}\n\
    - {name: tide, role: service, token: tide-tide-tide-tide-tide, tenants: [ocean]}\n\
    - {name: eye, role: viewer, token: eye-eye-eye-eye-eye-eye}\n";

/// Longer than any step takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The grace period of a closing port is a tenth of this.
const CLOSES: Duration = Duration::from_secs(15);

/// Below the allowed maximum.
pub(super) const MAX_DAG_SIZE: usize = 50;

/// Captured output of the agent in these tests.
pub(super) const OUTPUT: &str = "hello from rank 0\n";

/// Interfaces of a control, with an agent behind it.
pub(super) struct ApiFixture {
    pub(super) core: Arc<Core>,
    pub(super) stores: Stores,
    pub(super) store: SingleCopy,
    pub(super) addr: SocketAddr,
    /// Bound to the port and never listening, so that no other process gets the port while it is closed.
    _port: TcpSocket,
    pub(super) ca_pem: String,
    pub(super) tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
    pub(super) authority: Pin,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    folding: JoinHandle<()>,
    _agent: Mesh,
    pub(super) agent_addr: SocketAddr,
    /// Failure text of every node's health gate.
    pub(super) gate: Gate,
    /// Health answer of every node.
    pub(super) health: HealthAnswer,
    /// Inventory answer of every node.
    pub(super) inventory: Inventoried,
    /// Command applied while a health gate is checked.
    pub(super) meanwhile: StateHook,
    /// Issuer of tokens accepted in addition to those of the file.
    issuer: Option<Arc<Issuer>>,
    /// Default for the output files of requests that name none.
    default_output: Option<String>,
}

/// See [`ApiFixture::meanwhile`].
type StateHook = Arc<Mutex<Option<Envelope>>>;

/// See [`ApiFixture::inventory`].
type Inventoried = Arc<Mutex<Inventory>>;

/// See [`ApiFixture::health`].
type HealthAnswer = Arc<Mutex<serde_json::Value>>;

/// Health answer without faults.
fn sound() -> HealthAnswer {
    let sound = serde_json::json!({
        "table": "1", "worst": null, "reasons": [], "enabled": true, "read_age_ms": 1,
    });
    Arc::new(Mutex::new(sound))
}

/// See [`ApiFixture::gate`].
type Gate = Arc<Mutex<Option<String>>>;

impl Drop for ApiFixture {
    fn drop(&mut self) {
        self.stop.cancel();
        self.folding.abort();
        if !std::thread::panicking() {
            super::documented::nothing_is_untold();
        }
    }
}

fn mesh(authority: &Authority, role: Role, id: &str) -> Mesh {
    let hour = Duration::from_secs(3_600);
    let credentials = Credentials::issued_now(authority, "test", role, id, hour).unwrap();
    Mesh::bind(
        "127.0.0.1:0".parse().unwrap(),
        credentials,
        MeshConfig::default(),
    )
    .unwrap()
}

/// Router of a simulated agent: no attempts, the configured gate result, an inventory, and output in two pieces.
/// Following the error output waits forever.
fn agent_router(
    gate: Gate,
    (health, inventory): (HealthAnswer, Inventoried),
    meanwhile: StateHook,
    store: SingleCopy,
) -> Router {
    Router::new()
        .rpc(move |_, _: GetHealth| {
            let told = health.lock().unwrap().to_string();
            async move { Ok(Ok(Bytes::from(told))) }
        })
        .rpc(|_, _: ListAttempts| async { Ok(vec![]) })
        .rpc(move |_, _: CheckHealth| {
            let says = gate.lock().unwrap().clone();
            if let Some(envelope) = meanwhile.lock().unwrap().take() {
                store.apply(&envelope).unwrap();
            }
            async move { Ok(says.map_or(Ok(()), |reason| Err(GateFailed { reason }))) }
        })
        .rpc(move |_, _: GetInventory| {
            let inventory = serde_json::to_vec(&*inventory.lock().unwrap()).unwrap();
            async move { Ok(Ok(Bytes::from(inventory))) }
        })
        .stream(|_, asked: ReadLog, items| async move {
            let text = match asked.stream {
                LogStream::Stdout => OUTPUT,
                LogStream::Stderr => "",
            };
            let from = usize::try_from(asked.offset).unwrap().min(text.len());
            let (first, second) = text[from..].split_at((text.len() - from) / 2);
            for part in [first, second] {
                items.send(&Ok(Bytes::from(part.to_owned()))).await?;
            }
            if asked.follow && asked.stream == LogStream::Stderr {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
}

/// Empty stores, with a history in memory.
pub(super) fn stores() -> Stores {
    Stores {
        history: History::open(None).unwrap(),
        preimages: Preimages::default(),
        readings: Readings::default(),
        usage: Arc::default(),
        decisions: Arc::default(),
        checkpoints: Arc::default(),
        accounting: None,
    }
}

/// State of the handlers over a world without a port.
pub(super) fn api_of(world: &World) -> Api {
    let today = Validity::from_now(SystemClock.now(), Duration::from_secs(3_600));
    let authority = Authority::create("test", today).unwrap().pin();
    let stores = Stores {
        history: world.history.clone(),
        preimages: world.preimages.clone(),
        readings: world.readings.clone(),
        usage: world.usage.clone(),
        checkpoints: world.checkpoints.clone(),
        ..stores()
    };
    let bounds = Bounds {
        requests_per_second: 1_000,
        connections: 1,
        max_dag_size: MAX_DAG_SIZE,
        default_output: None,
        stop: CancellationToken::new(),
    };
    let auth = Arc::new(Auth::parse(TOKENS).unwrap());
    Api::new(world.core.clone(), stores, auth, authority, bounds)
}

pub(super) fn server_tls() -> (Arc<rustls::ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let identity = crate::HttpsIdentity {
        chain: vec![made.cert.der().clone()],
        key,
    };
    (identity.into_server_config().unwrap(), made.cert.pem())
}

/// Status and body of one request.
pub(super) async fn ask(
    fixture: &ApiFixture,
    who: &str,
    method: reqwest::Method,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let url = fixture.url(&format!("/api/v1/{path}"));
    let mut request = fixture
        .raw()
        .request(method, url)
        .bearer_auth(fixture.token(who));
    if body != Value::Null {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let told: Value = answer.json().await.unwrap();
    println!("{path}: {status} {told:#}");
    (status, told)
}

impl ApiFixture {
    /// A serving fixture without projects and nodes, which has read this state.
    pub(super) async fn empty() -> Self {
        let fixture = Self::start(SingleCopy::default());
        tokio::time::timeout(PATIENCE, fixture.core.first_view())
            .await
            .expect("the state is read");
        fixture
    }

    /// A serving fixture without a view: no majority of the quorum answers until [`SingleCopy::set_down`] is reset.
    pub(super) fn without_view() -> Self {
        let store = SingleCopy::default();
        store.set_down(true);
        Self::start(store)
    }

    fn start(store: SingleCopy) -> Self {
        let today = Validity::from_now(SystemClock.now(), Duration::from_secs(3_600));
        let authority = Authority::create("test", today).unwrap();
        let agent = mesh(&authority, Role::Agent, "gpu001");
        let gate = Gate::default();
        let meanwhile = StateHook::default();
        let health = sound();
        let inventory = Inventoried::default();
        let (says, told) = (gate.clone(), (health.clone(), inventory.clone()));
        let router = agent_router(says, told, meanwhile.clone(), store.clone());
        agent.serve(router).unwrap();
        let core = Core::new(Parts {
            cluster: "test".to_owned(),
            name: "c1".to_owned(),
            clock: Arc::new(SystemClock),
            store: Arc::new(store.clone()),
            mesh: mesh(&authority, Role::Control, "c1"),
            timings: lattice_engine::Timings::default(),
        });
        let (tls, ca_pem) = server_tls();
        let port = TcpSocket::new_v4().unwrap();
        port.set_reuseaddr(true).unwrap();
        port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut fixture = Self {
            folding: tokio::spawn(fold::follow(core.clone(), Arc::default())),
            core,
            stores: stores(),
            store,
            addr: port.local_addr().unwrap(),
            _port: port,
            ca_pem,
            tls,
            stop: CancellationToken::new(),
            authority: authority.pin(),
            serving: None,
            agent_addr: agent.local_addr(),
            _agent: agent,
            gate,
            health,
            inventory,
            meanwhile,
            issuer: None,
            default_output: None,
        };
        fixture.open();
        fixture
    }

    /// Sources of the records of nodes.
    pub(super) fn records(&self) -> NodeRecords {
        self.stores.records(&self.core)
    }

    /// Parts of schedulers.
    pub(super) fn scheduler_parts(&self) -> SchedulerParts {
        SchedulerParts {
            core: self.core.clone(),
            decisions: self.stores.decisions.clone(),
            checkpoints: self.stores.checkpoints.clone(),
            metrics_source: None,
            turns: PlanningTurns::default(),
        }
    }

    /// The tree atlas 120 / physics 20 / simulation 10, web 50, and `gpu[001-024]`.
    pub(super) async fn furnished() -> Self {
        Self::empty().await.furnish().await
    }

    /// The same, and tokens of an issuer are accepted in addition to those of the file.
    pub(super) async fn trusting(issuer: Arc<Issuer>) -> Self {
        let mut fixture = Self::empty().await;
        fixture.issuer = Some(issuer);
        fixture.close().await;
        fixture.open();
        fixture.furnish().await
    }

    /// The same as [`Self::furnished`], at a site with a default output file.
    pub(super) async fn with_default_output(pattern: &str) -> Self {
        let mut fixture = Self::empty().await;
        fixture.default_output = Some(pattern.to_owned());
        fixture.close().await;
        fixture.open();
        fixture.furnish().await
    }

    async fn furnish(self) -> Self {
        let fixture = self;
        let root = fixture.client("root");
        for (path, nodes) in [
            ("atlas", 120),
            ("atlas/physics", 20),
            ("atlas/physics/simulation", 10),
            ("atlas/web", 50),
        ] {
            root.create_project(&super::projects::request(path, Some(nodes)), None)
                .await
                .unwrap();
        }
        for n in 1..=24 {
            fixture.add_node(&format!("gpu{n:03}"));
        }
        fixture.gossip();
        fixture.settled().await;
        fixture
    }

    /// Opens the port, which stays the same.
    pub(super) fn open(&mut self) {
        // A connection of another process may have had the port meanwhile.
        let begun = std::time::Instant::now();
        let listener = loop {
            match TcpListener::bind(self.addr) {
                Err(_) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                bound => break bound.unwrap(),
            }
        };
        listener.set_nonblocking(true).unwrap();
        self.stop = CancellationToken::new();
        let mut auth = Auth::parse(TOKENS).unwrap();
        if let Some(issuer) = &self.issuer {
            auth = auth.with_issuer(issuer.clone());
        }
        let port = crate::Port {
            listener,
            tls: self.tls.clone(),
            auth: Arc::new(auth),
            authority: self.authority,
            max_dag_size: MAX_DAG_SIZE,
            default_output: self.default_output.clone(),
        };
        let serving = crate::serve(
            self.core.clone(),
            self.stores.clone(),
            port,
            self.stop.clone(),
        )
        .unwrap();
        self.serving = Some(tokio::spawn(serving));
    }

    pub(super) async fn close(&mut self) {
        self.stop.cancel();
        let serving = self.serving.take().unwrap();
        tokio::time::timeout(CLOSES, serving)
            .await
            .expect("the port closes within its grace")
            .unwrap()
            .unwrap();
    }

    /// Waits until the view shows everything that was applied.
    pub(super) async fn settled(&self) {
        let revision = self.store.revision();
        tokio::time::timeout(PATIENCE, self.core.reached(revision))
            .await
            .expect("the view follows the store");
    }

    /// Answer of the store to a command of a service.
    pub(super) fn service_answer(&self, command: Command) -> Result<Applied, Refusal> {
        self.judged(None, command)
    }

    /// Applies a command of a service under a lease.
    pub(super) fn fenced(&self, fence: Fence, command: Command) -> Applied {
        self.service(Some(fence), command)
    }

    /// Answer of the store to a command of a quorum member.
    pub(super) fn member_answer(&self, command: Command) -> Result<Applied, Refusal> {
        let envelope = Envelope {
            principal: Principal {
                name: "service:quorum".to_owned(),
                privilege: Privilege::Service,
            },
            ..service_envelope(None, command)
        };
        self.store.apply(&envelope)
    }

    fn service(&self, fence: Option<Fence>, command: Command) -> Applied {
        self.judged(fence, command).unwrap()
    }

    fn judged(&self, fence: Option<Fence>, command: Command) -> Result<Applied, Refusal> {
        self.store.apply(&service_envelope(fence, command))
    }

    pub(super) fn add_node(&self, name: &str) {
        let node = NodeId::new(name).unwrap();
        let vcluster = VclusterName::new("default").unwrap();
        let register = Command::RegisterNode {
            node: node.clone(),
            vcluster,
        };
        self.service(None, register);
        let lifecycle = Lifecycle::Ready;
        self.service(None, Command::SetLifecycle { node, lifecycle });
    }

    /// Simulates gossip from every node: the same kernel everywhere but on `gpu003`.
    fn gossip(&self) {
        let members: BTreeMap<NodeId, GossipedNode> = (1..=24)
            .map(|n| {
                let digest = Digest([u8::from(n == 3); 32]);
                let mark = ClassMark::Complete { schema: 1, digest };
                let seen = GossipedNode {
                    cell: "cell-0".to_owned(),
                    addr: self.agent_addr,
                    marks: BTreeMap::from([(Class::Kernel, mark)]),
                    earlier: BTreeMap::new(),
                    document: None,
                    health: Health::Healthy,
                    health_reasons: vec![],
                    boot_id: None,
                    generation: 1,
                    agent_version: None,
                    group: Some(format!("dragonfly-{}", n % 4)),
                    history: None,
                    grace_ms: None,
                    keep_output_s: Some(7 * 86_400),
                    is_alive: true,
                };
                (NodeId::new(format!("gpu{n:03}")).unwrap(), seen)
            })
            .collect();
        observed_state::cell(&self.core, "cell-0", members);
    }

    /// Acquires the scheduler lease of `default`.
    pub(super) fn schedules(&self) -> Fence {
        let lease = LeaseName::new("schedule.default").unwrap();
        let acquired = self.service(
            None,
            Command::AcquireLease {
                lease: lease.clone(),
                holder: "c1".to_owned(),
                ttl_ms: 60_000,
            },
        );
        let lattice_quorum_types::Outcome::Leased { epoch, .. } = acquired.outcome else {
            panic!("{acquired:?}");
        };
        Fence { lease, epoch }
    }

    /// Assigns nodes to an allocation, as the scheduler does.
    pub(super) async fn assign(&self, id: AllocationId, nodes: &[&str]) {
        let fence = self.schedules();
        self.settled().await;
        let view = self.core.view();
        let expected = nodes.iter().map(|name| {
            let node = NodeId::new(name).unwrap();
            let version = view.node(&node).unwrap().record.as_ref().unwrap().version;
            ExpectedNode {
                node,
                version,
                boot: None,
            }
        });
        let nodes = expected.collect();
        self.service(Some(fence), Command::Assign { id, nodes });
        self.settled().await;
    }

    /// Claims a node for a user.
    pub(super) async fn claim(&self, who: &str, project: &str, node: &str) {
        let node = NodeId::new(node).unwrap();
        let view = self.core.view();
        let version = view.node(&node).unwrap().record.as_ref().unwrap().version;
        let attestation = Attestation {
            node: node.clone(),
            boot_id: "b1".to_owned(),
            cohort: None,
            classes: BTreeMap::new(),
            read_at: SystemClock.now(),
            nonce: [0; 16],
        };
        let claimed = AttestedNode {
            expected: ExpectedNode {
                node,
                version,
                boot: Some("b1".to_owned()),
            },
            proof: Proof {
                attestation,
                signature: Bytes::new(),
                completed: BTreeMap::new(),
                conforms: BTreeMap::new(),
            },
        };
        let command = Command::ClaimNodes {
            project: ProjectPath::new(project).unwrap(),
            nodes: vec![claimed],
            purpose: "genomes".to_owned(),
        };
        let envelope = Envelope {
            principal: Principal {
                name: who.to_owned(),
                privilege: Privilege::User,
            },
            ..service_envelope(None, command)
        };
        self.store.apply(&envelope).unwrap();
        self.settled().await;
    }

    /// Reports the start of a rank.
    pub(super) async fn begins(&self, id: AllocationId, node: &str) {
        let at = SystemClock.now();
        self.reports(id, node, RankReport::Started { at }).await;
    }

    /// Reports the end of a rank.
    pub(super) async fn ends(&self, id: AllocationId, node: &str, exit: RankExit) {
        let at = SystemClock.now();
        self.reports(
            id,
            node,
            RankReport::Ended {
                at,
                exit,
                fault: None,
            },
        )
        .await;
    }

    /// Reports a successful rank with a failed site hook after it.
    pub(super) async fn ends_with_fault(&self, id: AllocationId, node: &str, fault: &str) {
        let at = SystemClock.now();
        let (exit, fault) = (RankExit::Exited { code: 0 }, Some(fault.to_owned()));
        self.reports(id, node, RankReport::Ended { at, exit, fault })
            .await;
    }

    pub(super) async fn reports(&self, id: AllocationId, node: &str, report: RankReport) {
        let node = NodeId::new(node).unwrap();
        let attempt = self.core.view().allocation(id).unwrap().attempt;
        let command = Command::Report {
            id,
            attempt,
            node,
            report,
        };
        self.service(None, command);
        self.settled().await;
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.addr)
    }

    pub(super) fn token(&self, who: &str) -> String {
        let line = TOKENS
            .lines()
            .find(|l| l.contains(&format!("name: {who},")));
        let token = line.and_then(|l| l.split("token: ").nth(1)).unwrap();
        token.split([',', '}']).next().unwrap().to_owned()
    }

    pub(super) fn client(&self, who: &str) -> Client {
        Client::new(Endpoint {
            url: self.url(""),
            ca_pem: self.ca_pem.clone(),
            token: self.token(who).into(),
        })
        .unwrap()
    }

    /// HTTP client for requests that the SDK would never send.
    pub(super) fn raw(&self) -> reqwest::Client {
        self.raw_with(&["h2", "http/1.1"])
    }

    pub(super) fn raw_with(&self, alpn: &[&str]) -> reqwest::Client {
        reqwest::Client::builder()
            .tls_backend_preconfigured(client_tls(&self.ca_pem, alpn))
            .no_proxy()
            .build()
            .unwrap()
    }

    /// Submits `true` for `nodes` nodes.
    pub(super) async fn submit(&self, who: &str, project: &str, nodes: u32) -> AllocationId {
        let client = self.client(who);
        let options = SubmitOptions::default();
        let made = client.submit(&job(project, nodes), options).await;
        made.unwrap().id.unwrap()
    }
}

/// Command of an operator.
pub(super) fn operator_envelope(name: &str, command: Command) -> Envelope {
    Envelope {
        principal: Principal {
            name: name.to_owned(),
            privilege: Privilege::Operator,
        },
        ..service_envelope(None, command)
    }
}

/// Command of an administrator.
pub(super) fn admin_envelope(command: Command) -> Envelope {
    Envelope {
        principal: Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        },
        ..service_envelope(None, command)
    }
}

fn service_envelope(fence: Option<Fence>, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "service:control/c1".to_owned(),
            privilege: Privilege::Service,
        },
        key: None,
        at: SystemClock.now(),
        fence,
        command,
    }
}

/// TLS configuration that trusts only the fixture's certificate.
pub(super) fn client_tls(ca_pem: &str, alpn: &[&str]) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap();
    roots.add(certificate).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    tls
}

/// A request that is valid if the project exists.
pub(super) fn job(project: &str, nodes: u32) -> AllocationRequest {
    AllocationRequest {
        project: project.to_owned(),
        nodes,
        argv: vec!["true".to_owned()],
        env: BTreeMap::from([("SECRET".to_owned(), "s3cret".to_owned())]),
        walltime: Some("10m".to_owned()),
        ..AllocationRequest::default()
    }
}
