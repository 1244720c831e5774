//! Interfaces of a control on loopback: real TLS, real sockets, the real state machine behind the store (one copy
//! instead of three), and an agent's interface on the mesh.

mod agent;
mod commands;
mod handler_state;
mod requests;

use crate::{Auth, Stores, oidc::Issuer};
use agent::{Gate, HealthAnswer, Inventoried, StateHook, agent_router, sound};
use handler_state::stores;
use lattice_engine::{
    Core,
    core::Parts,
    fold,
    node_records::NodeRecords,
    tasks::{
        scheduler_parts::{PlanningTurns, SchedulerParts},
        testing::store::SingleCopy,
    },
};
use lattice_mesh::{
    Authority, Clock, Credentials, Mesh, MeshConfig, Pin, Role, SystemClock, Validity,
};
use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpSocket, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(super) use commands::{admin_envelope, operator_envelope};
pub(super) use handler_state::api_of;
pub(super) use requests::{ask, client_tls, job};

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

impl Drop for ApiFixture {
    fn drop(&mut self) {
        self.stop.cancel();
        self.folding.abort();
        if !std::thread::panicking() {
            super::documented::check_all_documented();
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

pub(super) fn server_tls() -> (Arc<rustls::ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let identity = crate::HttpsIdentity {
        chain: vec![made.cert.der().clone()],
        key,
    };
    (identity.into_server_config().unwrap(), made.cert.pem())
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
        let answers = (health.clone(), inventory.clone());
        let router = agent_router(gate.clone(), answers, meanwhile.clone(), store.clone());
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
}
