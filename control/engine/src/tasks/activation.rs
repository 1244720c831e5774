//! Activation of reconcilers: soon after an input changes, and periodically.

use crate::{core::Core, tasks::lease::Lease};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Wakes one reconciler.
#[derive(Debug)]
pub(crate) struct Activation {
    inputs: watch::Receiver<u64>,
    lease: Option<watch::Receiver<u64>>,
    /// Longest time between two passes.
    period: Duration,
    /// Shortest time between two passes. Changes within this time are handled together; a change after a quiet period
    /// wakes the reconciler at once.
    spacing: Duration,
    last: Option<Instant>,
}

impl Activation {
    pub(crate) fn new(core: &Core, period: Duration, spacing: Duration) -> Self {
        let mut inputs = core.inputs();
        inputs.mark_changed();
        Self {
            inputs,
            lease: None,
            period,
            spacing,
            last: None,
        }
    }

    /// Also wakes the reconciler when the lease is taken or lost.
    pub(crate) fn with_lease(mut self, lease: &Lease) -> Self {
        self.lease = Some(lease.changes());
        self
    }

    /// Resolves when the next pass is due. Cancel safe: an undelivered wake-up is delivered by the next call.
    pub(crate) async fn next(&mut self) {
        if let Some(last) = self.last {
            sleep_until(last + self.spacing).await;
        }
        let timer = self.last.map(|last| last + self.period);
        tokio::select! {
            _ = self.inputs.changed() => {}
            () = changed(self.lease.as_mut()) => {}
            () = due(timer) => {}
        }
        self.inputs.borrow_and_update();
        self.last = Some(Instant::now());
    }
}

/// Wake-ups by changed BMC readings: the first change after a quiet period at once, later ones together.
#[derive(Debug)]
pub struct BmcWakeUp {
    changes: watch::Receiver<u64>,
    /// Shortest time between two wake-ups; many BMCs answer at the same time.
    spacing: Duration,
    last: Option<Instant>,
}

impl BmcWakeUp {
    /// `changes` must come from a sender that outlives this receiver.
    pub const fn new(changes: watch::Receiver<u64>, spacing: Duration) -> Self {
        Self {
            changes,
            spacing,
            last: None,
        }
    }

    /// Resolves when BMC readings have changed. Cancel safe: an undelivered change is delivered by the next call.
    pub async fn next(&mut self) {
        if let Some(last) = self.last {
            sleep_until(last + self.spacing).await;
        }
        // The sender outlives this receiver (see `new`), so an error cannot occur.
        let _ = self.changes.changed().await;
        self.last = Some(Instant::now());
    }
}

async fn changed(lease: Option<&mut watch::Receiver<u64>>) {
    let known = match lease {
        Some(lease) => lease.changed().await.is_ok(),
        None => false,
    };
    if !known {
        std::future::pending::<()>().await;
    }
}

/// Resolves at the given instant, or never for `None`.
pub(crate) async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
