//! Circuit breaker per BMC: after failures, no request is sent for some time.

use super::settings::Settings;
use std::time::Duration;

/// Counts consecutive failures. Pure: time and randomness are arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    failures_to_open: u32,
    first: Duration,
    longest: Duration,
    failures: u32,
    /// Number of openings since the BMC last answered.
    openings: u32,
    state: BreakerState,
    last: String,
}

/// State of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Requests are sent.
    Closed,
    /// No request is sent until this time of the clock.
    Open {
        /// Time at which one request is let through.
        until: Duration,
    },
    /// One request tests whether the BMC answers again.
    HalfOpen,
}

/// The breaker is open: no request was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no request sent: circuit breaker open after {failures} failed requests; next request in {} s; \
     last error: {last}",
    .retry_in.as_millis().div_ceil(1000)
)]
pub struct BreakerOpen {
    /// Number of consecutive failures.
    pub failures: u32,
    /// Time until a request is let through.
    pub retry_in: Duration,
    /// Reason of the last failure.
    pub last: String,
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub const fn new(settings: &Settings) -> Self {
        Self {
            failures_to_open: settings.breaker_failures,
            first: settings.breaker_min_open,
            longest: settings.breaker_max_open,
            failures: 0,
            openings: 0,
            state: BreakerState::Closed,
            last: String::new(),
        }
    }

    /// Current state of the breaker.
    #[must_use]
    pub const fn state(&self) -> BreakerState {
        self.state
    }

    /// Lets a request through. An open breaker becomes half open once its time has passed.
    ///
    /// # Errors
    /// The breaker is open.
    pub fn admit(&mut self, now: Duration) -> Result<(), BreakerOpen> {
        match self.state {
            BreakerState::Open { until } if now < until => Err(BreakerOpen {
                failures: self.failures,
                retry_in: until - now,
                last: self.last.clone(),
            }),
            BreakerState::Open { .. } => {
                self.state = BreakerState::HalfOpen;
                Ok(())
            }
            BreakerState::Closed | BreakerState::HalfOpen => Ok(()),
        }
    }

    /// Records that the BMC answered, with any status.
    pub fn record_answer(&mut self) {
        self.failures = 0;
        self.openings = 0;
        self.state = BreakerState::Closed;
        self.last.clear();
    }

    /// Records a failure with the reason `why`. The breaker opens after enough failures in a row, or if the request of
    /// a half-open breaker fails. It opens for [`Settings::breaker_min_open`] × 2ⁿ after n openings without an answer,
    /// at most [`Settings::breaker_max_open`], shortened by up to half according to `random` (0 to 1). So clients that
    /// failed together do not retry together.
    pub fn record_failure(&mut self, now: Duration, random: f64, why: impl Into<String>) {
        self.failures = self.failures.saturating_add(1);
        self.last = why.into();
        let is_probe = self.state == BreakerState::HalfOpen;
        if !is_probe && self.failures < self.failures_to_open {
            return;
        }
        let doubled = self.first.saturating_mul(1 << self.openings.min(20));
        let pause = doubled
            .min(self.longest)
            .mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0);
        self.openings = self.openings.saturating_add(1);
        self.state = BreakerState::Open { until: now + pause };
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failing(times: u32, now: Duration) -> Breaker {
        let mut breaker = Breaker::new(&Settings::default());
        for _ in 0..times {
            breaker.record_failure(now, 0.0, "no answer");
        }
        breaker
    }

    #[test]
    fn three_failures_in_a_row_open_it_and_two_do_not() {
        assert_eq!(failing(2, seconds(0)).state(), BreakerState::Closed);
        let mut breaker = failing(3, seconds(100));
        let refused = breaker.admit(seconds(101)).unwrap_err();
        assert_eq!(refused.retry_in, seconds(4));
        assert!(refused.to_string().contains("no answer"), "{refused}");
    }

    #[test]
    fn an_answer_between_failures_starts_the_count_again() {
        let mut breaker = failing(2, seconds(0));
        breaker.record_answer();
        breaker.record_failure(seconds(1), 0.0, "no answer");
        breaker.record_failure(seconds(2), 0.0, "no answer");
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn one_request_closes_it_or_opens_it_for_twice_as_long() {
        let mut breaker = failing(3, seconds(0));
        assert_eq!(breaker.admit(seconds(5)), Ok(()));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        breaker.record_failure(seconds(5), 0.0, "no answer");
        assert_eq!(
            breaker.admit(seconds(14)).map_err(|e| e.retry_in),
            Err(seconds(1))
        );
        assert_eq!(breaker.admit(seconds(15)), Ok(()));
        breaker.record_answer();
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn pauses_end_at_five_minutes_and_spread_by_half() {
        let mut breaker = failing(3, seconds(0));
        for _ in 0..40 {
            breaker.record_failure(seconds(0), 0.0, "no answer");
        }
        let longest = BreakerState::Open {
            until: seconds(300),
        };
        breaker.state = BreakerState::HalfOpen;
        breaker.record_failure(seconds(0), 0.0, "no answer");
        assert_eq!(breaker.state(), longest);
        breaker.state = BreakerState::HalfOpen;
        breaker.record_failure(seconds(0), 1.0, "no answer");
        assert_eq!(
            breaker.state(),
            BreakerState::Open {
                until: seconds(150)
            }
        );
    }
}
