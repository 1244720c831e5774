//! Cluster fixture with all daemons in this process and real certificates: one quorum member, one control, two agents.

use lattice_cluster::{Administrator, AgentPlan, ClusterFounder, ControlPlan};
use lattice_engine::Core;
use lattice_hwprobe::{Host, NvmlSource};
use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal,
    VclusterName,
    limit::Limits,
    node::{Lifecycle, Node},
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    view::{Answer, LiveState, Query},
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

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// A certificate of `authority`, valid today.
pub fn credentials(authority: &Authority, cluster: &str, role: Role, id: &str) -> Credentials {
    Credentials::issued_now(authority, cluster, role, id, DAY).unwrap()
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

pub struct ClusterFixture {
    pub authority: Arc<Authority>,
    pub quorum: lattice_quorum::App,
    pub control: lattice_control::App,
    pub agents: Vec<lattice_agent::App>,
    /// Administrator that proposes to the quorum as through a control.
    pub administrator: Administrator,
    keys: AtomicU64,
    folder: tempfile::TempDir,
}

impl ClusterFixture {
    pub async fn found() -> Self {
        let authority = authority();
        let folder = tempfile::tempdir().unwrap();
        lattice_tests::open_to_others(folder.path());
        let founder = ClusterFounder {
            cluster: CLUSTER.to_owned(),
            authority: authority.clone(),
            lifetime: DAY,
            gossip_interval: Duration::from_millis(100),
            bind_timeout: Duration::ZERO,
        };
        let members = founder.start_members(1, folder.path(), |_| {}).await;
        let quorum = members.unwrap().remove(0);
        let members = vec![quorum.addr()];
        let control = start_control(&founder, &members).await;
        let administrator = founder.administrator("root", "desk", members).unwrap();
        let mut agents = Vec::new();
        for name in ["n1", "n2"] {
            let data = folder.path().join(name);
            agents.push(start_agent(&founder, name, data, &control).await);
        }
        Self {
            authority,
            administrator,
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

    /// Proposes a command as administrator.
    pub async fn propose(&self, command: Command) -> Result<Outcome, Refusal> {
        let n = self.keys.fetch_add(1, Ordering::Relaxed);
        let key = Some(format!("desk-{n}"));
        let proposed = self.administrator.propose(key, command).await;
        proposed.unwrap().map(|applied| applied.outcome)
    }

    pub fn envelope(&self, command: Command, key: Option<String>) -> Envelope {
        self.administrator.envelope(key, command)
    }

    async fn read(&self, query: Query) -> Answer {
        self.administrator.client().read(query).await.unwrap()
    }

    pub async fn hot(&self) -> LiveState {
        match self.read(Query::Hot).await {
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
        match self.read(Query::Allocation { id }).await {
            Answer::Allocation(Some(found)) => *found,
            other => panic!("{other:?}"),
        }
    }

    /// Creates a project with large limits and submits a job on one node. The job runs until `folder/go` exists and
    /// exits with 7.
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
        // The project may exist from an earlier job.
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

    /// Waits until both nodes are ready, so that their records no longer change, and control reaches their agents.
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
        self.administrator.close().await;
    }
}

async fn start_control(founder: &ClusterFounder, members: &[SocketAddr]) -> lattice_control::App {
    let web = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let plan = ControlPlan {
        name: "c1",
        cells: vec![CELL.parse().unwrap()],
        certificate_pem: &web.cert.pem(),
        key_pem: &web.signing_key.serialize_pem(),
        administrator: ("root", "0123456789abcdef0123456789abcdef"),
    };
    let mut control = founder.bind_control(plan, |_| {}).await.unwrap();
    control.start(members.to_vec()).await.unwrap();
    control
}

async fn start_agent(
    founder: &ClusterFounder,
    name: &str,
    data_dir: PathBuf,
    control: &lattice_control::App,
) -> lattice_agent::App {
    let plan = AgentPlan {
        node: node(name),
        cell: CELL.parse().unwrap(),
        host: Host::new("/", NvmlSource::Disabled),
        data_dir,
        controls: vec![control.mesh_addr()],
        join: None,
    };
    let edit = |_: &mut lattice_agent::Settings, edges: &mut lattice_agent::Dependencies| {
        // Supervisors execute this program again, and a test program cannot be one.
        edges.program = lattice_tests::programs!().agent.into();
    };
    founder.start_agent(plan, edit).await.unwrap()
}
