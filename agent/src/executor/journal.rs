//! Whether attempts can be recorded: what is not recorded is not started, and control is told so
//! before it tries.

use crate::attempt::{Attempts, RecordError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between two looks at a journal that was writable.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Between two looks at one that was not.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// What is known of the journal: why it cannot be written, if so.
#[derive(Debug)]
pub(super) struct Journal {
    fault: watch::Sender<Option<String>>,
}

impl Journal {
    pub(super) fn new() -> Self {
        let fault = watch::Sender::new(None);
        Self { fault }
    }

    /// Follows what is known.
    pub(super) fn fault(&self) -> watch::Receiver<Option<String>> {
        self.fault.subscribe()
    }

    /// Something could not be written.
    pub(super) fn failed(&self, error: &RecordError) {
        self.say(Some(crate::with_causes(error)));
    }

    fn say(&self, fault: Option<String>) {
        self.fault.send_if_modified(|now| {
            match (&now, &fault) {
                (None, Some(error)) => {
                    tracing::error!(%error, "attempts cannot be recorded: no work is taken");
                }
                (Some(_), None) => tracing::info!("attempts can be recorded again"),
                _ => {}
            }
            let is_news = now.is_some() != fault.is_some();
            *now = fault;
            is_news
        });
    }

    /// Looks again and again: a fault is found before work is refused for it, and over as soon as
    /// there is room.
    pub(super) async fn watch(self: Arc<Self>, attempts: Attempts) {
        let mut fault = self.fault();
        loop {
            let at = attempts.clone();
            match tokio::task::spawn_blocking(move || at.check_room()).await {
                Ok(Ok(())) => self.say(None),
                Ok(Err(error)) => self.failed(&error),
                Err(error) => tracing::error!(%error, "cannot look at the journal"),
            }
            let pause = match *fault.borrow_and_update() {
                Some(_) => RETRY_INTERVAL,
                None => LOOK_INTERVAL,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = fault.changed() => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }
}
