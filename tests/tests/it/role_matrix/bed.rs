//! Every daemon in this process, with real certificates: one quorum member, one control, two
//! agents.

use lattice_agent::executor::{AgentUser, Ids};
use lattice_control::{CellSettings, Core, HttpsIdentity};
use lattice_hwprobe::{Host, NvmlSource};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Identity, Mesh, MeshConfig, Role, SystemClock, Validity,
};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal,
    VclusterName,
    command::{Power, Principal, SCHEMA},
    limit::Limits,
    node::{Lifecycle, Node},
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    view::{Answer, Hot, Query},
};
use lattice_tests::wait::eventually;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub const CLUSTER: &str = "test";
pub const CELL: &str = "c0";
pub const DAY: Duration = Duration::from_secs(86_400);

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// A certificate of `authority` that holds today.
pub fn credentials(authority: &Authority, cluster: &str, role: Role, id: &str) -> Credentials {
    let validity = Validity::from_now(SystemClock.now(), DAY);
    valid(authority, cluster, role, id, validity)
}

pub fn valid(
    authority: &Authority,
    cluster: &str,
    role: Role,
    id: &str,
    validity: Validity,
) -> Credentials {
    let identity = Identity::new(cluster, role, id).unwrap();
    Credentials::issued_by(authority, &identity, validity).unwrap()
}

pub fn authority() -> Arc<Authority> {
    let validity = Validity::from_now(SystemClock.now(), DAY);
    Arc::new(Authority::create(CLUSTER, validity).unwrap())
}

pub struct Bed {
    pub authority: Arc<Authority>,
    pub quorum: lattice_quorum::App,
    pub control: lattice_control::App,
    pub agents: Vec<lattice_agent::App>,
    /// Speaks to the quorum as an administrator would through a control.
    pub desk: QuorumClient,
    desk_mesh: Mesh,
    keys: AtomicU64,
    folder: tempfile::TempDir,
}

impl Bed {
    pub async fn found() -> Self {
        let authority = authority();
        let folder = tempfile::tempdir().unwrap();
        lattice_tests::open_to_others(folder.path());
        let own = |role, id| credentials(&authority, CLUSTER, role, id);
        let quorum = start_quorum(&authority, folder.path().join("quorum")).await;
        let members = vec![quorum.addr()];
        let control = start_control(own(Role::Control, "c1"), &members).await;
        let desk_mesh = Mesh::bind(
            loopback(),
            own(Role::Control, "desk"),
            MeshConfig::default(),
        )
        .unwrap();
        let mut agents = Vec::new();
        for name in ["n1", "n2"] {
            let data = folder.path().join(name);
            agents.push(start_agent(name, own(Role::Agent, name), data, &control).await);
        }
        Self {
            authority,
            desk: QuorumClient::new(desk_mesh.clone(), members),
            desk_mesh,
            quorum,
            control,
            agents,
            keys: AtomicU64::new(0),
            folder,
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub fn core(&self) -> Arc<Core> {
        self.control.core().unwrap()
    }

    /// As an administrator.
    pub async fn propose(&self, command: Command) -> Result<Outcome, Refusal> {
        let n = self.keys.fetch_add(1, Ordering::Relaxed);
        let envelope = self.envelope(command, Some(format!("desk-{n}")));
        self.desk
            .propose(envelope)
            .await
            .unwrap()
            .map(|applied| applied.outcome)
    }

    pub fn envelope(&self, command: Command, key: Option<String>) -> Envelope {
        Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "root".to_owned(),
                power: Power::Admin,
            },
            key,
            at: SystemClock.now(),
            fence: None,
            command,
        }
    }

    pub async fn hot(&self) -> Hot {
        match self.desk.read(Query::Hot).await.unwrap() {
            Answer::Hot(hot) => *hot,
            other => panic!("{other:?}"),
        }
    }

    pub async fn node(&self, name: &str) -> Node {
        let hot = self.hot().await;
        hot.nodes
            .into_iter()
            .find(|n| n.id.as_str() == name)
            .unwrap()
    }

    pub async fn allocation(&self, id: AllocationId) -> Allocation {
        match self.desk.read(Query::Allocation { id }).await.unwrap() {
            Answer::Allocation(Some(found)) => *found,
            other => panic!("{other:?}"),
        }
    }

