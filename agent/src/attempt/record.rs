//! Attempt records: the versioned files of an attempt.

use super::CheckpointPlan;
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::progress::ArrayElement;
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::{NodeId, Revision, UnixMillis};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Record format that this build writes.
pub const FORMAT: u32 = 1;

/// Text for an operator about a folder that [`super::foreign_write_access`] reports.
pub(crate) fn write_access_advice(path: &Path, uid: u32, mode: u32) -> String {
    let (path, own) = (path.display(), rustix::process::geteuid().as_raw());
    format!(
        "{path} belongs to uid {uid} and has mode {mode:04o}: users other than the agent's \
         (uid {own}) could change its contents. Check that all files in it are the agent's own, \
         then: chown {own} {path}; chmod go-w {path}"
    )
}

/// Error of reading or writing a file of an attempt.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file could not be read or written.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A user other than the agent's could place records into the folder.
    #[error("{}", write_access_advice(path, *uid, *mode))]
    OpenToOthers {
        /// Path of the folder.
        path: PathBuf,
        /// Uid of the owner.
        uid: u32,
        /// Permission bits.
        mode: u32,
    },
    /// The content is not what this build writes.
    #[error(
        "{} is corrupt: the record of that attempt is lost; kill the processes of the attempt, move \
         the attempt's folder away, and restart the agent",
        path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// The file of the highest lease epoch is corrupt.
    #[error(
        "{} is corrupt: the highest lease epoch is lost; check that only one control dispatches, \
         move this file away, and restart the agent (attempts are kept)",
        path.display()
    )]
    DamagedEpoch {
        /// Path of the file.
        path: PathBuf,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// The record of the node's last wipe is corrupt.
    #[error(
        "{} is corrupt: the state of the last wipe is lost; move this file away, restart the agent, \
         and wipe the node again if it was being released",
        path.display()
    )]
    DamagedWipe {
        /// Path of the file.
        path: PathBuf,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// The file has another format.
    #[error(
        "{} has format {found}; this version of Lattice reads format {FORMAT}; start the version that \
         wrote it",
        path.display()
    )]
    OtherFormat {
        /// Path of the file.
        path: PathBuf,
        /// Format found in the file.
        found: u32,
    },
}

/// Local account that a rank runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalUser {
    /// Account name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids; never root's.
    pub groups: Vec<u32>,
    /// Home folder.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

/// Hook: an executable of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Absolute path.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<String>,
    /// Timeout, milliseconds. On timeout the hook is killed and counts as failed.
    pub timeout_ms: u64,
    /// Environment variables in addition to those that the agent sets.
    pub env: BTreeMap<String, String>,
}

/// Hooks around a rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankHooks {
    /// Runs before the job.
    pub prolog: Option<Hook>,
    /// Runs after the job, whatever its result.
    pub epilog: Option<Hook>,
    /// Runs last, after a sensitive job.
    pub wipe: Option<Hook>,
}

/// Cgroup of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupRecord {
    /// Path of the cgroup.
    pub path: PathBuf,
    /// Whether the rank must not start without the cgroup.
    pub is_required: bool,
    /// `memory.max`, bytes.
    pub memory_max: Option<u64>,
    /// `cpuset.cpus`.
    pub cpus: Option<String>,
}

/// Vendor of a node's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuVendor {
    /// NVIDIA (CUDA).
    Nvidia,
    /// AMD (ROCm).
    Amd,
}

/// GPUs that a rank uses, of a node that has or may have more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuChoice {
    /// Vendor of the GPUs; `None` if it was unknown at the time of the selection.
    pub vendor: Option<GpuVendor>,
    /// Positions of the GPUs in PCI address order, from 0.
    pub slots: Vec<u32>,
    /// Ids in the vendor's runtime, in the same order; empty if the id of any GPU is unknown.
    pub uuids: Vec<String>,
}

