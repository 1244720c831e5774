//! Number of requests at the same time, adapted to Waldur's speed.
//!
//! A Waldur with many workers, or far away, answers many requests in the time of one. A small one works them off one after
//! the other, so that more requests at the same time take longer, until all reach the timeout.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests at the same time at first.
const FIRST_LIMIT: usize = 8;
const MIN_LIMIT: usize = 4;
/// With 170 ms for each request, a round with a thousand reports takes 8 seconds. See `FIGURES.md`.
pub(super) const MAX_LIMIT: usize = 32;
/// Time of a request below which one more is sent at the same time.
const FAST: Duration = Duration::from_secs(1);
/// Time of a request from which one less is sent at the same time.
const SLOW: Duration = Duration::from_secs(2);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Pace {
    permits: Semaphore,
    limit: Mutex<usize>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(FIRST_LIMIT),
            limit: Mutex::new(FIRST_LIMIT),
        }
    }
}

impl Pace {
    /// Requests at the same time at present.
    pub(super) fn limit(&self) -> usize {
        *self.limit.lock()
    }

    /// Waits until a request may be sent.
    pub(super) async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.permits.acquire().await.ok()
    }

    /// Notes the time of a request.
    pub(super) fn end(&self, permit: Option<SemaphorePermit<'_>>, took: Duration) {
        let mut limit = self.limit.lock();
        if took < FAST && *limit < MAX_LIMIT {
            *limit += 1;
            self.permits.add_permits(1);
        } else if took >= SLOW && *limit > MIN_LIMIT {
            *limit -= 1;
            if let Some(permit) = permit {
                permit.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_follows_the_time_of_the_requests() {
        let pace = Pace::default();
        for (took_ms, requests, limit) in [
            (170, 100, MAX_LIMIT),
            (1_500, 100, MAX_LIMIT),
            (2_000, 10, MAX_LIMIT - 10),
            (30_000, 100, MIN_LIMIT),
            (999, 3, MIN_LIMIT + 3),
        ] {
            for _ in 0..requests {
                let permit = pace.begin().await;
                pace.end(permit, Duration::from_millis(took_ms));
            }
            assert_eq!(pace.limit(), limit, "{took_ms}");
            assert_eq!(pace.permits.available_permits(), limit, "{took_ms}");
        }
    }

    /// No more requests begin than the limit allows.
    #[tokio::test]
    async fn requests_wait_for_their_turn() {
        let pace = Pace::default();
        let mut permits = Vec::new();
        for _ in 0..FIRST_LIMIT {
            permits.push(pace.begin().await);
        }
        assert_eq!(pace.permits.available_permits(), 0);
        pace.end(permits.pop().flatten(), Duration::from_millis(1_500));
        assert_eq!(pace.permits.available_permits(), 1);
    }
}
