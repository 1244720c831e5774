//! What the demo says while it works: a bar on a terminal, a line now and then elsewhere. All of
//! it goes to standard error; standard output carries the result.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how far the recorded workload is.
pub struct Progress {
    bar: ProgressBar,
    plain: Option<Mutex<Instant>>,
}

impl Progress {
    /// Nothing is shown before [`Progress::begin`].
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let plain = (!std::io::stderr().is_terminal()).then(|| Mutex::new(Instant::now()));
        Self { bar, plain }
    }

    /// One line about a step.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// `total` jobs, of which `done` ended before.
    pub fn begin(&self, total: usize, done: usize) {
        if let Ok(style) = ProgressStyle::with_template(
            "playing {bar:30} {pos}/{len} jobs ended, {msg}, {elapsed}",
        ) {
            self.bar.set_style(style);
        }
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.reset_elapsed();
        if self.plain.is_none() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// So many ended, so many are queued or running.
    pub fn ended(&self, done: usize, open: usize) {
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{open} queued or running"));
        let Some(last) = &self.plain else { return };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= LINE_INTERVAL {
            *last = Instant::now();
            let total = self.bar.length().unwrap_or(0);
            eprintln!("{done} of {total} jobs ended, {open} queued or running");
        }
    }

    /// The workload is over.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
