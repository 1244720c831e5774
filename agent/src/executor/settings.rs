//! Executor settings, and errors of opening an executor.

use super::identity::ids::AgentUser;
use super::identity::run_as::RunAs;
use super::identity::trusted::{self, DistrustCause};
use crate::attempt::{Hook, RankHooks, RecordError};
use crate::gpus::NodeGpus;
use crate::supervisor::{CgroupError, CgroupSettings};
use lattice_quorum_types::NodeId;
use std::path::PathBuf;
use std::time::Duration;

/// Time for which unproven orphans keep jobs away from the node. The limit exists because a user could start such
/// processes again and again.
pub const ORPHAN_HOLD: Duration = Duration::from_secs(60);

/// Policy for processes of an attempt without a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanPolicy {
    /// End the processes. If the attempt's cgroup proves them, report the attempt as lost when they have ended.
    #[default]
    End,
    /// Leave the processes alone and log them. The node takes no jobs until they have ended; if no cgroup proves the
    /// processes, for [`ORPHAN_HOLD`] at most.
    Report,
}

/// Settings of an executor.
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// Name of this node.
    pub node: NodeId,
    /// Folder of the attempts, the highest lease epoch, the last wipe and the output of node hooks.
    pub folder: PathBuf,
    /// Whether this node runs jobs; `false` for an agent that only observes.
    pub enabled: bool,
    /// Account selection for ranks.
    pub run_as: RunAs,
    /// Working directory of jobs that request none; `None`: the home directory of the job's account.
    pub working_dir: Option<PathBuf>,
    /// Site hooks: around ranks, and before the node returns to service.
    pub hooks: Hooks,
    /// Cgroups of ranks.
    pub cgroup: CgroupSettings,
    /// Policy for processes of an attempt without a record.
    pub orphans: OrphanPolicy,
    /// Time for which unproven orphan processes keep jobs away from the node.
    pub orphan_hold: Duration,
    /// Maximum number of bytes kept of each output stream of a rank.
    pub output_cap_bytes: u64,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Retention of an ended rank's output after control has its end.
    pub keep_output: Duration,
    /// Binary to execute as the supervisor: [`super::OWN_PROGRAM`], or, in tests, a binary that begins with
    /// [`crate::child::run_if_child`].
    pub program: PathBuf,
    /// GPUs of the node, for jobs that do not use all of them.
    pub gpus: NodeGpus,
    /// Checkpoint channel between supervisors and jobs.
    pub checkpoints: CheckpointSettings,
    /// Boot id of the machine: processes recorded under another boot id have ended.
    pub boot_id: String,
}

/// Checkpoint channel settings.
#[derive(Debug, Clone)]
pub struct CheckpointSettings {
    /// Folder for files and sockets that supervisors share with their jobs. Every user must be able to enter it, and
    /// only the agent's user may change it. A socket path is limited to 107 bytes.
    pub runtime_dir: PathBuf,
    /// Time between two reads of a job's checkpoint status.
    pub poll: Duration,
}

/// Hooks: executables of the site, run as the agent's user.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Hooks around each rank.
    pub rank: RankHooks,
    /// Runs before the node returns to service.
    pub health_gate: Option<Hook>,
    /// Site's declaration that a released node needs no wipe. Without it and without a wipe hook, a claimed node never
    /// returns to service automatically.
    pub nothing_to_wipe: bool,
}

impl Hooks {
    /// All configured hooks, each with its key in the configuration.
    fn all(&mut self) -> impl Iterator<Item = (&'static str, &mut Hook)> {
        let all = [
            ("prolog", &mut self.rank.prolog),
            ("epilog", &mut self.rank.epilog),
            ("wipe", &mut self.rank.wipe),
            ("health_gate", &mut self.health_gate),
        ];
        all.into_iter()
            .filter_map(|(key, hook)| Some((key, hook.as_mut()?)))
    }

    /// Hooks that [`Hooks::validate`] rejects, each with its key in the configuration. A relative path is left out: it is
    /// a mistake of the configuration itself.
    pub fn distrusted(mut self, agent: AgentUser) -> Vec<(&'static str, DistrustCause)> {
        self.all()
            .filter(|(_, hook)| hook.program.is_absolute())
            .filter_map(|(key, hook)| {
                Some((key, trusted::check_program(&hook.program, agent).err()?))
            })
            .collect()
    }

    /// Checks that each hook is an executable file that only root and `agent` can change. The result contains the
    /// resolved paths, so later changes of links on the way have no effect.
    pub fn validate(mut self, agent: AgentUser) -> Result<Self, OpenError> {
        for (key, hook) in self.all() {
            let real = trusted::check_program(&hook.program, agent);
            hook.program = real.map_err(|source| OpenError::Hook { key, source })?;
        }
        Ok(self)
    }
}

/// Reason that an executor does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The records of earlier attempts cannot be used.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// Cgroups are required and not usable.
    #[error("executor.cgroup is required")]
    Cgroup(#[from] CgroupError),
    /// A hook is not trusted.
    #[error("executor.hooks.{key}")]
    Hook {
        /// Configuration key of the hook.
        key: &'static str,
        /// Reason of the rejection.
        source: DistrustCause,
    },
}
