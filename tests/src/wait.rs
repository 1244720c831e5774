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
