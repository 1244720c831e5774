//! Checked values an agent runs with, and the edges a test or a demo replaces.

use crate::executor::{
    Accounts, AgentUser, CgroupSettings, CheckpointSettings, Hooks, Ids, OWN_PROGRAM, OrphanPolicy,
    RunAs, UserMap, UserMapError,
};
use crate::health::{HEALTH_INTERVAL, HealthSettings};
use crate::node::ProbeSettings;
use lattice_gossip::CellName;
use lattice_hwprobe::{Host, Schemas};
use lattice_mesh::{Clock, Credentials, JoinToken, MeshConfig, Role, SystemClock};
use lattice_quorum_types::NodeId;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What changes a node makes itself heard: a boot and an agent's start are read at once, devices
/// and drivers are told of by the kernel. What is flashed without any of these counts from the next
/// boot on, as a rule. So the usual read is a safety net, and a full probe costs tens of
/// milliseconds and starts the driver's child: four times a day, not 288 times.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Long enough for a device that is being reset to come back.
pub const CONFIRM_AFTER: Duration = Duration::from_secs(30);
/// A read costs tens of milliseconds of a core, and starts the driver's child: many callers share
/// one.
pub const FRESH_FOR: Duration = Duration::from_secs(2);
/// What a node may cost in output per rank and stream, unless configured.
pub const OUTPUT_CAP_BYTES: u64 = 64 << 20;
/// Where an agent that is root keeps what supervisors share with jobs.
const RUNTIME_DIR: &str = "/run/lattice";
/// Default of [`WorkSettings::checkpoint_poll`].
pub const CHECKPOINT_POLL: Duration = Duration::from_millis(100);
/// Between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(30);
/// How long output stays readable after the end.
pub const KEEP_OUTPUT: Duration = Duration::from_secs(24 * 3600);
/// Where the system's accounts end on common distributions.
pub const MIN_UID: u32 = 1000;

/// Everything an agent is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's name; that of its certificate.
    pub node: NodeId,
    /// The UDP address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The agent's folder.
    pub data_dir: PathBuf,
    /// Mesh addresses of the controls: they are reported to, and asked first about the cell.
    pub control: Vec<SocketAddr>,
    /// Mesh addresses of quorum members, tried in turn: for enrolment and renewal.
    pub quorum: Vec<SocketAddr>,
    /// How to become a member. Not looked at while the data directory holds a certificate that
    /// counts.
    pub join: Option<JoinSettings>,
    /// The node's topology group, where control's own file does not say it.
    pub topology_group: Option<String>,
    /// Gossip.
    pub gossip: GossipSettings,
    /// Probing.
    pub probe: ProbeSettings,
    /// Health checks.
    pub health: HealthSettings,
    /// Running work.
    pub executor: WorkSettings,
}

/// How to enrol.
#[derive(Debug, Clone)]
pub struct JoinSettings {
    /// Proof of permission; carries the authority's pin.
    pub token: JoinToken,
    /// Take over a name that is enrolled already.
    pub replace: bool,
}

/// How to gossip.
#[derive(Debug, Clone, Default)]
pub struct GossipSettings {
    /// The cell; `None` is the one enrolment told.
    pub cell: Option<CellName>,
    /// Agents to ask besides the controls.
    pub seeds: Vec<(SocketAddr, Role)>,
    /// Between two rounds; `None` is gossip's own default.
    pub interval: Option<Duration>,
    /// Where others reach this process; `None` is where it listens.
    pub advertise: Option<SocketAddr>,
}

/// How to run work.
#[derive(Debug, Clone)]
pub struct WorkSettings {
    /// Whether work is run at all.
    pub enabled: bool,
    /// Everybody's work runs as this account; `None`: as the account of the submitter's name.
    pub run_as: Option<Ids>,
    /// The site's list of who is whom; see [`UserMap`].
    pub user_map: Option<PathBuf>,
    /// An agent that is not root may run work, as itself.
    pub allow_same_user: bool,
    /// Lower uids never run work.
    pub min_uid: u32,
    /// Whether ranks are put into cgroups.
    pub cgroup: CgroupSettings,
    /// What is done with processes of which nothing is recorded.
    pub orphans: OrphanPolicy,
    /// What the site runs around ranks, and before the node goes back into service.
    pub hooks: Hooks,
    /// Holds what supervisors share with jobs that write checkpoints; `None`: `/run/lattice` for root, and
    /// for another user a folder in the data directory.
    pub runtime_dir: Option<PathBuf>,
    /// Between two looks at what a job says of a checkpoint.
    pub checkpoint_poll: Duration,
    /// Most bytes kept of each output of a rank.
    pub output_cap_bytes: u64,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long the output of an ended rank stays readable.
    pub keep_output: Duration,
}

