//! Retries for addresses and folders that a stopped process or endpoint still holds briefly.

use std::{future::Future, time::Duration};
use tokio::time::{Instant, sleep};

/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Repeats `open` while `is_in_use` accepts its error, for at most `patience`. An endpoint that has been shut down
/// holds its port until its last connection is closed. A child that has not executed its program yet holds the open
/// files of its killed parent.
///
/// # Errors
/// The last error of `open`.
pub async fn retry_while_in_use<T, E, F: Future<Output = Result<T, E>>>(
    patience: Duration,
    is_in_use: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> F,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match open().await {
            Err(error) if is_in_use(&error) && begun.elapsed() < patience => {
                sleep(RETRY_INTERVAL).await;
            }
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of attempts and the result, where the first `held` attempts find the address in use.
    async fn attempts(held: u32, patience: Duration) -> (u32, Result<(), &'static str>) {
        let mut made = 0;
        let bound = retry_while_in_use(
            patience,
            |error| *error == "in use",
            || {
                made += 1;
                std::future::ready(if made > held { Ok(()) } else { Err("in use") })
            },
        );
        let bound = bound.await;
        (made, bound)
    }

    #[tokio::test(start_paused = true)]
    async fn retries_until_it_is_free() {
        let minute = Duration::from_secs(60);
        assert_eq!(attempts(3, minute).await, (4, Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn fails_when_patience_ends() {
        assert_eq!(attempts(1, Duration::ZERO).await, (1, Err("in use")));
        let (made, bound) = attempts(u32::MAX, RETRY_INTERVAL * 3).await;
        assert!((3..=5).contains(&made), "{made} attempts");
        assert_eq!(bound, Err("in use"));
    }
}
