//! Checked settings of an agent, and the external dependencies that a test or a demo replaces.

use crate::executor::{
    Accounts, AgentUser, CgroupSettings, CheckpointSettings, Hooks, Ids, OWN_PROGRAM, OrphanPolicy,
    RunAs, UserMap, UserMapError,
};
use crate::health::{HEALTH_INTERVAL, HealthSettings};
use crate::node::ProbeSettings;
use lattice_conformance::Schemas;
use lattice_gossip::CellName;
use lattice_hwprobe::Host;
use lattice_mesh::{Clock, Credentials, JoinToken, MeshConfig, Role, SystemClock};
use lattice_quorum_types::NodeId;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Default interval between two full probes.
///
/// Most changes cause an earlier read: the agent reads the node when it starts, and the kernel reports events of
/// devices and drivers. Firmware that is flashed without any of these usually takes effect at the next boot, so the
/// periodic read is a safety net. A full probe costs tens of milliseconds and starts a process that queries the GPU
/// driver: hence 4 probes per day, not 288.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Default delay before a difference is read a second time: long enough for a device under reset to return.
pub const CONFIRM_AFTER: Duration = Duration::from_secs(30);
/// Age up to which callers share one read. A read costs tens of milliseconds of a core, and starts a process that
/// queries the GPU driver.
pub const FRESH_FOR: Duration = Duration::from_secs(2);
/// Default of [`JobSettings::output_cap_bytes`], per rank and stream.
pub const OUTPUT_CAP_BYTES: u64 = 64 << 20;
/// Runtime folder of an agent that is root: files and sockets that supervisors share with jobs.
const RUNTIME_DIR: &str = "/run/lattice";
/// Default of [`JobSettings::checkpoint_poll`].
pub const CHECKPOINT_POLL: Duration = Duration::from_millis(100);
/// Default time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(30);
/// Default time for which the output of a rank stays readable after control has acknowledged the end: a job that ends
/// before a long weekend can be examined after it.
pub const KEEP_OUTPUT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Default lowest uid of job accounts: system accounts are below it on common distributions.
pub const MIN_UID: u32 = 1000;

/// All settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the node, equal to the name in its certificate.
    pub node: NodeId,
    /// UDP address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Data directory of the agent.
    pub data_dir: PathBuf,
    /// Mesh addresses of the controls: targets of reports, and the first seeds of the gossip cell.
    pub control: Vec<SocketAddr>,
    /// Mesh addresses of quorum members, tried in turn for enrolment and renewal.
    pub quorum: Vec<SocketAddr>,
    /// Enrolment. Not used while the data directory holds a valid certificate.
    pub join: Option<JoinSettings>,
    /// Topology group of the node, for clusters where control's own file does not define it.
    pub topology_group: Option<String>,
    /// Gossip settings.
    pub gossip: GossipSettings,
    /// Probe settings.
    pub probe: ProbeSettings,
    /// Health check settings.
    pub health: HealthSettings,
    /// Execution of jobs.
    pub executor: JobSettings,
}

/// Enrolment settings.
#[derive(Debug, Clone)]
pub struct JoinSettings {
    /// Join token: proof of permission; contains the pin of the CA.
    pub token: JoinToken,
    /// Whether to take over a node name that is already enrolled.
    pub replace: bool,
}

/// Gossip settings.
#[derive(Debug, Clone, Default)]
pub struct GossipSettings {
    /// Name of the gossip cell; `None`: the cell assigned at enrolment.
    pub cell: Option<CellName>,
    /// Agents to contact in addition to the controls.
    pub seeds: Vec<(SocketAddr, Role)>,
    /// Time between two rounds; `None`: the default of the gossip crate.
    pub interval: Option<Duration>,
    /// Address that peers use for this process; `None`: the listening address.
    pub advertise: Option<SocketAddr>,
}

/// Executor settings.
#[derive(Debug, Clone)]
pub struct JobSettings {
    /// Whether this node runs jobs.
    pub enabled: bool,
    /// Account that runs every job; `None`: the account of the submitter.
    pub run_as: Option<Ids>,
    /// The site's map from principals to accounts; see [`UserMap`].
    pub user_map: Option<PathBuf>,
    /// Whether an agent that is not root may run jobs as its own user.
    pub allow_same_user: bool,
    /// Lowest uid that jobs may run as; not checked for an agent that is not root.
    pub min_uid: u32,
    /// Working directory of jobs that request none; `None`: the home directory of the job's account.
    pub working_dir: Option<PathBuf>,
    /// Cgroups of ranks.
    pub cgroup: CgroupSettings,
    /// Policy for processes of an attempt without a record.
    pub orphans: OrphanPolicy,
    /// Site hooks: around ranks, and before the node returns to service.
    pub hooks: Hooks,
    /// Folder that supervisors share with jobs that write checkpoints. `None`: `/run/lattice` for root; for another
    /// user a folder in the data directory.
    pub runtime_dir: Option<PathBuf>,
    /// Time between two reads of a job's checkpoint status.
    pub checkpoint_poll: Duration,
    /// Maximum number of bytes kept of each output stream of a rank.
    pub output_cap_bytes: u64,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Time for which the output of a rank stays readable after control has acknowledged the end.
    pub keep_output: Duration,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            run_as: None,
            user_map: None,
            allow_same_user: false,
            min_uid: MIN_UID,
            working_dir: None,
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
    /// Default settings of an agent that probes `host`.
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
            executor: JobSettings::default(),
        }
    }

    pub(crate) fn checkpoints(&self, edges: &Dependencies, folder: &Path) -> CheckpointSettings {
        let usual = match edges.user.uid {
            0 => PathBuf::from(RUNTIME_DIR),
            _ => folder.join("run"),
        };
        CheckpointSettings {
            runtime_dir: self.executor.runtime_dir.clone().unwrap_or(usual),
            poll: self.executor.checkpoint_poll,
        }
    }

    pub(crate) fn run_as(&self, edges: &Dependencies) -> Result<RunAs, UserMapError> {
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

/// External dependencies of an agent, such as the clock, the local accounts and the supervisor's binary.
#[derive(Clone)]
pub struct Dependencies {
    /// Credentials to use as they are; `None`: load them from the data directory, or enrol.
    pub credentials: Option<Credentials>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Binary to execute as the supervisor. Its `main` must begin with [`crate::child::run_if_child`].
    pub program: PathBuf,
    /// Local accounts.
    pub accounts: Accounts,
    /// User that the agent runs as.
    pub user: AgentUser,
    /// Boot id of the machine that runs the processes.
    pub boot_id: String,
    /// Limits of the mesh.
    pub mesh: MeshConfig,
    /// Schema version that this build writes for each class. Tests set earlier or later versions.
    pub schemas: Schemas,
    /// Ends the wait of an enrolment for the rate limit of the quorum members.
    pub cancel_enrolment: CancellationToken,
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edges")
            .field("program", &self.program)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Dependencies {
    /// Dependencies of the production daemon: this machine and this process.
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
            cancel_enrolment: CancellationToken::new(),
        })
    }
}
