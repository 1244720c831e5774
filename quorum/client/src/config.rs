//! Client configuration: deadlines and bounds.

use std::time::Duration;

/// Deadlines and bounds of a client. `ClientConfig::default()` suits every daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Deadline of a proposal, read or other request to the leader, over all attempts.
    pub deadline: Duration,
    /// Timeout of one attempt.
    pub attempt_timeout: Duration,
    /// Time without an answer after which the client queries the members for the present leader. Also the timeout of a
    /// connection to a member; for a watch, four times as long.
    pub leader_check_after: Duration,
    /// First wait before a repeat; doubles up to `max_wait`.
    pub min_wait: Duration,
    /// Longest wait before a repeat.
    pub max_wait: Duration,
    /// Number of concurrent requests with proposals. Proposals made in the meantime share the next request.
    pub in_flight: usize,
    /// Number of queued proposals. Further callers wait for a place in the queue.
    pub queue_capacity: usize,
    /// Seed for the jitter of waits; `None`: randomness of the host.
    pub seed: Option<u64>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(5),
            leader_check_after: Duration::from_millis(300),
            min_wait: Duration::from_millis(10),
            max_wait: Duration::from_millis(200),
            in_flight: 2,
            queue_capacity: 4096,
            seed: None,
        }
    }
}
