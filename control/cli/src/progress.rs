//! Progress of a long command: a bar on a terminal, periodic lines elsewhere, as in the log of a job. All output goes
//! to standard error; standard output carries the result.

use crate::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Interval between two drawings of a bar without an update, so that the elapsed time advances.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Progress display.
pub struct Progress {
    bar: ProgressBar,
    /// Periodic lines; used without a terminal.
    lines: Option<Mutex<LineTimes>>,
}

/// Times of periodic lines.
struct LineTimes {
    every: Duration,
    last: Instant,
}

impl LineTimes {
    fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// Whether a line is due at `now`. If so, the next one is due after the interval.
    fn take_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.last) >= self.every;
        if is_due {
            self.last = now;
        }
        is_due
    }
}

/// Returns a periodic line: `done` of `total` are done, and `what` names them.
fn progress_line(done: usize, total: u64, what: &str) -> String {
    format!("{done} of {total} {what}")
}

impl Progress {
    /// Creates a display that shows nothing before [`Progress::begin`]. Without a terminal it prints a line at most
    /// once per `every`.
    pub fn new(every: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let times = LineTimes::new(every, Instant::now());
        let lines = (!terminal::stderr_is_terminal()).then(|| Mutex::new(times));
        Self { bar, lines }
    }

    /// Prints a message about a step.
    pub fn print_line(&self, text: &str) {
        self.bar.suspend(|| terminal::message_lines(text));
    }

    /// Starts the display, also after an earlier one has ended: `done` of `total` are done already, and the bar is drawn
    /// according to `template`.
    pub fn begin(&self, template: &str, total: usize, done: usize) {
        self.bar.reset();
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.reset_elapsed();
        if self.lines.is_none() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(REDRAW_INTERVAL);
        }
    }

    /// Updates the display: `done` are done; `what` names them.
    pub fn update(&self, done: usize, what: String) {
        self.bar.set_position(done as u64);
        if let Some(times) = &self.lines
            && times.lock().take_due(Instant::now())
        {
            let total = self.bar.length().unwrap_or_default();
            terminal::message!("{}", progress_line(done, total, &what));
        }
        self.bar
            .set_message(terminal::printable(&what).into_owned());
    }

    /// Removes the display.
    pub fn end(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_due_once_per_interval() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut times = LineTimes::new(2 * second, start);
        let due: Vec<_> = (0..8u32)
            .filter(|n| times.take_due(start + *n * second))
            .collect();
        assert_eq!(due, [2, 4, 6]);
    }

    #[test]
    fn line_has_both_numbers() {
        let line = progress_line(64, 512, "agents enrolled");
        assert_eq!(line, "64 of 512 agents enrolled");
    }
}
