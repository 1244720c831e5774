//! Kernel calls that may never return, made on a separate thread.
//!
//! An ioctl or a netlink request may wait for a driver's locks, and no signal ends that wait. Each call therefore runs
//! on its own thread, and the caller continues at the deadline with the values received until then. A stuck thread is
//! counted until its call returns. While a thread is stuck, no further call of the same kind starts, so a broken driver
//! does not cost one more thread with every probe of the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// One kind of kernel call, with the count of its stuck threads. All probes in the process contend for the same kernel
/// locks, so each kind is a `static` that they share.
#[derive(Debug)]
pub(crate) struct CallKind {
    name: &'static str,
    stuck: AtomicUsize,
}

/// Why a call did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallExpired {
    /// The deadline passed, or an earlier call of the same kind is still stuck.
    TimedOut,
    /// No thread could be started.
    NoThread,
}

const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const ABANDONED: u8 = 2;

impl CallKind {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            stuck: AtomicUsize::new(0),
        }
    }

    /// Runs `job` on a new thread and returns when `job` ends or the deadline passes; a late `job` continues in its
    /// thread. `take` runs on the caller's thread and receives what `job` sends, in order.
    pub(crate) fn run<T: Send + 'static>(
        &'static self,
        deadline: Duration,
        job: impl FnOnce(&Sender<T>) + Send + 'static,
        mut take: impl FnMut(T),
    ) -> Result<(), CallExpired> {
        if self.stuck.load(Ordering::Acquire) > 0 {
            return Err(CallExpired::TimedOut);
        }
        let ends_at = Instant::now() + deadline;
        let (sender, receiver) = channel();
        let state = Arc::new(AtomicU8::new(RUNNING));
        let of_thread = Arc::clone(&state);
        let work = move || {
            job(&sender);
            let was = of_thread.swap(FINISHED, Ordering::AcqRel);
            if was == ABANDONED {
                self.stuck.fetch_sub(1, Ordering::AcqRel);
            }
        };
        let name = self.name.to_owned();
        if thread::Builder::new().name(name).spawn(work).is_err() {
            return Err(CallExpired::NoThread);
        }
        loop {
            match receiver.recv_timeout(ends_at.saturating_duration_since(Instant::now())) {
                Ok(value) => take(value),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        self.stuck.fetch_add(1, Ordering::AcqRel);
        let is_over = state
            .compare_exchange(RUNNING, ABANDONED, Ordering::AcqRel, Ordering::Acquire)
            .is_err();
        if is_over {
            // The thread finished at the last moment, so it does not decrement the count itself.
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
        Err(CallExpired::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn keeps_partial_results_at_deadline() {
        let mut deadline = Duration::from_millis(50);
        let (calls, release) = loop {
            let calls: &'static CallKind = Box::leak(Box::new(CallKind::new("test")));
            let (release, hold) = channel::<()>();
            let mut got = Vec::new();
            let stuck = calls.run(
                deadline,
                move |sender| {
                    let _ = sender.send(1);
                    let _ = hold.recv();
                },
                |value| got.push(value),
            );
            assert_eq!(stuck, Err(CallExpired::TimedOut));
            if got == [1] {
                break (calls, release);
            }
            // On a busy machine the thread may start after the deadline.
            assert!(deadline < Duration::from_secs(10), "{got:?}");
            deadline *= 4;
        };
        let asked_at = Instant::now();
        let again = calls.run(Duration::from_secs(60), |_: &Sender<u8>| (), drop);
        assert_eq!(again, Err(CallExpired::TimedOut));
        assert!(asked_at.elapsed() < Duration::from_secs(60));
        // Calls start again after the stuck call returns.
        release.send(()).unwrap();
        let ends_at = Instant::now() + Duration::from_secs(60);
        while calls.stuck.load(Ordering::Acquire) > 0 {
            assert!(Instant::now() < ends_at);
            thread::yield_now();
        }
        let mut got = Vec::new();
        let done = calls.run(
            Duration::from_secs(60),
            |sender| {
                let _ = sender.send(2);
            },
            |value| got.push(value),
        );
        assert_eq!(done, Ok(()));
        assert_eq!(got, [2]);
    }
}
