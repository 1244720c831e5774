//! Widths of text on a terminal: characters of East Asian scripts and emoji take two columns, combining marks none.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the width of a text of one line, columns.
pub(super) fn text_width(text: &str) -> usize {
    text.width()
}

/// Returns the width of one character, columns.
pub(super) fn char_width(c: char) -> usize {
    c.width().unwrap_or_default()
}

/// Returns the longest beginning of the text that takes no more than `columns`.
pub(super) fn prefix(text: &str, columns: usize) -> &str {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if text_width(&text[..next]) > columns {
            break;
        }
        end = next;
    }
    &text[..end]
}

/// Returns the longest end of the text that takes no more than `columns`. It does not begin with a combining mark,
/// which would join the character before it.
pub(super) fn suffix(text: &str, columns: usize) -> &str {
    let mut begin = text.len();
    for (at, _) in text.char_indices().rev() {
        if text_width(&text[at..]) > columns {
            break;
        }
        begin = at;
    }
    text[begin..].trim_start_matches(|c| char_width(c) == 0)
}

/// Appends blanks up to a width of `columns`.
pub(super) fn padded(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(text_width(text));
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_measured_in_columns() {
        assert_eq!(text_width("gpu001"), 6);
        assert_eq!(text_width("日本"), 4);
        assert_eq!(text_width("e\u{301}"), 1);
        assert_eq!(prefix("日本語", 5), "日本");
        assert_eq!(suffix("日本語", 3), "語");
        assert_eq!(prefix("e\u{301}e\u{301}", 1), "e\u{301}");
        assert_eq!(suffix("ae\u{301}", 1), "e\u{301}");
        assert_eq!(prefix("ab", 0), "");
        assert_eq!(padded("日", 4), "日  ");
        assert_eq!(padded("long", 2), "long");
    }

    #[test]
    fn end_begins_with_no_mark() {
        // The whole character takes two columns, the mark alone none.
        assert_eq!(suffix("日\u{301}", 1), "");
    }
}
