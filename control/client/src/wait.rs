//! Waiting until work has ended.

use crate::{AllocationRequest, AllocationView, Client, ClientError, SubmitOptions};
use lattice_api::dependency::JobRef;
use lattice_quorum_types::AllocationState;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at first; each is half as long again.
const FIRST: Duration = Duration::from_millis(100);
/// Between two looks in the end.
const LONGEST: Duration = Duration::from_secs(2);
/// Looks in a row that may fail, since servers restart: about ten seconds.
const MOST_FAILURES: u32 = 10;

/// Why nobody waits any more.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// It could not be asked for, or looked at.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It took longer than was to be waited. Nothing was cancelled.
    #[error("allocation {} is {} after {} s", seen.id, seen.state, after.as_secs())]
    TimedOut {
        /// How long it was waited for.
        after: Duration,
        /// How it was seen last.
        seen: Box<AllocationView>,
    },
}

/// A state that this build does not know is none that work ends in.
fn has_ended(seen: &AllocationView) -> bool {
    let state = seen.state.parse::<AllocationState>();
    state.is_ok_and(AllocationState::is_terminal)
}

impl Client {
    /// Asks for nodes, and waits until the work has ended: its state says how. `within` bounds the wait; without, it
    /// is for ever.
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
        let (mut pause, mut failures) = (FIRST, 0);
        loop {
            let seen = match self.allocation(id).await {
                Ok(seen) if has_ended(&seen) => return Ok(seen),
                Ok(seen) => Some(seen),
                Err(ClientError::Unreachable { .. } | ClientError::Unavailable(_))
                    if failures < MOST_FAILURES =>
                {
                    None
                }
                Err(error) => return Err(error.into()),
            };
            failures = if seen.is_some() { 0 } else { failures + 1 };
            let after = began.elapsed();
            let left = within.map_or(LONGEST, |within| within.saturating_sub(after));
            if let Some(seen) = seen.filter(|_| left.is_zero()) {
                let seen = Box::new(seen);
                return Err(WaitError::TimedOut { after, seen });
            }
            tokio::time::sleep(pause.min(left.max(FIRST))).await;
            pause = LONGEST.min(pause + pause / 2);
        }
    }
}
