//! Progress of a long command: a bar on a terminal, periodic lines elsewhere, as in the log of a job. All output goes
//! to standard error; standard output carries the result.

use crate::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Progress display.
pub struct Progress {
    bar: ProgressBar,
    /// Periodic lines; used without a terminal.
    lines: Option<Lines>,
}

struct Lines {
    every: Duration,
    last: Mutex<Instant>,
}

impl Progress {
    /// Creates a display that shows nothing before [`Progress::begin`]. Without a terminal it prints a line at most
    /// once per `every`.
    pub fn new(every: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let last = Mutex::new(Instant::now());
        let lines = (!terminal::stderr_is_terminal()).then_some(Lines { every, last });
        Self { bar, lines }
    }

    /// Prints a message about a step.
    pub fn print_line(&self, text: &str) {
        self.bar.suspend(|| terminal::message_lines(text));
    }

    /// Starts the display: `done` of `total` are done already, and the bar is drawn according to `template`.
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

    /// Updates the display: `done` are done; `what` names them.
    pub fn update(&self, done: usize, what: String) {
        self.bar.set_position(done as u64);
        if let Some(Lines { every, last }) = &self.lines {
            let mut last = last.lock();
            if last.elapsed() >= *every {
                *last = Instant::now();
                let total = self.bar.length().unwrap_or_default();
                terminal::message!("{done} of {total} {what}");
            }
        }
        self.bar
            .set_message(terminal::printable(&what).into_owned());
    }

    /// Removes the display.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
