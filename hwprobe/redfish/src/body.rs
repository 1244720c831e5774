//! JSON bodies of a BMC: parsing that tolerates damaged strings, and detection of errors in place of resources.
//!
//! BMCs copy asset tags, serial numbers and part numbers from FRU memory into their documents without checking them.
//! One damaged string must not make the rest of the document unknown. Bytes that are not UTF-8 become U+FFFD, and the
//! interpreter treats a text with that character as unreadable. Outside of strings nothing is repaired, because a
//! damaged number would become a wrong one.

use serde_json::Value;
use std::borrow::Cow;

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 200;

/// Parses a document. A byte-order mark at its start and NULs at its end are ignored, UTF-16 is accepted with such a
/// mark, and damaged strings are repaired.
///
/// # Errors
/// The document is not JSON, also after repairing its strings.
pub(crate) fn parse(body: &[u8]) -> Result<Value, serde_json::Error> {
    let text = plain_text(body);
    let strict = serde_json::from_slice(&text);
    if strict.is_ok() {
        return strict;
    }
    repair_strings(&text).map_or(strict, |text| serde_json::from_slice(&text))
}

/// Whether the body is an error (DSP0266, section 8.6) and not a resource, whatever the status of the answer is. The
/// properties of a resource begin with a capital letter.
pub(crate) fn is_error(body: &Value) -> bool {
    let Some(members) = body.as_object() else {
        return false;
    };
    let is_capital = |name: &String| name.starts_with(|c: char| c.is_ascii_uppercase());
    let has_error = members
        .get("error")
        .is_some_and(|error| error.is_object() || error.is_string());
    // The form of an iLO 4.
    let kind = body["Type"].as_str();
    kind.is_some_and(|kind| kind.starts_with("ExtendedError."))
        || (has_error || members.contains_key("@Message.ExtendedInfo"))
            && !members.keys().any(is_capital)
}

/// The first message id and text of an error, shortened; empty if there is none.
pub(crate) fn message(body: &Value) -> String {
    let error = &body["error"];
    let infos = [
        &error["@Message.ExtendedInfo"][0],
        &body["@Message.ExtendedInfo"][0],
        &body["Messages"][0],
    ];
    let mut infos = infos.into_iter().filter(|info| info.is_object());
    let info = infos.next().unwrap_or(&Value::Null);
    let parts = [
        &info["MessageId"],
        &info["MessageID"],
        &info["Message"],
        &error["message"],
        &error["code"],
        error,
    ];
    let mut texts = parts.into_iter().filter_map(Value::as_str);
    let text = match (texts.next(), texts.next()) {
        (Some(id), Some(message)) => format!("{id}: {message}"),
        (Some(only), None) => only.to_owned(),
        _ => String::new(),
    };
    let plain = |letter: &char| !letter.is_control();
    text.chars().filter(plain).take(MAX_MESSAGE_CHARS).collect()
}

/// The text in UTF-8, without a byte-order mark and without NULs at the end.
fn plain_text(body: &[u8]) -> Cow<'_, [u8]> {
    let units = |of: fn([u8; 2]) -> u16| {
        let pairs = body.get(2..).unwrap_or_default().chunks_exact(2);
        let units = pairs.map(move |pair| of([pair[0], pair[1]]));
        let letters = char::decode_utf16(units);
        let letters = letters.map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER));
        letters.collect::<String>().into_bytes()
    };
    let text: Cow<'_, [u8]> = match body {
        [0xef, 0xbb, 0xbf, text @ ..] => Cow::Borrowed(text),
        [0xff, 0xfe, ..] => Cow::Owned(units(u16::from_le_bytes)),
        [0xfe, 0xff, ..] => Cow::Owned(units(u16::from_be_bytes)),
        text => Cow::Borrowed(text),
    };
    let end = text.iter().rposition(|byte| *byte != 0);
    let length = end.map_or(0, |last| last + 1);
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(..length).unwrap_or(text)),
        Cow::Owned(mut text) => {
            text.truncate(length);
            Cow::Owned(text)
        }
    }
}

/// The text with valid strings; `None` if there is nothing to repair.
fn repair_strings(text: &[u8]) -> Option<Vec<u8>> {
    let mut repaired = Vec::with_capacity(text.len() + 64);
    let mut is_changed = false;
    let mut is_string = false;
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let (length, replacement) = match first {
            b'"' => {
                is_string = !is_string;
                (1, None)
            }
            _ if !is_string => (1, None),
            b'\\' => check_escape(rest),
            0..=0x1f => (1, Some(format!("\\u{first:04x}"))),
            0x20..=0x7f => (1, None),
            _ => check_letter(rest),
        };
        let (taken, others) = rest.split_at(length.min(rest.len()));
        match replacement {
            Some(replacement) => {
                repaired.extend_from_slice(replacement.as_bytes());
                is_changed = true;
            }
            None => repaired.extend_from_slice(taken),
        }
        rest = others;
    }
    is_changed.then_some(repaired)
}

/// Length of the escape sequence at the start, and the replacement of an invalid one. A single backslash is a text of
/// the firmware, and half of a surrogate pair is a damaged letter.
fn check_escape(rest: &[u8]) -> (usize, Option<String>) {
    let damaged = || Some(char::REPLACEMENT_CHARACTER.to_string());
    match (rest.get(1), unicode_escape(rest)) {
        (Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'), _) => (2, None),
        (_, Some(0xd800..=0xdbff)) => {
            let low = rest.get(6..).and_then(unicode_escape);
            match low {
                Some(0xdc00..=0xdfff) => (12, None),
                _ => (6, damaged()),
            }
        }
        (_, Some(0xdc00..=0xdfff)) => (6, damaged()),
        (_, Some(_)) => (6, None),
        _ => (1, Some("\\\\".to_owned())),
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

/// Length of the letter at the start in UTF-8, and the replacement of a byte that is not UTF-8.
fn check_letter(rest: &[u8]) -> (usize, Option<String>) {
    const LONGEST: usize = 4;
    let head = rest.get(..LONGEST).unwrap_or(rest);
    let valid = match std::str::from_utf8(head) {
        Ok(_) => head.len(),
        Err(error) => error.valid_up_to(),
    };
    let letters = std::str::from_utf8(&head[..valid]).unwrap_or_default();
    match letters.chars().next() {
        Some(letter) => (letter.len_utf8(), None),
        None => (1, Some(char::REPLACEMENT_CHARACTER.to_string())),
    }
}

#[cfg(test)]
#[path = "body/tests.rs"]
mod tests;
