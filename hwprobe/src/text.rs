//! How text becomes a value: blanks, placeholders, numbers.

use crate::{Reading, Value};

/// What firmware writes where it has nothing to say, lower-case.
const PLACEHOLDERS: &[&str] = &[
    "n/a",
    "na",
    "none",
    "null",
    "nil",
    "unknown",
    "undefined",
    "unspecified",
    "not specified",
    "not available",
    "not applicable",
    "not provided",
    "not present",
    "no asset tag",
    "default string",
    "default",
    "to be filled by o.e.m.",
    "to be filled by o.e.m",
    "to be filled by oem",
    "o.e.m.",
    "oem",
    "system manufacturer",
    "system product name",
    "system version",
    "system serial number",
    "invalid",
    "empty",
    "ff",
    "ffff",
    "ffffffff",
    "0xff",
    "0xffff",
    "[n/a]",
    "[not supported]",
    "<bad index>",
    "<out of spec>",
];

/// Trims and collapses inner blanks; case is kept.
#[must_use]
pub fn collapse(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let parts = raw.split(|c: char| c.is_whitespace() || c == '\0');
    for part in parts.filter(|part| !part.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(part);
    }
    out
}

/// Text from the kernel, whose words (`none`, `off`) mean what they say.
#[must_use]
pub fn plain(raw: &str) -> Reading<String> {
    let text = collapse(raw);
    if text.is_empty() {
        Reading::Unsupported
    } else {
        Reading::Present(text)
    }
}

/// Text from firmware: placeholders and fillers are no value.
#[must_use]
pub fn firmware(raw: &str) -> Reading<String> {
    let text = collapse(raw);
    let lower = text.to_ascii_lowercase();
    let is_filler = |c: char| matches!(c, '.' | '-' | '_' | '*' | '?' | ' ');
    let repeats = |c: char| text.len() > 3 && text.chars().all(|other| other == c);
    if text.chars().all(is_filler)
        || PLACEHOLDERS.contains(&lower.as_str())
        || repeats('0')
        || repeats('F')
        || repeats('X')
    {
        Reading::Unsupported
    } else {
        Reading::Present(text)
    }
}

/// A hexadecimal id: lower-case, without `0x`, zero padded to `width`.
#[must_use]
pub fn hex_id(raw: &str, width: usize) -> Reading<String> {
    let digits = raw.trim().trim_start_matches("0x").to_ascii_lowercase();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Reading::failed(format!("\"{}\" is no hexadecimal id", collapse(raw)));
    }
    Reading::Present(format!("{digits:0>width$}"))
}

/// An integer where the text is one in its usual form, text otherwise.
#[must_use]
pub fn number_or_text(text: String) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::Number(number),
        _ => Value::Text(text),
    }
}

/// An unsigned integer; anything else is a failure that shows the text.
#[must_use]
pub fn unsigned(text: &str) -> Reading<u64> {
    text.trim().parse().map_or_else(
        |_| Reading::failed(format!("\"{}\" is no number", collapse(text))),
        Reading::Present,
    )
}

/// The chosen word of `always [madvise] never`; text without brackets as it is.
#[must_use]
pub fn chosen(text: &str) -> Reading<String> {
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(word, _)| word);
    plain(chosen)
}

/// How many numbers a kernel list (`0-3,8,10-11`) names.
#[must_use]
pub fn list_length(list: &str) -> Reading<u32> {
    let mut count: u32 = 0;
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < 1 << 20 => count += last - first + 1,
            _ => return Reading::failed(format!("\"{}\" is no list", collapse(list))),
        }
    }
    Reading::Present(count)
}
