//! Growing waits between the attempts of a failing operation.

use std::time::Duration;

/// Returns the wait before the next try: `min` after the first failure, doubled with each failure in a row, at most
/// `max`.
///
/// `backon` is not used: it wraps the retried call, whereas these failures belong to a peer or a rank.
pub fn backoff(min: Duration, max: Duration, failures: u32) -> Duration {
    min.saturating_mul(
        1u32.checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX),
    )
    .min(max)
}
