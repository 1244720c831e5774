//! Bounded text: length limit of free text in the state, and truncation between characters; numbers with their nouns.

/// Longest free text that the state keeps, bytes: a reason, a purpose, a description, evidence.
///
/// Such texts stay in the audit log for good, so their length has a limit.
pub const MAX_FREE_TEXT_BYTES: usize = 1024;

/// The longest prefix of at most `max_bytes` bytes that ends between two characters.
pub fn truncated(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// The text, or its [`truncated`] prefix and an ellipsis if it is longer than `max_bytes`.
pub fn with_ellipsis(text: &str, max_bytes: usize) -> String {
    let prefix = truncated(text, max_bytes);
    match prefix.len() == text.len() {
        true => prefix.to_owned(),
        false => format!("{prefix}…"),
    }
}

/// The text, or a prefix of it and a note with the original length, in at most `max_bytes` bytes together.
pub fn with_length_note(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let note = format!(" (truncated; original length {} bytes)", text.len());
    let prefix = truncated(&text, max_bytes.saturating_sub(note.len()));
    format!("{prefix}{note}")
}

/// Formats a number with its noun: `1 node`, `2 nodes`. The noun is regular, or a word group that ends with one.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_agree_with_their_number() {
        assert_eq!(counted(0, "GPU"), "0 GPUs");
        assert_eq!(counted(1, "GPU"), "1 GPU");
        assert_eq!(counted(2, "child project"), "2 child projects");
    }

    #[test]
    fn truncates_between_characters() {
        for (text, max_bytes, expected) in [
            ("", 4, ""),
            ("abc", 3, "abc"),
            ("abc", 2, "ab"),
            ("a€b", 3, "a"),
            ("a€b", 4, "a€"),
            ("€", 0, ""),
        ] {
            assert_eq!(truncated(text, max_bytes), expected, "{text} {max_bytes}");
        }
    }

    #[test]
    fn ellipsis_marks_only_truncated_text() {
        assert_eq!(with_ellipsis("abc", 3), "abc");
        assert_eq!(with_ellipsis("abcd", 3), "abc…");
        assert_eq!(with_ellipsis("a€", 2), "a…");
    }

    #[test]
    fn length_note_fits_into_the_limit() {
        const MAX: usize = MAX_FREE_TEXT_BYTES;
        assert_eq!(with_length_note("short".to_owned(), MAX), "short");
        let exact = "x".repeat(MAX);
        assert_eq!(with_length_note(exact.clone(), MAX), exact);
        for shift in 0..4 {
            let long = format!("{}{}", "x".repeat(shift), "€".repeat(2_000_000));
            let cut = with_length_note(long.clone(), MAX);
            assert!(cut.len() <= MAX && cut.len() > MAX - 4, "{}", cut.len());
            let note = format!("(truncated; original length {} bytes)", long.len());
            assert!(cut.ends_with(&note), "{cut}");
            // A text that was cut once is not cut again.
            assert_eq!(with_length_note(cut.clone(), MAX), cut);
        }
    }
}
