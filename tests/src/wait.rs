//! Waiting for something to come about.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until `found` finds something.
///
/// # Panics
/// When it does not within [`PATIENCE`].
pub async fn eventually<T, F>(what: &str, mut found: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let begun = Instant::now();
    loop {
        if let Some(value) = found().await {
            return value;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "within {PATIENCE:?} this did not come about: {what}"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// [`eventually`] for what needs no waiting itself.
///
/// # Panics
/// When it does not come about within [`PATIENCE`].
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || std::future::ready(is_so().then_some(()))).await;
}

/// Looks that are further apart: this machine stood still, and everybody on it.
const APART: Duration = Duration::from_secs(1);
/// So long after that somebody may be taken for silent: until the next ping is answered and told.
const RECOVERS: Duration = Duration::from_secs(5);

/// Looks at who is alive, one after the other, and whether silence may be held against anybody:
/// what a busy machine takes away from everybody is nobody's.
#[derive(Debug)]
pub struct Looks {
    last: Instant,
    stood_still: Option<Instant>,
}

impl Looks {
    /// The first look is made then.
    pub fn begin(at: Instant) -> Self {
        Self {
            last: at,
            stood_still: None,
        }
    }

    /// The next look is made; whether who is silent at it is to blame.
    pub fn may_blame(&mut self, at: Instant) -> bool {
        if at.duration_since(self.last) > APART {
            self.stood_still = Some(at);
        }
        self.last = at;
        self.stood_still
            .is_none_or(|then| at.duration_since(then) > RECOVERS)
    }
}
