//! Clock and randomness of a client, injected for tests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A monotonic clock with any origin.
pub trait Clock: Send + Sync {
    /// Time since the clock's origin.
    fn now(&self) -> Duration;
}

/// A source of random numbers from 0 up to, but not including, 1.
pub trait Randomness: Send + Sync {
    /// The next random number.
    fn next(&self) -> f64;
}

/// External inputs of a client.
#[derive(Clone)]
pub struct Environment {
    /// Clock that determines when an open breaker admits a request again.
    pub clock: Arc<dyn Clock>,
    /// Randomness that spreads the attempts of many clients.
    pub randomness: Arc<dyn Randomness>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

impl Environment {
    /// The runtime's clock and the system's randomness.
    #[must_use]
    pub fn system() -> Self {
        Self {
            clock: Arc::new(RuntimeClock(tokio::time::Instant::now())),
            randomness: Arc::new(SystemRandomness),
        }
    }
}

struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn next(&self) -> f64 {
        rand::random()
    }
}