impl Default for WorkSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            run_as: None,
            user_map: None,
            allow_same_user: false,
            min_uid: MIN_UID,
            cgroup: CgroupSettings::default(),
            orphans: OrphanPolicy::default(),
            hooks: Hooks::default(),
            runtime_dir: None,
            checkpoint_poll: CHECKPOINT_POLL,
            output_cap_bytes: OUTPUT_CAP_BYTES,
            grace: GRACE,
            keep_output: KEEP_OUTPUT,
        }
    }
}

impl Settings {
    /// An agent with every default, probing `host`.
    pub fn new(node: NodeId, listen: SocketAddr, data_dir: PathBuf, host: Host) -> Self {
        Self {
            node,
            listen,
            data_dir,
            control: Vec::new(),
            quorum: Vec::new(),
            join: None,
            topology_group: None,
            gossip: GossipSettings::default(),
            health: HealthSettings {
                enabled: true,
                interval: HEALTH_INTERVAL,
                table: None,
                gpu_events: host.root.path() == Path::new("/"),
            },
            probe: ProbeSettings {
                device_events: host.root.path() == Path::new("/"),
                host,
                interval: PROBE_INTERVAL,
                confirm_after: CONFIRM_AFTER,
                fresh_for: FRESH_FOR,
            },
            executor: WorkSettings::default(),
        }
    }

    pub(crate) fn checkpoints(&self, edges: &Edges, folder: &Path) -> CheckpointSettings {
        let usual = match edges.user.uid {
            0 => PathBuf::from(RUNTIME_DIR),
            _ => folder.join("run"),
        };
        CheckpointSettings {
            runtime_dir: self.executor.runtime_dir.clone().unwrap_or(usual),
            poll: self.executor.checkpoint_poll,
        }
    }

    pub(crate) fn run_as(&self, edges: &Edges) -> Result<RunAs, UserMapError> {
        let map = self.executor.user_map.as_deref();
        let map = map
            .map(|path| UserMap::open(path, edges.user))
            .transpose()?;
        Ok(RunAs {
            agent: edges.user,
            fixed: self.executor.run_as,
            allow_same_user: self.executor.allow_same_user,
            min_uid: self.executor.min_uid,
            map: map.map(Arc::new),
            accounts: edges.accounts.clone(),
        })
    }
}

/// What an agent touches of the world.
#[derive(Clone)]
pub struct Edges {
    /// Given credentials are used as they are; `None` takes them from the data directory, or
    /// enrols.
    pub credentials: Option<Credentials>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Executed as the supervisor: a binary whose `main` begins with
    /// [`crate::child::run_if_child`].
    pub program: PathBuf,
    /// Local accounts.
    pub accounts: Accounts,
    /// Who the agent is.
    pub user: AgentUser,
    /// Boot id of the machine that processes run on.
    pub boot_id: String,
    /// Limits of the mesh.
    pub mesh: MeshConfig,
    /// What this build writes of each class; a test plays an earlier or a later one.
    pub schemas: Schemas,
}

impl std::fmt::Debug for Edges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edges")
            .field("program", &self.program)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Edges {
    /// This machine and this process.
    ///
    /// # Errors
    /// The kernel's boot id could not be read.
    pub fn system() -> std::io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self {
            credentials: None,
            clock: Arc::new(SystemClock),
            program: OWN_PROGRAM.into(),
            accounts: Accounts::system(),
            user: AgentUser::current(),
            boot_id: boot_id.trim().to_owned(),
            mesh: MeshConfig::default(),
            schemas: Schemas::SHIPPED,
        })
    }
}
