//! Reconciler trait: a pass and its pace, for tasks that act under a lease. This module implements the wake-ups, the
//! check of the lease, and the behaviour without it.

use crate::{
    core::Core,
    tasks::{activation::Activation, lease::Lease},
};
use lattice_quorum_types::command::Fence;
use std::{future::Future, sync::Arc, time::Duration};
use tokio_util::task::AbortOnDropHandle;

/// Pace of a reconciler.
#[derive(Debug, Clone, Copy)]
pub struct ReconcilerPace {
    /// Longest time between two passes.
    pub period: Duration,
    /// Shortest time between two passes; changes within this time are handled together. A pass caused by
    /// [`Reconciler::wakes`] does not wait for it.
    pub spacing: Duration,
}

/// Compares the actual state with the desired one, and acts on the difference.
pub trait Reconciler: Send + Sized + 'static {
    /// Name of the reconciler in the log.
    const NAME: &'static str;

    /// Pace of the reconciler.
    fn pace(&self) -> ReconcilerPace;

    /// Runs one pass. A pass may be stopped at any moment, and repeated.
    fn pass(&mut self, fence: Fence) -> impl Future<Output = ()> + Send;

    /// Discards state gathered under a lease: the lease is over or not yet held.
    fn forget(&mut self);

    /// Resolves when the reconciler itself needs a pass. The future is dropped whenever another wake-up comes first, so
    /// it must be cancel safe.
    fn wakes(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Pause before a task that ended is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Runs `work` forever and restarts it whenever it ends. A panic is a bug, but a reconciler that stays stopped would be
/// worse.
pub async fn restart_forever<F>(name: &'static str, work: impl Fn() -> F + Send)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let run = AbortOnDropHandle::new(tokio::spawn(work()));
        if let Err(error) = run.await {
            tracing::error!(task = name, %error, "reconciler task panicked, restarting");
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Runs one reconciler forever.
pub async fn run(core: Arc<Core>, lease: Arc<Lease>, mut reconciler: impl Reconciler) {
    let ReconcilerPace { period, spacing } = reconciler.pace();
    let mut activation = Activation::new(&core, period, spacing).with_lease(&lease);
    loop {
        tokio::select! {
            () = activation.next() => {}
            () = reconciler.wakes() => {}
        }
        match lease.fence() {
            Some(fence) => reconciler.pass(fence).await,
            None => reconciler.forget(),
        }
    }
}
