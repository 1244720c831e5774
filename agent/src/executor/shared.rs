//! What everything of an executor works on.

use super::answers::journal;
use super::epoch::HighestEpoch;
use super::gate::Gate;
use super::hindrance::Hindrances;
use super::journal::Journal;
use super::orphans::Finder;
use super::rank::Rank;
use super::wipe::Wiper;
use super::{Control, ExecutorSettings};
use crate::attempt::{Attempts, ExitRecord, RecordError};
use crate::supervisor::Cgroups;
use lattice_mesh::Clock;
use lattice_quorum_types::wire::{AttemptKey, LaunchRefused};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// One executor's state.
pub(super) struct Shared {
    pub(super) settings: ExecutorSettings,
    pub(super) attempts: Attempts,
    /// Held while an attempt is recorded: launches and terminations are judged one by one.
    pub(super) epoch: Arc<tokio::sync::Mutex<HighestEpoch>>,
    /// Attempts whose end control has not taken yet.
    pub(super) known: Mutex<BTreeMap<AttemptKey, Arc<Rank>>>,
    /// Ends of attempts never seen that the disk does not take yet.
    pub(super) unwritten: Mutex<BTreeMap<AttemptKey, ExitRecord>>,
    pub(super) journal: Arc<Journal>,
    pub(super) hindrances: Arc<Hindrances>,
    pub(super) gate: Arc<Gate>,
    pub(super) wiper: Arc<Wiper>,
    /// This agent, as its processes' marks and its cgroup name it: another one on the machine,
    /// for a node of the same name, must not take them for its own.
    pub(super) agent: String,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) control: Arc<dyn Control>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Shared {
    /// The map is whole between statements, so a panic elsewhere does not spoil it.
    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, Arc<Rank>>> {
        self.known.lock()
    }
    /// As above.
    pub(super) fn unwritten(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, ExitRecord>> {
        self.unwritten.lock()
    }
    /// Whether a rank has not ended.
    pub(super) fn has_work(&self) -> bool {
        self.known().values().any(|rank| !rank.has_ended())
    }
    /// Leaves nothing behind where nothing runs; whether there is nothing more to do.
    pub(super) fn leave_cgroups(&self) -> bool {
        let cgroups = self.cgroups.as_ref().filter(|_| !self.has_work());
        cgroups.is_none_or(Cgroups::remove_if_empty)
    }
    /// The place of this agent's attempts goes when the last of them has gone from it.
    pub(super) fn leave_runtime(&self) {
        let _ = std::fs::remove_dir(self.settings.checkpoints.runtime_dir.join(&self.agent));
    }
    pub(super) fn finder(&self) -> Finder {
        Finder {
            agent: self.agent.clone(),
            attempts: self.attempts.path().to_owned(),
            cgroups: self.cgroups.clone(),
        }
    }
    /// The answer to a launch that cannot be recorded.
    pub(super) fn refused(&self, error: RecordError) -> LaunchRefused {
        self.journal.failed(&error);
        journal(error)
    }
}
