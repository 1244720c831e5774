//! The one shape of what acts under a lease: a pass, and how often. Waking, the lease and what
//! happens without it are here.

use crate::{
    core::Core,
    tasks::{activation::Activation, lease::Lease},
};
use lattice_quorum_types::command::Fence;
use std::{future::Future, sync::Arc, time::Duration};
use tokio_util::task::AbortOnDropHandle;

/// How often a reconciler looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// At least.
    pub(crate) period: Duration,
    /// At most: what changes meanwhile is seen together.
    pub(crate) spacing: Duration,
}

/// What compares what is with what should be, and acts on the difference.
pub(crate) trait Reconciler: Send + Sized + 'static {
    /// As the log names it.
    const NAME: &'static str;

    /// How often it looks.
    fn pace(&self) -> Pace;

    /// One pass. It may be stopped at any moment, and repeated.
    fn pass(&mut self, fence: Fence) -> impl Future<Output = ()> + Send;

    /// The lease is over, or not held yet: what was found out under it is nobody's.
    fn forget(&mut self);

    /// Resolves when something of its own wants a pass. It is dropped whenever something else
    /// wakes first, so nothing may be lost with it.
    fn wakes(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Before a task that ended is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Runs `work` for ever, anew whenever it ends: a panic is our bug, and a reconciler that stands still
/// would be a worse one.
pub(crate) async fn kept<F>(name: &'static str, work: impl Fn() -> F + Send)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let run = AbortOnDropHandle::new(tokio::spawn(work()));
        if let Err(error) = run.await {
            tracing::error!(task = name, %error, "a task broke down and is started again");
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Runs one for ever.
pub(crate) async fn run(core: Arc<Core>, lease: Arc<Lease>, mut reconciler: impl Reconciler) {
    let Pace { period, spacing } = reconciler.pace();
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
