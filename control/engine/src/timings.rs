//! Intervals and grace periods of control. Tests shorten them.

use std::time::Duration;

/// Longest time between two scheduling cycles.
pub(crate) const PLAN_PERIOD: Duration = Duration::from_secs(5);

/// Intervals and grace periods of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Interval between two pings of one node, and timeout of each ping.
    pub ping_every: Duration,
    /// Time without a reply after which a node is suspect. Including the ping interval and the tick, detection takes at
    /// most 3 s.
    pub suspect_after: Duration,
    /// Time without a reply after which a node may be unreachable, if other agents cannot reach it either.
    pub unreachable_after: Duration,
    /// Interval between two rounds of requests to other agents about a silent node.
    pub peer_check_every: Duration,
    /// Interval between two comparisons of an agent's running attempts with its assigned ones.
    pub attempts_every: Duration,
    /// Time that an agent may take after a reboot of its node to report the ended attempts itself.
    pub reboot_grace: Duration,
    /// Minimum time that a node is excluded after it could not run an allocation, by state time.
    pub min_exclusion: Duration,
    /// Interval between two health gates of one node.
    pub gate_every: Duration,
    /// Interval between two checks whether a checkpoint is worth its cost.
    pub checkpoints_every: Duration,
    /// Interval between two requests for the trust bundle while no change is reported. If below 5 s, it is also the
    /// longest time between two rounds of pushes to agents.
    pub trust_every: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_millis(1000),
            suspect_after: Duration::from_millis(2500),
            unreachable_after: Duration::from_secs(30),
            peer_check_every: Duration::from_secs(5),
            attempts_every: Duration::from_secs(30),
            reboot_grace: Duration::from_secs(3),
            min_exclusion: Duration::from_secs(60),
            gate_every: Duration::from_secs(30),
            checkpoints_every: Duration::from_secs(30),
            trust_every: Duration::from_secs(600),
        }
    }
}
