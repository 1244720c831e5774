//! Parallel map over a slice; results are in the order of the items.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Calls `work` for each of `items` on `threads` threads. Calls `done` after each item with the number of finished
/// items.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else {
                        return;
                    };
                    let result = work(item);
                    results.lock()[place] = Some(result);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let results = results.into_inner();
    // Each slot is filled: a panic in a thread would have propagated from the scope.
    results.into_iter().flatten().collect()
}
