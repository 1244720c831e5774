//! How far a long command is, for people who wait.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Where standard error is no terminal, as in a job's log, a line is written so often.
const LINE_EVERY: Duration = Duration::from_mins(1);

/// A bar on standard error, or lines where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
    what: &'static str,
    /// When the last line was written; `None` where there is a bar.
    last_line: Option<Mutex<Instant>>,
}

impl Progress {
    /// Of so many.
    pub fn new(of: usize, what: &'static str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(of as u64), target);
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} to go");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_message(what);
        let last_line = (!is_terminal).then(|| Mutex::new(Instant::now()));
        Self {
            bar,
            what,
            last_line,
        }
    }

    /// So many are done.
    pub fn is_at(&self, done: usize) {
        self.bar.set_position(done as u64);
        let Some(last) = &self.last_line else {
            return;
        };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let (of, what) = (self.bar.length().unwrap_or_default(), self.what);
            let after = HumanDuration(self.bar.elapsed());
            eprintln!("{done} of {of} {what} after {after}");
        }
    }

    /// It is over.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
