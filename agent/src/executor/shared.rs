//! Shared state of an executor.

use super::answers::record_refusal;
use super::block_reason::BlockReasons;
use super::epoch::HighestEpoch;
use super::hooks::health_gate::HealthGate;
use super::hooks::wipe::Wiper;
use super::journal::RecordingState;
use super::processes::search::OrphanFinder;
use super::rank::Rank;
use super::{Control, ExecutorSettings};
use crate::attempt::{Attempts, ExitRecord, RecordError};
use crate::supervisor::Cgroups;
use lattice_agent_rpc::{AttemptKey, LaunchRefused};
use lattice_mesh::Clock;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// State of one executor.
pub(super) struct Shared {
    pub(super) settings: ExecutorSettings,
    pub(super) attempts: Attempts,
    /// Highest lease epoch. The lock is held while a request is recorded, so that launches, terminations, checkpoint
    /// requests and walltime changes are serialised.
    pub(super) epoch: Arc<tokio::sync::Mutex<HighestEpoch>>,
    /// Attempts without an end that control has acknowledged.
    pub(super) ranks: Mutex<BTreeMap<AttemptKey, Arc<Rank>>>,
    /// Ends of attempts without a record that could not be written yet.
    pub(super) unwritten: Mutex<BTreeMap<AttemptKey, ExitRecord>>,
    pub(super) journal: Arc<RecordingState>,
    pub(super) block_reasons: Arc<BlockReasons>,
    pub(super) gate: Arc<HealthGate>,
    pub(super) wiper: Arc<Wiper>,
    /// Agent id in the marks of its processes and in its cgroup. Another agent on the machine, for a node of the same
    /// name, must not treat these processes as its own.
    pub(super) agent: String,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) control: Arc<dyn Control>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Shared {
    /// Locks the map of known ranks. The map is consistent between statements, so a panic elsewhere leaves it valid.
    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, Arc<Rank>>> {
        self.ranks.lock()
    }
    /// Locks the map of unwritten ends, which is consistent between statements.
    pub(super) fn unwritten(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, ExitRecord>> {
        self.unwritten.lock()
    }
    /// Whether any rank has not ended.
    pub(super) fn has_work(&self) -> bool {
        self.known().values().any(|rank| !rank.has_ended())
    }
    /// Removes the agent's cgroups if no rank runs. Returns `false` if a later call must repeat the removal.
    pub(super) fn remove_cgroups(&self) -> bool {
        let cgroups = self.cgroups.as_ref().filter(|_| !self.has_work());
        cgroups.is_none_or(Cgroups::remove_if_empty)
    }
    /// Removes the runtime folder of this agent's attempts if it is empty.
    pub(super) fn remove_runtime_folder(&self) {
        let _ = std::fs::remove_dir(self.settings.checkpoints.runtime_dir.join(&self.agent));
    }
    pub(super) fn finder(&self) -> OrphanFinder {
        OrphanFinder {
            agent: self.agent.clone(),
            attempts: self.attempts.path().to_owned(),
            cgroups: self.cgroups.clone(),
        }
    }
    /// Refusal of a launch that cannot be recorded.
    pub(super) fn refused(&self, error: RecordError) -> LaunchRefused {
        self.journal.failed(&error);
        record_refusal(error)
    }
}
