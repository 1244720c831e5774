//! Waiting until work has ended.

use crate::{AllocationRequest, AllocationView, Client, ClientError, SubmitOptions};
use lattice_api::dependency::JobRef;
use lattice_quorum_types::AllocationState;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Between two looks at first; each is half as long again.
const FIRST: Duration = Duration::from_millis(100);
/// Between two looks in the end.
const LONGEST: Duration = Duration::from_secs(2);
/// Looks in a row that may fail, since servers restart: ten seconds and more.
const MOST_FAILURES: u32 = 10;

/// Why nobody waits any more.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// It could not be asked for, or looked at.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It took longer than was to be waited. Nothing was cancelled.
    #[error("allocation {id} had not ended after {} s", after.as_secs())]
    TimedOut {
        /// Which.
        id: JobRef,
        /// How long it was waited for.
        after: Duration,
        /// How it was seen last; absent where the server did not answer all the while.
        seen: Option<Box<AllocationView>>,
    },
}

/// A state that this build does not know is none that work ends in.
fn has_ended(seen: &AllocationView) -> bool {
    let state = seen.state.parse::<AllocationState>();
    state.is_ok_and(AllocationState::is_terminal)
}

impl Client {
    /// Asks for nodes, and waits until the work has ended: its state says how. `within` bounds the wait from the
    /// submit on; without, it is for ever.
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
            reason: "the allocation that was made has no number".to_owned(),
        })?;
        self.wait(id, within).await
    }

    /// Waits until an allocation has ended. A server that does not answer for a few seconds ends no wait.
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
        let looks = self.look_until_it_has_ended(id, &mut seen);
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

    async fn look_until_it_has_ended(
        &self,
        id: JobRef,
        seen: &mut Option<AllocationView>,
    ) -> Result<AllocationView, ClientError> {
        let (mut pause, mut failures) = (FIRST, 0);
        loop {
            match self.allocation(id).await {
                Ok(now) if has_ended(&now) => return Ok(now),
                Ok(now) => {
                    *seen = Some(now);
                    failures = 0;
                }
                Err(ClientError::Unreachable { .. } | ClientError::Unavailable(_))
                    if failures < MOST_FAILURES =>
                {
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST.min(pause + pause / 2);
        }
    }
}
