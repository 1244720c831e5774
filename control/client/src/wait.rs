//! Waiting until an allocation has ended.

use crate::{AllocationRequest, AllocationView, Client, ClientError, SubmitOptions};
use lattice_api::dependency::JobRef;
use lattice_quorum_types::AllocationState;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// First interval between two polls; each further interval is 1.5 times the previous one.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval between two polls.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of consecutive failed polls, since servers restart: about 9 s at the start of a wait, 20 s later
/// on.
const MAX_CONSECUTIVE_FAILURES: u32 = 10;

/// Error of a wait that ended before the allocation did.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The submit or a poll failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The wait timed out. Nothing was cancelled.
    #[error("allocation {id} has not ended after {} s", after.as_secs())]
    TimedOut {
        /// Allocation that was waited for.
        id: JobRef,
        /// Duration of the wait.
        after: Duration,
        /// Last known state of the allocation; `None` if no poll was answered.
        seen: Option<Box<AllocationView>>,
    },
}

/// Whether the allocation has ended. A state that this build does not define counts as not terminal.
fn has_ended(seen: &AllocationView) -> bool {
    let state = seen.state.parse::<AllocationState>();
    state.is_ok_and(AllocationState::is_terminal)
}

impl Client {
    /// Submits a request for nodes, waits until the allocation has ended, and returns its last state. `within` bounds
    /// the wait from the end of the submit on; without it the wait is unbounded.
    ///
    /// # Errors
    /// See [`WaitError`]; a request that is refused is [`ClientError::Refused`].
    pub async fn submit_and_wait(
        &self,
        request: &AllocationRequest,
        within: Option<Duration>,
    ) -> Result<AllocationView, WaitError> {
        let made = self.submit(request, SubmitOptions::default()).await?;
        let id = made.id.ok_or_else(|| ClientError::Protocol {
            url: self.url().to_string(),
            reason: "the response names no allocation number".to_owned(),
        })?;
        self.wait(id, within).await
    }

    /// Waits until an allocation has ended. A server that does not answer for a few seconds does not end the wait.
    ///
    /// # Errors
    /// See [`WaitError`].
    pub async fn wait(
        &self,
        id: impl Into<JobRef>,
        within: Option<Duration>,
    ) -> Result<AllocationView, WaitError> {
        let (id, began) = (id.into(), Instant::now());
        let mut seen = None;
        let looks = self.poll_until_ended(id, &mut seen);
        let Some(within) = within else {
            return Ok(looks.await?);
        };
        match timeout(within, looks).await {
            Ok(ended) => Ok(ended?),
            Err(_) => Err(WaitError::TimedOut {
                id,
                after: began.elapsed(),
                seen: seen.map(Box::new),
            }),
        }
    }

    async fn poll_until_ended(
        &self,
        id: JobRef,
        seen: &mut Option<AllocationView>,
    ) -> Result<AllocationView, ClientError> {
        let (mut pause, mut failures) = (FIRST_POLL_INTERVAL, 0);
        loop {
            match self.allocation(id).await {
                Ok(now) if has_ended(&now) => return Ok(now),
                Ok(now) => {
                    *seen = Some(now);
                    failures = 0;
                }
                Err(ClientError::Unreachable { .. } | ClientError::Unavailable(_))
                    if failures < MAX_CONSECUTIVE_FAILURES =>
                {
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = MAX_POLL_INTERVAL.min(pause + pause / 2);
        }
    }
}
