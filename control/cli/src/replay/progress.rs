//! How far a long command is, for people who wait.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// On standard error, where that is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of so many.
    pub fn new(of: usize, what: &'static str) -> Self {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(of as u64), target);
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} to go");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(bar)
    }

    /// So many are done.
    pub fn is_at(&self, done: usize) {
        self.0.set_position(done as u64);
    }

    /// It is over.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
