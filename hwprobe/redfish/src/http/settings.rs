//! Deadlines and bounds.

use std::time::Duration;

/// Bounds of one client. The default is what BMCs in the field need: 3 s for a power page is
/// usual, and 25 s to some minutes for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// For one request, from the first byte sent to the last received.
    pub request_timeout: Duration,
    /// For one request to what BMCs take long over: firmware, BIOS, registries, logs.
    pub slow_request_timeout: Duration,
    /// For one look at power, at what a BMC did, or at which systems it has.
    pub look_timeout: Duration,
    /// For one look at everything: an inventory of a hundred entries takes five minutes at three
    /// seconds a page, and what is not read by then is read at no later look either.
    pub whole_look_timeout: Duration,
    /// For a limit to be read back, and for a task that sets one.
    pub confirm_timeout: Duration,
    /// Between two looks at a limit that is not there yet.
    pub confirm_interval: Duration,
    /// No answer is larger, bytes.
    pub body_limit: usize,
    /// No look takes more requests.
    pub resource_limit: usize,
    /// So many failures in a row open the breaker.
    pub breaker_failures: u32,
    /// It stays open so long the first time, and twice as long each time after.
    pub breaker_first: Duration,
    /// But no longer than this.
    pub breaker_longest: Duration,
    /// A BMC that asks for patience (`Retry-After`) is given this much at most.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            slow_request_timeout: Duration::from_secs(40),
            look_timeout: Duration::from_secs(60),
            whole_look_timeout: Duration::from_secs(600),
            confirm_timeout: Duration::from_secs(20),
            confirm_interval: Duration::from_secs(1),
            body_limit: 4 << 20,
            resource_limit: 2000,
            breaker_failures: 3,
            breaker_first: Duration::from_secs(5),
            breaker_longest: Duration::from_secs(300),
            patience: Duration::from_secs(120),
        }
    }
}

impl Settings {
    /// How long one request to this path may take.
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
