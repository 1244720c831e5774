//! Output on the terminal: the only module that writes to standard output and standard error.
//!
//! Texts come from users, hosts, BMCs and files of others, and must not control the terminal. They are escaped here, so
//! that no command can omit it. The output of jobs is the only exception: see [`job_output`].

#![expect(
    clippy::disallowed_methods,
    reason = "all other modules write through this one"
)]

use std::{
    borrow::Cow,
    fmt,
    io::{self, IsTerminal as _, StdoutLock, Write},
};

/// Whether a terminal may obey or hide the character: control characters, line and paragraph separators, characters
/// that change the direction of text, and invisible ones.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Escapes the unsafe characters of a text of one line: `\u{1b}`, `\n`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, None)
}

/// Escapes the unsafe characters of a text of several lines; line feeds remain.
fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, Some('\n'))
}

fn escaped(text: &str, kept: Option<char>) -> Cow<'_, str> {
    let is_shown = |c: char| Some(c) == kept || !is_unsafe(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_shown(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_default()),
        }
    }
    Cow::Owned(shown)
}

/// Writes a text of one or more lines, and a line end, to standard output.
pub fn line(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{}", printable_lines(text)) {
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
    write_message(&printable(&text.to_string()));
}

/// Prints a message of several lines on standard error. If possible, a message with text of others is one line: a line
/// feed in that text must not begin a line that looks like a message.
pub fn message_lines(text: &str) {
    write_message(&printable_lines(text));
}

/// Writes to standard error. A closed standard error is not a failure.
fn write_message(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_escaped() {
        for (text, shown) in [
            (
                "\u{1b}[31mRED\u{1b}[2J\u{7}",
                r"\u{1b}[31mRED\u{1b}[2J\u{7}",
            ),
            ("\u{1b}]0;owned\u{1b}\\", r"\u{1b}]0;owned\u{1b}\"),
            ("\u{9b}31mC1\u{85}", r"\u{9b}31mC1\u{85}"),
            ("a\rb\tc\u{8}\u{7f}", r"a\rb\tc\u{8}\u{7f}"),
            ("\u{202e}evil\u{202c}", r"\u{202e}evil\u{202c}"),
            (
                "\u{2066}x\u{2069}\u{200b}\u{feff}",
                r"\u{2066}x\u{2069}\u{200b}\u{feff}",
            ),
            (
                "gpu\u{ad}001\u{2028}\u{e0041}",
                r"gpu\u{ad}001\u{2028}\u{e0041}",
            ),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable_lines(text), shown);
            assert_eq!(printable(shown), shown, "an escaped text stays as it is");
        }
        assert_eq!(printable("one\ntwo"), r"one\ntwo");
        assert_eq!(printable_lines("one\ntwo\r"), "one\ntwo\\r");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in [
            "gpu001: fan – loud, 5 °C",
            "Größe 日本語 e\u{301} 👍\u{fe0f}",
            "a\u{a0}b",
        ] {
            assert!(matches!(printable(text), Cow::Borrowed(shown) if shown == text));
        }
    }
}
