//! Parts that the schedulers of all vClusters of one control share.

use crate::{
    checkpoint_storage::CheckpointStorage, core::Core, decisions::Decisions,
    metrics_source::Metrics,
};
use std::{sync::Arc, thread::available_parallelism};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Shared parts; see the module.
#[derive(Debug, Clone)]
pub struct SchedulerParts {
    /// Core of the control.
    pub core: Arc<Core>,
    /// Recorder of inputs and decisions.
    pub decisions: Arc<Decisions>,
    /// Checkpoint directories, and outages of their storage.
    pub checkpoints: Arc<CheckpointStorage>,
    /// Client of the site's Prometheus, by which services may scale.
    pub metrics_source: Option<Metrics>,
    /// Turns at planning.
    pub turns: PlanningTurns,
}

/// Turns at planning, which occupies a core for as long as it takes. Half of the cores stay free for other tasks.
#[derive(Debug, Clone)]
pub struct PlanningTurns(Arc<Semaphore>);

impl Default for PlanningTurns {
    fn default() -> Self {
        let half = available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        Self(Arc::new(Semaphore::new(half)))
    }
}

impl PlanningTurns {
    /// Waits for a turn, which lasts until the permit is dropped. `None` while the process ends.
    pub(crate) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }
}
