//! Deadlines and bounds of a client.

use std::time::Duration;

/// Deadlines and bounds. `ClientConfig::default()` suits every daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// A proposal or read that has no answer after this long, all tries included, fails.
    pub deadline: Duration,
    /// Longest one try may take.
    pub attempt_timeout: Duration,
    /// A try that has no answer after this long makes us ask the others who leads.
    pub patience: Duration,
    /// First wait before a repeat; doubles up to `max_wait`.
    pub min_wait: Duration,
    /// Longest wait before a repeat.
    pub max_wait: Duration,
    /// Requests with proposals under way at a time. Proposals made meanwhile share the next one.
    pub in_flight: usize,
    /// Proposals that wait for a place; more callers wait to be let in.
    pub queue: usize,
    /// What the chance in waits is drawn from; `None`: from the host's randomness.
    pub seed: Option<u64>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(5),
            patience: Duration::from_millis(300),
            min_wait: Duration::from_millis(10),
            max_wait: Duration::from_millis(200),
            in_flight: 2,
            queue: 4096,
            seed: None,
        }
    }
}
