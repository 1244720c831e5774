//! Journal state: whether attempts can be recorded. An attempt without a record is not started, and control receives
//! the fault before it dispatches.

use crate::attempt::{Attempts, RecordError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pause between two checks of a writable journal.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Pause between two checks of a journal that is not writable.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// State of the journal: the reason that it cannot be written, if there is one.
#[derive(Debug)]
pub(super) struct RecordingState {
    fault: watch::Sender<Option<String>>,
}

impl RecordingState {
    pub(super) fn new() -> Self {
        let fault = watch::Sender::new(None);
        Self { fault }
    }

    /// Follows the fault of the journal.
    pub(super) fn fault(&self) -> watch::Receiver<Option<String>> {
        self.fault.subscribe()
    }

    /// Records a failed write.
    pub(super) fn failed(&self, error: &RecordError) {
        self.set_fault(Some(crate::with_causes(error)));
    }

    fn set_fault(&self, fault: Option<String>) {
        self.fault.send_if_modified(|now| {
            match (&now, &fault) {
                (None, Some(error)) => {
                    tracing::error!(%error, "attempts cannot be recorded; the node accepts no jobs");
                }
                (Some(_), None) => tracing::info!("attempts can be recorded again"),
                _ => {}
            }
            let is_news = now.is_some() != fault.is_some();
            *now = fault;
            is_news
        });
    }

    /// Checks the journal periodically. A fault is found before a launch fails on it, and cleared as soon as the disk
    /// has space.
    pub(super) async fn watch(self: Arc<Self>, attempts: Attempts) {
        let mut fault = self.fault();
        loop {
            let at = attempts.clone();
            match tokio::task::spawn_blocking(move || at.check_disk_space()).await {
                Ok(Ok(())) => self.set_fault(None),
                Ok(Err(error)) => self.failed(&error),
                Err(error) => tracing::error!(%error, "check of the journal failed"),
            }
            let pause = match *fault.borrow_and_update() {
                Some(_) => RETRY_INTERVAL,
                None => CHECK_INTERVAL,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = fault.changed() => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }
}
