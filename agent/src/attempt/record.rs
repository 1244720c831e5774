//! The versioned files of an attempt.

use super::CheckpointPlan;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::wire::AttemptKey;
use lattice_quorum_types::{NodeId, Revision, UnixMillis};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Format written by this build.
pub const FORMAT: u32 = 1;

/// What is to be done about a folder that [`super::others_may_write`].
pub(crate) fn open_to_others(path: &Path, uid: u32, mode: u32) -> String {
    let (path, own) = (path.display(), rustix::process::geteuid().as_raw());
    format!(
        "{path} belongs to uid {uid} and has mode {mode:04o}: others than the agent's user (uid \
         {own}) could change what is in it. See that nothing in it is somebody else's, then: chown \
         {own} {path}; chmod go-w {path}"
    )
}

/// Why a file of an attempt cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It could not be read or written.
    #[error("{}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody beside the agent's user could put records into it.
    #[error("{}", open_to_others(path, *uid, *mode))]
    OpenToOthers {
        /// Which folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// It is not what this build writes.
    #[error(
        "{} is damaged: what this node knows of that attempt is lost; end its processes, then move \
         the attempt's folder away and start the agent again",
        path.display()
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The highest epoch is not what this build writes.
    #[error(
        "{} is damaged: which dispatchers are over is not known any more; see that only one control \
         leads, then move this file away and start the agent again (attempts are kept)",
        path.display()
    )]
    DamagedEpoch {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// What was written down of the node's last wipe cannot be read.
    #[error(
        "{} is damaged: whether the node was wiped is not known any more; move this file away and \
         start the agent again, and have the node wiped again if it was being released",
        path.display()
    )]
    DamagedWipe {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The file has another format.
    #[error(
        "{} has format {found}; this version of Lattice reads format {FORMAT}; start the version that \
         wrote it",
        path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
    },
}

/// The local account that a rank runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalUser {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its supplementary groups; never root's.
    pub groups: Vec<u32>,
    /// Its home folder.
    pub home: PathBuf,
    /// Its shell.
    pub shell: PathBuf,
}

/// A site's executable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Its absolute path.
    pub program: PathBuf,
    /// What it is given.
    pub args: Vec<String>,
    /// How long it has, milliseconds; then it is killed and has failed.
    pub timeout_ms: u64,
    /// Its environment, besides ours.
    pub env: BTreeMap<String, String>,
}

/// What the site runs around a rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankHooks {
    /// Before the job.
    pub prolog: Option<Hook>,
    /// After it, however it ended.
    pub epilog: Option<Hook>,
    /// Last, where the work was sensitive.
    pub wipe: Option<Hook>,
}

/// A rank's cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupRecord {
    /// Where it is.
    pub path: PathBuf,
    /// Without it nothing is started.
    pub is_required: bool,
    /// `memory.max`, bytes.
    pub memory_max: Option<u64>,
    /// `cpuset.cpus`.
    pub cpus: Option<String>,
}

/// What the vendor of a node's GPUs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuVendor {
    /// CUDA.
    Nvidia,
    /// ROCm.
    Amd,
}

/// The GPUs that a rank uses, of a node that has more or may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuChoice {
    /// Whose they are; `None` where that was not known when they were chosen.
    pub vendor: Option<GpuVendor>,
    /// Their ranks by PCI address, from 0.
    pub slots: Vec<u32>,
    /// What the vendor's runtime calls them, in the same order; empty where that is not known of all.
    pub uuids: Vec<String>,
}

