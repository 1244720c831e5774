//! Cluster under test, and waiting for its state.

use lattice_client::{Client, Endpoint};
use lattice_cluster::{AgentPlan, ClusterFounder, ControlPlan, LOOPBACK};
use lattice_control::{App, Settings};
use lattice_engine::{Core, SchedulingConfig, Timings};
use lattice_hwprobe::{Host, NvmlSource};
use lattice_mesh::{Authority, Clock as _, SystemClock, Validity};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId, Outcome, ProjectPath, Refusal,
    VclusterName,
    command::{Principal, Privilege},
    limit::Limits,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    view::{Answer, Query},
};
use lattice_view::NodeEntry;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::timeout;

/// Longer than any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
const CLUSTER: &str = "test";
const CELL: &str = "c0";
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Default timings, shortened where a test would wait half a minute. A restarting agent on a busy machine must not
/// count as lost for long, nor may a suspect become unreachable before the test has checked it.
const TIMINGS: Timings = Timings {
    ping_every: Duration::from_millis(500),
    suspect_after: Duration::from_millis(2500),
    unreachable_after: Duration::from_secs(8),
    peer_check_every: Duration::from_millis(500),
    attempts_every: Duration::from_secs(3),
    reboot_grace: Duration::from_millis(500),
    min_exclusion: Duration::from_secs(3),
    gate_every: Duration::from_secs(1),
    checkpoints_every: Duration::from_secs(1),
    trust_every: Duration::from_secs(600),
};
const STOP_LOST_AFTER: Duration = Duration::from_secs(2);

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub struct ClusterFixture {
    pub founder: ClusterFounder,
    folder: TempDir,
    quorum: Vec<lattice_quorum::App>,
    pub control: Option<App>,
    /// A second control that agents know and that is not running yet.
    pub spare: Option<App>,
    /// Scheduling inputs of controls bound from now on.
    pub scheduling: SchedulingConfig,
    /// Accounting settings of controls bound from now on.
    pub accounting: Option<lattice_waldur::config::AccountingSettings>,
    /// Certificate and key of the public port, PEM.
    pub https: (String, String),
    pub agents: BTreeMap<NodeId, lattice_agent::App>,
    /// Boot id and gossiped address of each agent's last start.
    started: BTreeMap<NodeId, (String, SocketAddr)>,
}

impl ClusterFixture {
    /// A quorum and one control; no agents yet.
    pub async fn found() -> Self {
        let lifetime = Duration::from_secs(86_400);
        let validity = Validity::from_now(SystemClock.now(), lifetime);
        let founder = ClusterFounder {
            cluster: CLUSTER.to_owned(),
            authority: Arc::new(Authority::create(CLUSTER, validity).unwrap()),
            lifetime,
            gossip_interval: Duration::from_millis(200),
            // A control that was just stopped releases its port with its last call.
            bind_timeout: PATIENCE,
        };
        let folder = tempfile::tempdir().unwrap();
        // Ranks run as another user when the test runs as root.
        open_to_others(folder.path());
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = certificate.signing_key.serialize_pem();
        let mut cluster = Self {
            https: (certificate.cert.pem(), key),
            founder,
            folder,
            quorum: Vec::new(),
            control: None,
            spare: None,
            scheduling: SchedulingConfig::default(),
            accounting: None,
            agents: BTreeMap::new(),
            started: BTreeMap::new(),
        };
        let members = cluster
            .founder
            .start_members(3, cluster.folder.path(), |_| {})
            .await;
        cluster.quorum = members.unwrap();
        cluster.control = Some(cluster.new_control("c1", LOOPBACK).await);
        cluster.spare = Some(cluster.bind_control("c2", LOOPBACK).await);
        cluster
    }

