//! Waits of a process that exceeds the enrolment rate limit of the quorum members.

use super::client::EnrolError;
use crate::backoff;
use std::{future::Future, time::Duration};
use tokio_util::sync::CancellationToken;

/// Shortest wait, for a member that requests none.
const MIN_WAIT: Duration = Duration::from_millis(50);
/// Longest wait that repeated refusals lead to. A longer wait that a member requests is kept.
const MAX_GROWN_WAIT: Duration = Duration::from_secs(30);
/// Largest random extension of a wait, as a part of it.
const SPREAD: f64 = 0.5;

/// Returns the wait before the next try, at least `requested`, which a member has requested. The requested wait ends at
/// the same moment for all waiting processes of one address, and only some of them succeed then. The wait therefore
/// doubles with each of the `refusals` in a row, and `fraction`, 0 to 1, extends it by up to a half.
fn wait(requested: Duration, refusals: u32, fraction: f64) -> Duration {
    let requested = requested.max(MIN_WAIT);
    let grown = backoff(requested, MAX_GROWN_WAIT.max(requested), refusals);
    grown.mul_f64(1.0 + SPREAD * fraction)
}

/// Repeats `round`, which tries each member once, while a member answers that the rate limit is reached. The number of
/// waits is not bounded: a rack that boots at once enrols at the rate of one address. The first wait is logged.
/// `fraction` returns random numbers between 0 and 1. `cancel` ends a wait, but no round: a member may already have
/// issued a certificate for the key of this process.
///
/// # Errors
/// The errors of `round`, and [`EnrolError::Cancelled`] if `cancel` ended a wait.
pub(super) async fn repeat_while_limited<T, F>(
    mut round: impl FnMut() -> F,
    mut fraction: impl FnMut() -> f64,
    cancel: &CancellationToken,
) -> Option<Result<T, EnrolError>>
where
    F: Future<Output = Option<Result<T, EnrolError>>>,
{
    let mut refusals = 0;
    loop {
        let outcome = round().await;
        let requested = match &outcome {
            Some(Err(error)) => error.requested_wait(),
            _ => None,
        };
        let Some(requested) = requested else {
            return outcome;
        };
        refusals += 1;
        let wait = wait(requested, refusals, fraction());
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        if refusals == 1 {
            tracing::warn!(
                wait_ms,
                "enrolment rate limit reached; waiting for the next try"
            );
        } else {
            tracing::debug!(wait_ms, refusals, "enrolment rate limit still reached");
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = cancel.cancelled() => return Some(Err(EnrolError::Cancelled)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{EnrolRefused, FullMapPolicy, RateLimit, RateLimiter};
    use futures::future::join_all;
    use std::cell::{Cell, RefCell};
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn wait_is_at_least_the_requested_one() {
        assert_eq!(wait(SECOND, 1, 0.0), SECOND);
        assert_eq!(wait(SECOND, 1, 1.0), SECOND.mul_f64(1.5));
        assert_eq!(wait(SECOND, 3, 0.0), 4 * SECOND);
        assert_eq!(wait(SECOND, 40, 0.0), 30 * SECOND);
        assert_eq!(wait(100 * SECOND, 1, 0.0), 100 * SECOND);
        assert_eq!(wait(100 * SECOND, 9, 0.0), 100 * SECOND);
        assert_eq!(wait(Duration::ZERO, 1, 0.0), MIN_WAIT);
        // No member's answer may end the process.
        assert!(wait(Duration::from_millis(u64::MAX), 9, 1.0) > SECOND);
    }

    /// A rack of 40 nodes at one address boots at once; the members admit 3 at once and then one per second.
    #[tokio::test(start_paused = true)]
    async fn whole_rack_enrols_at_the_rate_of_the_limiter() {
        const NODES: u32 = 40;
        let limit = RateLimit {
            burst: 3,
            per_second: 1.0,
        };
        let limiter = RefCell::new(RateLimiter::new(limit, 1, FullMapPolicy::Refuse));
        let cancel = CancellationToken::new();
        let (tries, started) = (Cell::new(0), Instant::now());
        let node = |n: u32| {
            let (limiter, tries, cancel) = (&limiter, &tries, &cancel);
            let round = move || async move {
                tries.set(tries.get() + 1);
                let now_ms = u64::try_from(started.elapsed().as_millis()).unwrap();
                let admitted = limiter.borrow_mut().take(&"rack", now_ms);
                Some(admitted.map_err(|retry_in_ms| {
                    EnrolError::Refused(EnrolRefused::RateLimited { retry_in_ms })
                }))
            };
            repeat_while_limited(round, move || f64::from(n) / f64::from(NODES), cancel)
        };
        let outcomes = join_all((0..NODES).map(node)).await;
        assert!(
            outcomes
                .iter()
                .all(|outcome| matches!(outcome, Some(Ok(()))))
        );
        let took = started.elapsed();
        assert!(took >= 37 * SECOND, "the limiter was obeyed: {took:?}");
        assert!(took < 120 * SECOND, "{took:?}");
        assert!(tries.get() < 10 * NODES, "{} tries", tries.get());
    }

    #[tokio::test(start_paused = true)]
    async fn other_refusals_end_the_enrolment_at_once() {
        let tries = Cell::new(0);
        let round = || async {
            tries.set(tries.get() + 1);
            Some(Err::<(), _>(match tries.get() {
                1 => EnrolError::Refused(EnrolRefused::RateLimited { retry_in_ms: 1000 }),
                _ => EnrolError::Refused(EnrolRefused::TokenRefused),
            }))
        };
        let outcome = repeat_while_limited(round, || 0.0, &CancellationToken::new()).await;
        assert!(
            matches!(
                outcome,
                Some(Err(EnrolError::Refused(EnrolRefused::TokenRefused)))
            ),
            "{outcome:?}"
        );
        assert_eq!(tries.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn cancellation_ends_a_wait_at_once() {
        let limited = || async {
            let retry_in_ms = 100_000;
            Some(Err::<(), _>(EnrolError::Refused(
                EnrolRefused::RateLimited { retry_in_ms },
            )))
        };
        let (cancel, started) = (CancellationToken::new(), Instant::now());
        let enrolment = repeat_while_limited(limited, || 0.0, &cancel);
        let stop = async {
            tokio::time::sleep(SECOND).await;
            cancel.cancel();
        };
        let (outcome, ()) = tokio::join!(enrolment, stop);
        assert!(
            matches!(outcome, Some(Err(EnrolError::Cancelled))),
            "{outcome:?}"
        );
        let took = started.elapsed();
        assert!(took < 2 * SECOND, "{took:?}");
    }

    /// A member may have issued a certificate by the time of the cancellation: its answer is still received.
    #[tokio::test(start_paused = true)]
    async fn cancellation_does_not_end_a_round() {
        let cancel = CancellationToken::new();
        let round = || async {
            tokio::time::sleep(SECOND).await;
            Some(Ok::<_, EnrolError>("enrolled"))
        };
        let enrolment = repeat_while_limited(round, || 0.0, &cancel);
        cancel.cancel();
        let outcome = enrolment.await;
        assert!(matches!(outcome, Some(Ok("enrolled"))), "{outcome:?}");
    }
}
