//! Output on the terminal: the only module that writes to standard output and standard error.
//!
//! Texts come from users, hosts, BMCs and files of others, and must not control the terminal. They are escaped here
//! (`lattice_host::terminal`), so that no command can omit it. The output of jobs is the only exception: see
//! [`job_output`].

#![expect(
    clippy::disallowed_methods,
    reason = "all other modules write through this one"
)]

pub use lattice_host::terminal::{escape_json, escape_yaml, message_lines, printable};

use lattice_host::terminal::{message_line, print_lines, printable_lines};
use std::{
    fmt,
    io::{self, IsTerminal as _, StdoutLock, Write},
};

/// Writes a text of one or more lines, and a line end, to standard output.
pub fn line(text: &str) -> anyhow::Result<()> {
    match print_lines(text) {
        // A reader such as `head` may stop early, which is not a failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints a message of one line on standard error, with the arguments of [`format!`]. Unsafe characters are escaped.
macro_rules! message {
    ($($text:tt)*) => {
        $crate::terminal::print_message(format_args!($($text)*))
    };
}
pub(crate) use message;

/// Prints a message of one line on standard error; called by the macro `message`.
pub fn print_message(text: fmt::Arguments<'_>) {
    message_line(&text.to_string());
}

/// Standard output without escaping, for the output of jobs, which is passed on byte by byte.
pub fn job_output() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writer of log lines on standard error.
#[derive(Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr()
            .lock()
            .write_all(printable_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
