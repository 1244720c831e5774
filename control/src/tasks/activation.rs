//! When a reconciler looks again: soon after something changed, and now and then anyway.

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
    /// Looks at least this often.
    period: Duration,
    /// Looks at most this often: what changes meanwhile is seen together. A change after a quiet
    /// time is seen at once.
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

    /// Wakes also when the lease is taken or lost.
    pub(crate) fn with_lease(mut self, lease: &Lease) -> Self {
        self.lease = Some(lease.changes());
        self
    }

    /// Resolves when it is time to look. Cancel safe: a wake that was not delivered comes again.
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

/// That BMCs told something else: the first after a quiet time at once, what follows together.
#[derive(Debug)]
pub(crate) struct News {
    changes: watch::Receiver<u64>,
    /// Many BMCs answer at a time.
    spacing: Duration,
    last: Option<Instant>,
}

impl News {
    /// `changes`: of a sender that lives as long as who waits here.
    pub(crate) const fn new(changes: watch::Receiver<u64>, spacing: Duration) -> Self {
        Self {
            changes,
            spacing,
            last: None,
        }
    }

    /// Resolves when it is time to look. Cancel safe: a change that was not delivered comes again.
    pub(crate) async fn next(&mut self) {
        if let Some(last) = self.last {
            sleep_until(last + self.spacing).await;
        }
        // An error cannot be: see `new`.
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

/// Resolves at this moment, or never.
pub(crate) async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