/// What a supervisor is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// Which attempt.
    pub key: AttemptKey,
    /// Epoch of the dispatcher.
    pub epoch: u64,
    /// Revision of the assignment.
    pub revision: Revision,
    /// Who submitted it.
    pub user: String,
    /// Its project.
    pub project: String,
    /// All nodes in rank order.
    pub nodes: Vec<NodeId>,
    /// This node.
    pub node: NodeId,
    /// This node's rank.
    pub rank: u32,
    /// What to run.
    pub workload: Workload,
    /// Longest run time, milliseconds.
    pub walltime_ms: Option<u64>,
    /// The GPUs it uses; `None`: all there are.
    pub gpus: Option<GpuChoice>,
    /// Its traces are wiped.
    pub sensitive: bool,
    /// What the site runs around it.
    pub hooks: RankHooks,
    /// Its cgroup, where there is one.
    pub cgroup: Option<CgroupRecord>,
    /// How it is told to write checkpoints; `None`: it cannot.
    pub checkpoint: Option<CheckpointPlan>,
    /// Whom to become; `None`: stay who the agent is.
    pub become_user: Option<LocalUser>,
    /// The account's home, shell and name for the environment.
    pub account: LocalUser,
    /// Most bytes kept of each output.
    pub output_cap_bytes: u64,
    /// Between SIGTERM and SIGKILL, milliseconds.
    pub grace_ms: u64,
    /// A random text in the environment of every process of this attempt: tells them from all
    /// others on the machine, those of another agent included.
    pub mark: String,
    /// The boot during which it was recorded: after another one no process of it is left.
    pub boot_id: String,
    /// When it was recorded.
    pub recorded_at: UnixMillis,
}

/// The supervisor's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorRecord {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// The job's first process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedRecord {
    /// When it was started.
    pub at: UnixMillis,
    /// Process id, also its session and process group.
    pub pid: i32,
    /// Start time in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// A process that is being started, the job's first one or a hook, hangs on its way to its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartingRecord {
    /// When its start began.
    pub since: UnixMillis,
    /// What it was at last, in words.
    pub at: String,
    /// SIGKILL was sent, and has not ended it yet.
    pub is_killed: bool,
}

impl fmt::Display for StartingRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its start hangs at {}", self.at)?;
        if self.is_killed {
            f.write_str("; SIGKILL has not ended it: it is stuck in the kernel")?;
        }
        Ok(())
    }
}

impl LaunchRecord {
    /// What the site runs after it, by name and in order.
    pub fn finishing(&self) -> impl Iterator<Item = (HookName, &Hook)> {
        let wipe = self.hooks.wipe.as_ref().filter(|_| self.sensitive);
        let epilog = self.hooks.epilog.as_ref();
        let epilog = epilog.map(|hook| (HookName::Epilog, hook));
        epilog
            .into_iter()
            .chain(wipe.map(|hook| (HookName::Wipe, hook)))
    }
}

/// When a site's executable runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookName {
    /// Before the job.
    Prolog,
    /// After it.
    Epilog,
    /// Last, where the work was sensitive.
    Wipe,
    /// Before a node goes back into service.
    HealthGate,
}

impl HookName {
    /// As people and executables know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
            Self::Wipe => "wipe",
            Self::HealthGate => "health_gate",
        }
    }
}

/// How a rank ended; every process of it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// When.
    pub at: UnixMillis,
    /// How.
    pub exit: RankExit,
    /// What is wrong with the node since: a hook failed.
    pub fault: Option<String>,
}

impl ExitRecord {
    /// An end after which the node is as it was.
    pub fn new(at: UnixMillis, exit: RankExit) -> Self {
        Self {
            at,
            exit,
            fault: None,
        }
    }
}

/// Processes of an attempt were found of which nothing was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanRecord {
    /// When.
    pub found_at: UnixMillis,
    /// The boot they ran under.
    pub boot_id: String,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

#[derive(Deserialize)]
struct OnlyVersion {
    version: u32,
}

/// The bytes of a record.
pub(super) fn encode<T: Serialize>(path: &Path, body: &T) -> Result<Vec<u8>, RecordError> {
    let versioned = Versioned {
        version: FORMAT,
        body,
    };
    serde_json::to_vec(&versioned).map_err(|source| RecordError::Damaged {
        path: path.to_owned(),
        source,
    })
}

/// Reads a record; `None` when there is none.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RecordError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(RecordError::Io {
                path: path.to_owned(),
                source,
            });
        }
    };
    let damaged = |source| RecordError::Damaged {
        path: path.to_owned(),
        source,
    };
    let OnlyVersion { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if version != FORMAT {
        return Err(RecordError::OtherFormat {
            path: path.to_owned(),
            found: version,
        });
    }
    let versioned: Versioned<T> = serde_json::from_slice(&bytes).map_err(damaged)?;
    Ok(Some(versioned.body))
}
