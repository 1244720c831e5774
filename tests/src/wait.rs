//! Waiting for conditions, with a bound.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Longer than any step of a test takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Time between two checks.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Calls `found` until it returns a value.
///
/// # Panics
/// When `found` returns no value within [`PATIENCE`].
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

/// Waits like [`eventually`] for a condition without async code.
///
/// # Panics
/// When the condition does not hold within [`PATIENCE`].
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || std::future::ready(is_so().then_some(()))).await;
}

/// Time between two beats of the clock of [`LivenessChecks`].
const BEAT: Duration = Duration::from_millis(100);
/// Delay of a beat after which the whole machine counts as stalled.
const LATE: Duration = Duration::from_millis(500);
/// Time after a stall in which silence is excused: until the next ping is answered and reported.
const RECOVERS: Duration = Duration::from_secs(5);

/// Counts liveness checks, and decides for each whether silence counts as a failure. Silence during a stall of the
/// whole machine is no failure. Only the machine's own clock decides, so a checked daemon cannot excuse itself by a
/// late answer.
#[derive(Debug)]
pub struct LivenessChecks {
    beats: Arc<Mutex<Beats>>,
    counted: u64,
}

#[derive(Debug)]
struct Beats {
    last: Instant,
    /// Stalls: each from the last beat before to the first beat after.
    stood_still: Vec<(Instant, Instant)>,
}

impl LivenessChecks {
    /// Starts to watch the machine in a thread of its own.
    pub fn begin() -> Self {
        let beats = Beats {
            last: Instant::now(),
            stood_still: Vec::new(),
        };
        let beats = Arc::new(Mutex::new(beats));
        let kept = Arc::downgrade(&beats);
        std::thread::spawn(move || {
            while let Some(beats) = kept.upgrade() {
                beats.lock().unwrap().beat(Instant::now());
                drop(beats);
                std::thread::sleep(BEAT);
            }
        });
        Self { beats, counted: 0 }
    }

    /// Whether silence at a check that ended at `at` is a failure. Such checks are counted.
    pub fn may_blame(&mut self, at: Instant) -> bool {
        let may = self.beats.lock().unwrap().may_blame(at);
        self.counted += u64::from(may);
        may
    }

    /// Number of checks at which silence was a failure.
    pub fn counted(&self) -> u64 {
        self.counted
    }
}

impl Beats {
    fn beat(&mut self, at: Instant) {
        if at.duration_since(self.last) > BEAT + LATE {
            self.stood_still.push((self.last, at));
        }
        self.last = at;
    }

    fn may_blame(&self, at: Instant) -> bool {
        let mut apart = self.stood_still.iter();
        // Another thread may notice the end of a stall earlier than the beat thread.
        at.saturating_duration_since(self.last) <= BEAT + LATE
            && !apart.any(|(begun, ended)| (*begun..=*ended + RECOVERS).contains(&at))
    }
}

#[cfg(test)]
mod tests {
    use super::{Beats, LivenessChecks};
    use std::time::{Duration, Instant};

    #[test]
    fn silence_during_standstill_is_ignored() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut beats = Beats {
            last: begun,
            stood_still: Vec::new(),
        };
        for ms in [100, 300, 800] {
            beats.beat(at(ms));
            assert!(beats.may_blame(at(ms)) && beats.may_blame(at(ms + 600)));
        }
        assert!(!beats.may_blame(at(1_401)), "the next beat is late");
        beats.beat(at(2_000));
        for (ms, may) in [(799, true), (801, false), (2_001, false), (2_500, false)] {
            assert_eq!(beats.may_blame(at(ms)), may, "{ms}");
        }
        for ms in (2_100..=7_100).step_by(100) {
            beats.beat(at(ms));
        }
        assert!(!beats.may_blame(at(7_000)) && beats.may_blame(at(7_001)));
    }

    #[test]
    fn looks_that_may_blame_are_counted() {
        let mut looks = LivenessChecks::begin();
        let now = Instant::now();
        let may = looks.may_blame(now);
        assert_eq!(looks.counted(), u64::from(may));
        assert!(!looks.may_blame(now + Duration::from_secs(60)));
        assert_eq!(looks.counted(), u64::from(may));
    }
}
