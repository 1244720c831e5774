//! Health state file.

use super::NodeHealth;
use super::state::StoredHealth;
use crate::attempt::write_durably;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Shortest pause between two writes.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of writes if only counters have changed. If the last samples are lost, the counter is compared with an
/// older one, and a rise is still found.
const ROUTINE_WRITE_INTERVAL: Duration = Duration::from_secs(600);
/// Pause between two writes to a disk that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait for the disk when the agent stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the state that an earlier agent stored; empty if the file cannot be read.
pub(super) fn read(file: &Path) -> StoredHealth {
    let read = match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(std::io::Error::from),
        Err(error) if error.kind() == ErrorKind::NotFound => return StoredHealth::default(),
        Err(error) => Err(error),
    };
    read.unwrap_or_else(|error| {
        let path = file.display();
        tracing::error!(%path, %error, "stored node health unreadable");
        StoredHealth::default()
    })
}

impl NodeHealth {
    /// Writes changes for as long as the agent runs.
    pub(crate) async fn run_writer(self) {
        let mut written = None;
        loop {
            let pause = match self.0.summary.borrow().is_unsaved {
                true => RETRY_INTERVAL,
                false => ROUTINE_WRITE_INTERVAL,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // While the disk fails, changes wait for the next attempt.
                () = self.0.wake.notified(), if pause == ROUTINE_WRITE_INTERVAL => {}
            }
            written = self.write(written).await;
            tokio::time::sleep(MIN_WRITE_INTERVAL).await;
        }
    }

    /// Writes the state when the agent stops, with a bound on the wait for the disk.
    pub(crate) async fn flush(&self) {
        if self.0.settings.enabled {
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.write(None)).await;
        }
    }

    /// Writes the state unless it equals `written`; returns the content of the disk, if known.
    async fn write(&self, written: Option<StoredHealth>) -> Option<StoredHealth> {
        let stored = self.state().stored();
        if written.as_ref() == Some(&stored) {
            return written;
        }
        let (file, kept) = (self.0.dependencies.file.clone(), stored.clone());
        let write = move || {
            let bytes = serde_json::to_vec(&stored)?;
            write_durably(&file, &bytes)
        };
        let write = tokio::task::spawn_blocking(write).await;
        let outcome = write.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let is_faulty = outcome.is_err();
        self.0.summary.send_if_modified(|said| {
            match (&outcome, said.is_unsaved) {
                (Err(error), false) => {
                    tracing::error!(
                        %error,
                        "node health could not be written; it is kept in memory"
                    );
                }
                (Ok(()), true) => tracing::info!("node health can be written again"),
                _ => {}
            }
            let is_news = said.is_unsaved != is_faulty;
            said.is_unsaved = is_faulty;
            is_news
        });
        outcome.is_ok().then_some(kept)
    }
}