/// Launch record: what a supervisor is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// Key of the attempt.
    pub key: AttemptKey,
    /// Lease epoch of the dispatcher.
    pub epoch: u64,
    /// Revision of the assignment.
    pub revision: Revision,
    /// Principal that submitted the allocation.
    pub user: String,
    /// Project of the allocation.
    pub project: String,
    /// Job name, if the request had one.
    #[serde(default)]
    pub name: Option<String>,
    /// Place of the allocation in a job array.
    #[serde(default)]
    pub element: Option<ArrayElement>,
    /// Nodes of the allocation in rank order, as control sent them.
    pub nodes: Vec<NodeId>,
    /// Name of this node.
    pub node: NodeId,
    /// Rank of this node.
    pub rank: u32,
    /// Script or command to run.
    pub workload: Workload,
    /// Longest run time, milliseconds.
    pub walltime_ms: Option<u64>,
    /// GPUs that the rank uses; `None`: all GPUs of the node.
    pub gpus: Option<GpuChoice>,
    /// Whether the wipe hook runs after the job.
    pub sensitive: bool,
    /// Hooks around the rank.
    pub hooks: RankHooks,
    /// Cgroup of the rank, if it has one.
    pub cgroup: Option<CgroupRecord>,
    /// How the job receives checkpoint requests; `None`: the job writes no checkpoints.
    pub checkpoint: Option<CheckpointPlan>,
    /// Account that the rank switches to; `None`: it stays the agent's user.
    pub become_user: Option<LocalUser>,
    /// Account that supplies home, shell and name for the environment.
    pub account: LocalUser,
    /// Maximum number of bytes kept of each output stream.
    pub output_cap_bytes: u64,
    /// Time between SIGTERM and SIGKILL, milliseconds.
    pub grace_ms: u64,
    /// Random text in the environment of every process of this attempt. It distinguishes these processes from all
    /// others on the machine, those of another agent included.
    pub mark: String,
    /// Boot id at the time of the record: no process of the attempt survives that boot.
    pub boot_id: String,
    /// Time of the record.
    pub recorded_at: UnixMillis,
}

/// Process of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorRecord {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// First process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedRecord {
    /// Start time.
    pub at: UnixMillis,
    /// Process id, also the session id and the process group id.
    pub pid: i32,
    /// Start time in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// Start that hangs: the job's first process or a hook has not reached its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartingRecord {
    /// Time at which the start began.
    pub since: UnixMillis,
    /// Last known step of the start, in words.
    pub at: String,
    /// Whether SIGKILL was sent and has not ended the process yet.
    pub is_killed: bool,
}

impl fmt::Display for StartingRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the start hangs at {}", self.at)?;
        if self.is_killed {
            f.write_str("; SIGKILL has not ended it: it is stuck in the kernel")?;
        }
        Ok(())
    }
}

impl LaunchRecord {
    /// Hooks that run after the job, by name and in order.
    pub fn hooks_after_job(&self) -> impl Iterator<Item = (HookName, &Hook)> {
        let wipe = self.hooks.wipe.as_ref().filter(|_| self.sensitive);
        let epilog = self.hooks.epilog.as_ref();
        let epilog = epilog.map(|hook| (HookName::Epilog, hook));
        epilog
            .into_iter()
            .chain(wipe.map(|hook| (HookName::Wipe, hook)))
    }
}

/// Kind of a hook: when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookName {
    /// Runs before the job.
    Prolog,
    /// Runs after the job.
    Epilog,
    /// Runs last, after a sensitive job.
    Wipe,
    /// Runs before a node returns to service.
    HealthGate,
}

impl HookName {
    /// Name of the hook in log files and in the hook's environment.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
            Self::Wipe => "wipe",
            Self::HealthGate => "health_gate",
        }
    }
}

/// Result of a rank or, while hooks are left to run, of its job. All processes of the job have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Time of the end.
    pub at: UnixMillis,
    /// Exit of the rank.
    pub exit: RankExit,
    /// Fault of the node after the job: a hook failed.
    pub fault: Option<String>,
}

impl ExitRecord {
    /// A result that leaves no fault on the node.
    pub fn new(at: UnixMillis, exit: RankExit) -> Self {
        Self {
            at,
            exit,
            fault: None,
        }
    }
}

/// Processes of an attempt that were found without a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanRecord {
    /// Time at which the processes were found.
    pub found_at: UnixMillis,
    /// Boot id under which the processes ran.
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

/// Encodes a record with its format version.
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

/// Reads a record; `None` if the file does not exist.
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
