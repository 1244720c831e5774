//! Lock between proposals and a handover of leadership.

use tokio::sync::{Mutex, MutexGuard};

/// Lock that a handover and each batch of proposals hold, so that no proposal is in flight during a handover.
#[derive(Debug, Default)]
pub(crate) struct HandoverLock(Mutex<()>);

impl HandoverLock {
    /// Waits for the lock, which is released when the guard is dropped.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().await
    }
}
