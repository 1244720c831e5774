//! Deadlines and limits of a client.

use std::time::Duration;

/// Deadlines and limits of one client. The defaults fit BMCs in the field: 3 s for a power page is common, and 25 s to
/// some minutes for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Timeout of one request, from connecting to the last byte received.
    pub request_timeout: Duration,
    /// Timeout of one request to slow resources: firmware, BIOS, registries, logs.
    pub slow_request_timeout: Duration,
    /// Timeout of one pass over power, BMC events, or the list of systems.
    pub pass_timeout: Duration,
    /// Timeout of one pass over everything. An inventory of a hundred entries takes five minutes at three seconds a
    /// page. Entries missed in one pass are missed in every later one.
    pub full_pass_timeout: Duration,
    /// Timeout for confirming a limit, and for a task that sets one.
    pub confirm_timeout: Duration,
    /// Interval between two reads of a limit that is not yet in force.
    pub confirm_interval: Duration,
    /// Maximum size of an answer, in bytes.
    pub body_limit: usize,
    /// Maximum number of requests per pass.
    pub resource_limit: usize,
    /// Number of consecutive failures that open the breaker.
    pub breaker_failures: u32,
    /// Duration of the first opening; it doubles with each further one.
    pub breaker_min_open: Duration,
    /// Maximum duration of an opening.
    pub breaker_max_open: Duration,
    /// Maximum delay for `Retry-After`; a BMC that demands more gets this much.
    pub max_retry_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            slow_request_timeout: Duration::from_secs(40),
            pass_timeout: Duration::from_secs(60),
            full_pass_timeout: Duration::from_secs(600),
            confirm_timeout: Duration::from_secs(20),
            confirm_interval: Duration::from_secs(1),
            body_limit: 4 << 20,
            resource_limit: 2000,
            breaker_failures: 3,
            breaker_min_open: Duration::from_secs(5),
            breaker_max_open: Duration::from_secs(300),
            max_retry_after: Duration::from_secs(120),
        }
    }
}

impl Settings {
    /// Timeout of one request to this path.
    pub(super) fn timeout_of(&self, path: &str) -> Duration {
        const SLOW: [&str; 5] = [
            "/updateservice",
            "/bios",
            "/registries",
            "/registrystore",
            "/logservices",
        ];
        let path = path.to_ascii_lowercase();
        if SLOW.iter().any(|part| path.contains(part)) {
            self.slow_request_timeout
        } else {
            self.request_timeout
        }
    }
}
