//! Repair of damaged JSON text: invalid letters in strings, foreign bytes between tokens, bytes behind the document.
//!
//! A repair never changes a value silently. A byte that touches a number or a literal may be a damaged part of it, so
//! the document is not repaired.

use std::borrow::Cow;

/// The document of a text, and the bytes behind it.
pub(super) struct Repaired<'a> {
    /// The document, with valid strings and with blanks in place of foreign bytes.
    pub(super) document: Vec<u8>,
    rest: &'a [u8],
}

impl Repaired<'_> {
    /// Whether the bytes behind the document may contain further members of it, or another document. The end of the
    /// document is damaged then, or it is unknown which document is the answer.
    pub(super) fn is_continued(&self) -> bool {
        let mut bytes = self.rest.iter().copied();
        let first = bytes.find(u8::is_ascii_graphic);
        first.is_some_and(|byte| matches!(byte, b',' | b':' | b'"' | b'{' | b'['))
    }
}

/// The text in UTF-8, without a byte-order mark.
pub(super) fn plain_text(body: &[u8]) -> Cow<'_, [u8]> {
    let units = |of: fn([u8; 2]) -> u16| {
        let pairs = body.get(2..).unwrap_or_default().chunks_exact(2);
        let units = pairs.map(move |pair| of([pair[0], pair[1]]));
        let letters = char::decode_utf16(units);
        let letters = letters.map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER));
        letters.collect::<String>().into_bytes()
    };
    match body {
        [0xef, 0xbb, 0xbf, text @ ..] => Cow::Borrowed(text),
        [0xff, 0xfe, ..] => Cow::Owned(units(u16::from_le_bytes)),
        [0xfe, 0xff, ..] => Cow::Owned(units(u16::from_be_bytes)),
        text => Cow::Borrowed(text),
    }
}

/// The first document of a text, repaired; `None` if the damage may have changed a number or a literal.
pub(super) fn repair(text: &[u8]) -> Option<Repaired<'_>> {
    let mut document = Vec::with_capacity(text.len() + 64);
    let mut is_string = false;
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let (length, replacement) = match first {
            b'"' => {
                is_string = !is_string;
                (1, None)
            }
            _ if is_string => check_string(first, rest),
            byte if byte.is_ascii_graphic() => (1, None),
            _ => (check_gap(document.last().copied(), rest)?, Some(" ".into())),
        };
        let (taken, others) = rest.split_at(length.min(rest.len()));
        match replacement {
            Some(replacement) => document.extend_from_slice(replacement.as_bytes()),
            None => document.extend_from_slice(taken),
        }
        rest = others;
        match first {
            b'{' | b'[' if !is_string => depth += 1,
            b'}' | b']' if !is_string => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    Some(Repaired { document, rest })
}

/// Length of the run of blanks and foreign bytes at the start, which follows the byte `before`. `None` if the run may
/// contain a damaged part of a number or a literal.
fn check_gap(before: Option<u8>, rest: &[u8]) -> Option<usize> {
    let mut length = 0;
    let mut is_foreign = Vec::new();
    while let Some(left) = rest.get(length..).filter(|left| !left.is_empty()) {
        match first_letter(left) {
            Some(letter) if letter.is_ascii_graphic() => break,
            Some(letter) => {
                is_foreign.push(!letter.is_whitespace() && letter != '\u{feff}');
                length += letter.len_utf8();
            }
            None => {
                is_foreign.push(true);
                length += 1;
            }
        }
    }
    let after = rest.get(length).copied();
    let is_scalar = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let touches_scalar = is_foreign.first() == Some(&true) && is_scalar(before)
        || is_foreign.last() == Some(&true) && is_scalar(after);
    // The only number of a list may be the damaged byte.
    let empties_list = before == Some(b'[') && after == Some(b']') && is_foreign.contains(&true);
    (!touches_scalar && !empties_list).then_some(length)
}

/// Length of the letter or escape sequence at the start of a part of a string, and the replacement of an invalid one.
fn check_string(first: u8, rest: &[u8]) -> (usize, Option<Cow<'static, str>>) {
    const DAMAGED: Option<Cow<'static, str>> = Some(Cow::Borrowed("\u{fffd}"));
    match first {
        b'\\' => match check_escape(rest) {
            Escape::Valid(length) => (length, None),
            Escape::Damaged(length) => (length, DAMAGED),
            Escape::Text => (1, Some("\\\\".into())),
        },
        0..=0x1f => (1, Some(format!("\\u{first:04x}").into())),
        0x20..=0x7f => (1, None),
        _ => match first_letter(rest) {
            Some(letter) => (letter.len_utf8(), None),
            None => (1, DAMAGED),
        },
    }
}

/// A backslash in a string, with the letters that belong to it.
enum Escape {
    /// A valid escape sequence of this length.
    Valid(usize),
    /// Half of a surrogate pair, of this length: a damaged letter.
    Damaged(usize),
    /// A single backslash in a text of the firmware.
    Text,
}

fn check_escape(rest: &[u8]) -> Escape {
    match (rest.get(1), unicode_escape(rest)) {
        (Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'), _) => Escape::Valid(2),
        (_, Some(0xd800..=0xdbff)) => {
            let low = rest.get(6..).and_then(unicode_escape);
            match low {
                Some(0xdc00..=0xdfff) => Escape::Valid(12),
                _ => Escape::Damaged(6),
            }
        }
        (_, Some(0xdc00..=0xdfff)) => Escape::Damaged(6),
        (_, Some(_)) => Escape::Valid(6),
        _ => Escape::Text,
    }
}

/// The number of an escape sequence such as `\u00e9` at the start.
fn unicode_escape(rest: &[u8]) -> Option<u32> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    let mut code = 0;
    for digit in digits {
        code = code * 16 + char::from(*digit).to_digit(16)?;
    }
    Some(code)
}

/// The letter at the start; `None` if the first byte is not UTF-8.
fn first_letter(rest: &[u8]) -> Option<char> {
    const LONGEST: usize = 4;
    let head = rest.get(..LONGEST).unwrap_or(rest);
    let valid = match std::str::from_utf8(head) {
        Ok(_) => head.len(),
        Err(error) => error.valid_up_to(),
    };
    let letters = std::str::from_utf8(&head[..valid]).unwrap_or_default();
    letters.chars().next()
}
