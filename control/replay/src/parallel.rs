//! The same for many things, on so many threads; what comes out is in the order of what went in.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Does `work` for each of `items` on `threads`; `done` is told after each how many are.
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
    // Each place was filled: a thread that panicked has ended the scope with it.
    results.into_iter().flatten().collect()
}
