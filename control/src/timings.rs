//! How often control looks, and how long it waits before it believes. Tests shorten them.

use std::time::Duration;

/// Between looks, and before conclusions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Between two pings of one node; one without an answer after this long is given up.
    pub ping_every: Duration,
    /// Silence after which a node is suspect. With the ping's interval and the tick it is noticed
    /// within 3 s.
    pub suspect_after: Duration,
    /// Silence after which a node may be unreachable, if other agents cannot reach it either.
    pub unreachable_after: Duration,
    /// Between two rounds of asking other agents about a silent node.
    pub witness_every: Duration,
    /// Between two comparisons of what an agent runs with what it should run.
    pub attempts_every: Duration,
    /// How long an agent that came back under another boot may take to report its ends itself.
    pub reboot_grace: Duration,
    /// How long a node that could not run work is kept out at least, by state time.
    pub kept_out: Duration,
    /// Between two health gates of one node.
    pub gate_every: Duration,
    /// Between two looks whether checkpoints pay.
    pub checkpoints_every: Duration,
    /// Between two looks at who is trusted, when nothing says that it changed.
    pub trust_every: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_millis(1000),
            suspect_after: Duration::from_millis(2500),
            unreachable_after: Duration::from_secs(30),
            witness_every: Duration::from_secs(5),
            attempts_every: Duration::from_secs(30),
            reboot_grace: Duration::from_secs(3),
            kept_out: Duration::from_secs(60),
            gate_every: Duration::from_secs(30),
            checkpoints_every: Duration::from_secs(30),
            trust_every: Duration::from_secs(600),
        }
    }
}
