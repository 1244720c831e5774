//! How far a long command is, for people who wait: a bar on a terminal, a line now and then elsewhere, as in a job's log.
//! All of it goes to standard error; standard output carries the result.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

/// See the module.
pub struct Progress {
    bar: ProgressBar,
    /// Where there is no terminal.
    lines: Option<Lines>,
}

struct Lines {
    every: Duration,
    last: Mutex<Instant>,
}

impl Progress {
    /// Nothing is shown before [`Progress::begin`]. Where there is no terminal a line is written `every` so often.
    pub fn new(every: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let last = Mutex::new(Instant::now());
        let lines = (!std::io::stderr().is_terminal()).then_some(Lines { every, last });
        Self { bar, lines }
    }

    /// One line about a step.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// Of `total`, `done` are done before; the bar is drawn as `template` says.
    pub fn begin(&self, template: &str, total: usize, done: usize) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.reset_elapsed();
        if self.lines.is_none() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// So many are done; `what` they are.
    pub fn is_at(&self, done: usize, what: String) {
        self.bar.set_position(done as u64);
        if let Some(Lines { every, last }) = &self.lines {
            let mut last = last.lock();
            if last.elapsed() >= *every {
                *last = Instant::now();
                let total = self.bar.length().unwrap_or_default();
                eprintln!("{done} of {total} {what}");
            }
        }
        self.bar.set_message(what);
    }

    /// It is over.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
