//! Text of others on a terminal: escapes, and output for commands.
//!
//! Texts from users, hosts, BMCs, services and files of others must not control the terminal of an operator, hide
//! characters from the operator, or change the direction of a line. Commands write through these functions, or escape
//! the text before they lay it out.

use std::borrow::Cow;
use std::io::{self, Write};

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
    escaped(text, is_unsafe, |c| c.escape_default().to_string())
}

/// Escapes the unsafe characters of a text of several lines; line feeds remain.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe_in_lines, |c| c.escape_default().to_string())
}

/// Escapes the unsafe characters of a JSON document, which has them only within its strings; its values stay the same.
/// `serde_json` escapes only the control characters below the blank.
pub fn escape_json(text: &str) -> String {
    let escaped = escaped(text, is_unsafe_in_lines, |c| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    });
    escaped.into_owned()
}

/// Returns `yaml`, a YAML document, unless it contains unsafe characters. Then all its strings must be quoted, so that
/// the characters can be escaped: the document is returned as JSON is written, which is YAML too.
///
/// # Errors
/// `as_json`, which formats the same document as JSON, failed.
pub fn escape_yaml<E>(
    yaml: String,
    as_json: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    if !yaml.contains(is_unsafe_in_lines) {
        return Ok(yaml);
    }
    let json = as_json()?;
    let escaped = escaped(&json, is_unsafe_in_lines, |c| match u32::from(c) {
        code @ 0..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    });
    Ok(escaped.into_owned())
}

fn is_unsafe_in_lines(c: char) -> bool {
    c != '\n' && is_unsafe(c)
}

fn escaped(
    text: &str,
    is_unsafe: fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_unsafe(c) {
            true => shown.push_str(&escape(c)),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Writes a text of one or more lines, and a line end, to standard output, with unsafe characters escaped.
///
/// # Errors
/// Standard output cannot be written. The kind is [`io::ErrorKind::BrokenPipe`] if its reader stopped early.
pub fn print_lines(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", printable_lines(text))
}

/// Writes a message of one line to standard error, with unsafe characters escaped. A closed standard error is not a
/// failure.
pub fn message_line(text: &str) {
    write_message(&printable(text));
}

/// Writes a message of several lines to standard error. If possible, a message with text of others is one line: a line
/// feed in that text must not begin a line that looks like a message.
pub fn message_lines(text: &str) {
    write_message(&printable_lines(text));
}

fn write_message(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
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

    #[test]
    fn documents_are_escaped_within_strings() {
        let json = "{\n  \"a\": \"\u{9b}31m\u{202e}x\u{e0041}\"\n}".to_owned();
        assert_eq!(
            escape_json(&json),
            "{\n  \"a\": \"\\u009b31m\\u202ex\\udb40\\udc41\"\n}"
        );
        let as_json = || Ok::<_, ()>(json.clone());
        assert_eq!(
            escape_yaml("a: \u{202e}x\n".to_owned(), as_json),
            Ok("{\n  \"a\": \"\\u009b31m\\u202ex\\U000e0041\"\n}".to_owned())
        );
        assert_eq!(
            escape_yaml("a: x\n".to_owned(), as_json),
            Ok("a: x\n".to_owned())
        );
    }
}