    /// A project in which anything fits, and a job on one node that runs until `folder/go` is
    /// there; it ends with 7.
    pub async fn job_on(&self, name: &str, script: &str) -> AllocationId {
        let path = ProjectPath::new("atlas").unwrap();
        let project = Command::CreateProject {
            path: path.clone(),
            limits: Some(Limits {
                max_nodes: Some(100),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        };
        // There from the job before, perhaps.
        let _ = self.propose(project).await;
        let spec = AllocationSpec {
            name: None,
            project: path,
            vcluster: VclusterName::new("default").unwrap(),
            nodes: 1,
            workload: Workload {
                script: Some(script.to_owned()),
                ..Workload::default()
            },
            walltime_ms: Some(600_000),
            class: 5,
            sensitive: false,
            constraints: Constraints {
                nodelist: vec![node(name)],
                ..Constraints::default()
            },
            requeue: Requeue::Never,
            hold: false,
            demand: Default::default(),
            terms: Default::default(),
        };
        let submit = Command::Submit {
            spec: Box::new(spec),
        };
        match self.propose(submit).await.unwrap() {
            Outcome::Submitted { id } => id,
            other => panic!("{other:?}"),
        }
    }

    /// Both nodes are accepted for work, so that their records stay as they are, and control
    /// reaches their agents.
    pub async fn is_ready(&self) {
        use lattice_placement::Liveness;
        let core = self.core();
        eventually("both nodes are ready and alive", || async {
            let view = core.view();
            let is_ready = |name: &&str| {
                let entry = view.node(&node(name));
                let is_accepted = |node: &Node| node.lifecycle == Lifecycle::Ready;
                entry.is_some_and(|e| {
                    e.record.as_ref().is_some_and(is_accepted) && e.liveness == Liveness::Alive
                })
            };
            ["n1", "n2"].iter().all(is_ready).then_some(())
        })
        .await;
    }

    pub async fn stop(self) {
        for agent in self.agents {
            agent.stop().await;
        }
        self.control.stop().await;
        self.quorum.stop().await;
        self.desk_mesh.shutdown(Duration::from_millis(100)).await;
    }
}

async fn start_quorum(authority: &Arc<Authority>, data: PathBuf) -> lattice_quorum::App {
    std::fs::create_dir(&data).unwrap();
    let settings = lattice_quorum::Settings::new(CLUSTER, 1, loopback(), data);
    let edges = lattice_quorum::Edges {
        credentials: credentials(authority, CLUSTER, Role::Quorum, "1"),
        authority: Some(authority.clone()),
        clock: Arc::new(SystemClock),
    };
    let mut quorum = lattice_quorum::App::bind(settings, edges).await.unwrap();
    let members = vec![(1, quorum.addr())];
    quorum.start(members).await.unwrap();
    quorum
}

async fn start_control(own: Credentials, members: &[SocketAddr]) -> lattice_control::App {
    let mut settings = lattice_control::Settings::new(CLUSTER, loopback(), loopback());
    settings.auto_register = true;
    settings.gossip_interval = Some(Duration::from_millis(100));
    settings.cells = vec![CellSettings {
        name: CELL.parse().unwrap(),
        seeds: Vec::new(),
    }];
    let web = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let token = "0123456789abcdef0123456789abcdef";
    let edges = lattice_control::Edges {
        credentials: own,
        clock: Arc::new(SystemClock),
        https: HttpsIdentity::from_pem(&web.cert.pem(), &web.signing_key.serialize_pem()).unwrap(),
        tokens: format!("tokens: [{{name: root, role: admin, token: {token}}}]").into(),
    };
    let mut control = lattice_control::App::bind(settings, edges).await.unwrap();
    control.start(members.to_vec()).await.unwrap();
    control
}

async fn start_agent(
    name: &str,
    own: Credentials,
    data: PathBuf,
    control: &lattice_control::App,
) -> lattice_agent::App {
    let host = Host::new("/", NvmlSource::Disabled);
    let mut settings = lattice_agent::Settings::new(node(name), loopback(), data, host);
    settings.control = vec![control.mesh_addr()];
    settings.gossip.cell = Some(CELL.parse().unwrap());
    settings.gossip.interval = Some(Duration::from_millis(100));
    settings.executor.allow_same_user = true;
    settings.executor.run_as = (AgentUser::current().uid == 0).then_some(Ids {
        uid: 65534,
        gid: 65534,
    });
    let mut edges = lattice_agent::Edges::system().unwrap();
    edges.credentials = Some(own);
    // Supervisors are this program executed again; a test is not fit to be one.
    edges.program = lattice_tests::programs!().agent.into();
    let mut agent = lattice_agent::App::bind(settings, edges).await.unwrap();
    agent.start().await.unwrap();
    agent
}
