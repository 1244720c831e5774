//! What an executor is told, and why it does not open.

use super::ids::AgentUser;
use super::orphans::OrphanPolicy;
use super::run_as::RunAs;
use super::trusted::{self, Untrusted};
use crate::attempt::{Hook, RankHooks, RecordError};
use crate::gpus::NodeGpus;
use crate::supervisor::{CgroupError, CgroupSettings};
use lattice_quorum_types::NodeId;
use std::path::PathBuf;
use std::time::Duration;

/// What an executor is told.
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// This node.
    pub node: NodeId,
    /// Holds the attempts and the highest epoch.
    pub folder: PathBuf,
    /// Whether work is run at all; `false` for an agent that only observes.
    pub enabled: bool,
    /// Whose processes the ranks are.
    pub run_as: RunAs,
    /// What the site runs around ranks, and before the node goes back into service.
    pub hooks: Hooks,
    /// Whether ranks are put into cgroups.
    pub cgroup: CgroupSettings,
    /// What is done with processes of which nothing is recorded.
    pub orphans: OrphanPolicy,
    /// How long such processes keep work away while nothing but their own word says whose they are.
    pub orphan_hold: Duration,
    /// Most bytes kept of each output of a rank.
    pub output_cap_bytes: u64,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long the output of an ended rank is kept after control has its end.
    pub keep_output: Duration,
    /// Executed as the supervisor: [`super::OWN_PROGRAM`], or (tests) a binary that begins with
    /// [`crate::child::run_if_child`].
    pub program: PathBuf,
    /// What is known of the node's GPUs, for work that does not use all of them.
    pub gpus: NodeGpus,
    /// How ranks are told to write checkpoints.
    pub checkpoints: CheckpointSettings,
    /// The machine's boot id: processes recorded under another one are gone.
    pub boot_id: String,
}

/// How ranks are told to write checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointSettings {
    /// Holds what supervisors and their jobs share: small files and sockets. Everybody must be able to
    /// pass through it, and only the agent's user to change it. A socket's path has 107 bytes at most.
    pub runtime_dir: PathBuf,
    /// Between two looks at what a job says of a checkpoint.
    pub poll: Duration,
}

/// A site's executables. They run as the agent's user.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Around each rank.
    pub rank: RankHooks,
    /// Before the node goes back into service.
    pub health_gate: Option<Hook>,
    /// The site says that a node that is given back has nothing to wipe. Without this and without a
    /// wipe, a node that somebody has claimed is never free again by itself.
    pub nothing_to_wipe: bool,
}

impl Hooks {
    /// Each that there is, by its key in the configuration.
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

    /// Checks that each is an executable file that only root and `agent` can change. What comes
    /// back names what was checked, whatever becomes of links on the way to it.
    pub fn checked(mut self, agent: AgentUser) -> Result<Self, OpenError> {
        for (key, hook) in self.all() {
            let real = trusted::program(&hook.program, agent);
            hook.program = real.map_err(|source| OpenError::Hook { key, source })?;
        }
        Ok(self)
    }
}

/// Why an executor does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What it knows of earlier work cannot be used.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// Cgroups are required and cannot be used.
    #[error("executor.cgroup is required")]
    Cgroup(#[from] CgroupError),
    /// A hook must not be run.
    #[error("executor.hooks.{key}")]
    Hook {
        /// Which.
        key: &'static str,
        /// Why.
        source: Untrusted,
    },
}