    /// Stops the leading member permanently.
    pub async fn stop_leader(&mut self) {
        let agreed = async {
            loop {
                let known = self.quorum.iter().map(|app| app.status().unwrap());
                let known: Vec<_> = known.map(|status| (status.id, status.leader)).collect();
                let leads = |id| known.iter().all(|(_, leader)| *leader == Some(id));
                if let Some(at) = known.iter().position(|(id, _)| leads(*id)) {
                    return at;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let at = timeout(PATIENCE, agreed).await.unwrap();
        self.quorum.remove(at).stop().await;
    }

    pub fn members(&self) -> Vec<SocketAddr> {
        self.quorum.iter().map(lattice_quorum::App::addr).collect()
    }

    /// Data directory of one process.
    pub fn part(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        open_to_others(&path);
        path
    }

    /// An agent's own directory, which the agent creates: one that others may write to is refused.
    pub fn agent_folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("agent-{name}"))
    }

    /// Client of the public port with this token.
    pub fn client(&self, token: &str) -> Client {
        let control = self.control.as_ref().unwrap();
        Client::new(Endpoint {
            url: format!("https://{}", control.https_addr()),
            ca_pem: self.https.0.clone(),
            token: token.into(),
        })
        .unwrap()
    }

    /// HTTP client for requests that the SDK does not offer.
    pub fn raw(&self) -> reqwest::Client {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(self.https.0.as_bytes()).unwrap();
        roots.add(certificate).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring);
        let tls = tls.with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls);
        client.no_proxy().build().unwrap()
    }

    /// Starts a control of this cluster.
    pub async fn new_control(&self, name: &str, listen: SocketAddr) -> App {
        let mut control = self.bind_control(name, listen).await;
        control.start(self.members()).await.unwrap();
        control
    }

    async fn bind_control(&self, name: &str, listen: SocketAddr) -> App {
        let plan = ControlPlan {
            name,
            cells: vec![CELL.parse().unwrap()],
            certificate_pem: &self.https.0,
            key_pem: &self.https.1,
            administrator: ("root", TOKEN),
        };
        let edit = |settings: &mut Settings| {
            settings.listen = listen;
            settings.timings = TIMINGS;
            settings.scheduling = self.scheduling.clone();
            settings.accounting = self.accounting.clone();
            settings.stop_lost_after = Some(STOP_LOST_AFTER);
        };
        self.founder.bind_control(plan, edit).await.unwrap()
    }

    /// Starts the agent of a captured host, new or with its previous directory.
    pub async fn start_agent(
        &mut self,
        name: &str,
        edit: impl FnOnce(&mut lattice_agent::Settings),
    ) {
        self.start_agent_with(name, edit, |_| {}).await;
    }

    /// Like [`ClusterFixture::start_agent`], with modified edges as well.
    pub async fn start_agent_with(
        &mut self,
        name: &str,
        edit: impl FnOnce(&mut lattice_agent::Settings),
        edit_edges: impl FnOnce(&mut lattice_agent::Dependencies),
    ) {
        let controls = [&self.control, &self.spare].into_iter().flatten();
        let plan = AgentPlan {
            node: node(name),
            cell: CELL.parse().unwrap(),
            host: captured(name),
            data_dir: self.agent_folder(name),
            controls: controls.map(App::mesh_addr).collect(),
            join: None,
        };
        let (mut advertised, mut boot) = (None, String::new());
        let edit = |settings: &mut lattice_agent::Settings,
                    edges: &mut lattice_agent::Dependencies| {
            settings.topology_group = Some("g0".to_owned());
            settings.executor.grace = Duration::from_secs(5);
            edit(settings);
            edit_edges(edges);
            advertised = settings.gossip.advertise;
            boot.clone_from(&edges.boot_id);
        };
        let agent = self.founder.start_agent(plan, edit).await.unwrap();
        let at = advertised.unwrap_or_else(|| agent.addr());
        self.started.insert(node(name), (boot, at));
        self.agents.insert(node(name), agent);
    }

    /// Whether the entry reflects the last start of the agent, not an earlier one.
    pub fn is_current(&self, entry: &NodeEntry) -> bool {
        self.started.get(&entry.id).is_some_and(|(boot, at)| {
            entry.boot.as_ref() == Some(boot)
                && entry.gossip.as_ref().is_some_and(|seen| seen.addr == *at)
        })
    }

    pub async fn stop_agent(&mut self, name: &str) {
        self.agents.remove(&node(name)).unwrap().stop().await;
    }

    /// Time until an allocation on an unreachable node is stopped.
    pub fn lost_within(&self) -> Duration {
        TIMINGS.unreachable_after + STOP_LOST_AFTER
    }

    pub fn core(&self) -> Arc<Core> {
        self.control.as_ref().unwrap().core().unwrap()
    }

    pub async fn stop(mut self) {
        let agents = std::mem::take(&mut self.agents).into_values();
        futures::future::join_all(agents.map(lattice_agent::App::stop)).await;
        if let Some(control) = self.control.take() {
            control.stop().await;
        }
        for member in std::mem::take(&mut self.quorum) {
            member.stop().await;
        }
    }

    pub async fn admin(&self, command: Command) -> Outcome {
        let principal = Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        };
        let proposed = self.core().propose(principal, None, command).await;
        proposed.unwrap().outcome
    }

    /// Starts an agent with this name and waits until its node accepts jobs.
    pub async fn serves(&mut self, name: &str) {
        self.start_agent(name, |_| {}).await;
        shows(&self.core(), "a node in service", |view| {
            let entry = view.node(&node(name))?;
            entry.record.as_ref()?.is_assignable().then_some(())
        })
        .await;
    }

    pub async fn create_project(&self, path: &str, max_nodes: u64) {
        let command = Command::CreateProject {
            path: ProjectPath::new(path).unwrap(),
            limits: Some(Limits {
                max_nodes: Some(max_nodes),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        };
        self.admin(command).await;
    }

    /// Submits a script for `nodes` nodes, as an administrator.
    pub async fn submit(&self, nodes: u32, script: &str) -> AllocationId {
        match self.admin(submit(nodes, script)).await {
            Outcome::Submitted { id } => id,
            other => panic!("{other:?}"),
        }
    }

    /// Allocation record from the quorum.
    pub async fn allocation(&self, id: AllocationId) -> Allocation {
        match self.core().read(Query::Allocation { id }).await.unwrap() {
            Answer::Allocation(Some(found)) => *found,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until an allocation is in one of these states.
    pub async fn reaches(&self, id: AllocationId, states: &[AllocationState]) -> Allocation {
        let core = self.core();
        let mut changes = core.subscribe(None);
        let wait = async {
            loop {
                let found = self.allocation(id).await;
                if states.contains(&found.state) {
                    return found;
                }
                changes.next().await;
            }
        };
        match timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => {
                let view = core.view();
                let why = view.allocation(id).and_then(|of| view.plan.explanation(of));
                panic!(
                    "allocation {id} did not reach {states:?}: {:?}; {:?}",
                    self.allocation(id).await,
                    why.map(|why| why.to_string())
                )
            }
        }
    }
}

/// Request for `nodes` nodes that runs a script.
pub fn submit(nodes: u32, script: &str) -> Command {
    Command::Submit {
        spec: Box::new(AllocationSpec {
            name: None,
            project: ProjectPath::new("atlas/web").unwrap(),
            vcluster: VclusterName::new("default").unwrap(),
            nodes,
            workload: Workload {
                script: Some(script.to_owned()),
                ..Workload::default()
            },
            walltime_ms: Some(600_000),
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::Never,
            hold: false,
            demand: Default::default(),
            terms: Default::default(),
        }),
    }
}

/// Waits until the view satisfies a condition.
pub async fn shows<T>(
    core: &Arc<Core>,
    what: &str,
    mut found: impl FnMut(&lattice_view::View) -> Option<T>,
) -> T {
    let mut changes = core.subscribe(None);
    let wait = async {
        loop {
            if let Some(value) = found(&core.view()) {
                return value;
            }
            changes.next().await;
        }
    };
    match timeout(PATIENCE, wait).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come about: {:#?}", core.view()),
    }
}

pub fn refused(error: lattice_engine::ProposeError) -> Refusal {
    match error {
        lattice_engine::ProposeError::Refused(refusal) => refusal,
        lattice_engine::ProposeError::Unavailable(other) => panic!("{other}"),
    }
}

/// A host tree of the fixtures, with its GPUs simulated by the fake driver.
fn captured(name: &str) -> Host {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/hosts")
        .join(name);
    let library = lattice_fake_nvml::library_path().unwrap();
    let program = std::env::current_exe().unwrap();
    let nvml = NvmlSource::child(program, Some(&library))
        .with_env(lattice_fake_nvml::DESCRIPTION_ENV, root.join("nvml.json"));
    Host::new(root, nvml)
}

fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
}
