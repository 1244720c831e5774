//! Conversion of text to values: whitespace, placeholders, numbers.

use crate::reading::to_nfc;
use crate::{Reading, Value};

/// Placeholders that firmware writes for missing values, in lower case.
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
    "base board serial number",
    "base board version",
    "chassis serial number",
    "chassis version",
    "not settable",
    "sku",
    "0123456789",
    "123456789",
    "x.x",
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

/// Maximum length of a firmware text, in bytes. SMBIOS sets no limit, but no meaningful text is longer; a longer one
/// indicates damage.
const MAX_TEXT_BYTES: usize = 256;

/// Trims and collapses whitespace and NULs, and normalises to NFC, so that a text has the same form from every source;
/// case is kept.
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
    to_nfc(out)
}

/// The start of a text, for a message.
#[must_use]
pub fn excerpt(raw: &str) -> String {
    const LONGEST: usize = 80;
    let beginning: String = raw.chars().take(LONGEST * 2).collect();
    let mut text: String = collapse(&beginning).chars().take(LONGEST).collect();
    if raw.len() > beginning.len() {
        text.push('…');
    }
    text
}

/// The text that a device, the firmware or the kernel wrote as bytes. Bytes that are not UTF-8 are a failure, which quotes
/// them: an operator can then compare the bytes with the output of other tools. `what` names the source.
#[must_use]
pub fn decode<'b>(what: &str, bytes: &'b [u8]) -> Reading<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Reading::Present(text),
        Err(error) => {
            let quoted = escaped_around(bytes, error.valid_up_to());
            Reading::failed(format!("{what}: not UTF-8: \"{quoted}\""))
        }
    }
}

/// The start of a byte string, for a message. Control characters, quotes, backslashes and bytes beyond ASCII are escaped
/// (`\n`, `\xff`); white space at the end is omitted.
#[must_use]
pub fn escaped(bytes: &[u8]) -> String {
    escaped_around(bytes, 0)
}

/// An escaped part of a byte string that contains the byte at `at`.
fn escaped_around(bytes: &[u8], at: usize) -> String {
    const LONGEST: usize = 80;
    let bytes = bytes.trim_ascii_end();
    let begin = match bytes.len() > LONGEST {
        true => at.saturating_sub(LONGEST / 2).min(bytes.len()),
        false => 0,
    };
    let end = bytes.len().min(begin + LONGEST);
    let ellipsis = |is_cut: bool| if is_cut { "…" } else { "" };
    format!(
        "{}{}{}",
        ellipsis(begin > 0),
        bytes[begin..end].escape_ascii(),
        ellipsis(end < bytes.len())
    )
}

/// Maximum length of a value, in bytes; a kernel command line may have 4 KiB, and processor features 3 KiB.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

fn bounded(text: String) -> Reading<String> {
    if text.len() > MAX_VALUE_BYTES {
        return Reading::failed(format!("a value of more than {MAX_VALUE_BYTES} bytes"));
    }
    Reading::Present(text)
}

/// Text from the kernel, in which words such as `none` and `off` are values and not placeholders.
#[must_use]
pub fn plain(raw: &str) -> Reading<String> {
    let text = collapse(raw);
    if text.is_empty() {
        Reading::Unsupported
    } else {
        bounded(text)
    }
}

/// Text from firmware. Placeholders and fillers are unsupported, and so is a text of zeros only (`0.0`, `00.00.0000`,
/// `0x0`), which is how an unwritten version reads. A single `0` is a value: board revisions and steppings start with
/// it.
#[must_use]
pub fn firmware(raw: &str) -> Reading<String> {
    setting(raw).and_then(|text| match is_of_zeros(&text) {
        true => Reading::Unsupported,
        false => Reading::Present(text),
    })
}

/// A setting of firmware or a driver: as [`firmware`], but a text of zeros is a value.
#[must_use]
pub fn setting(raw: &str) -> Reading<String> {
    let text = collapse(raw);
    if text.len() > MAX_TEXT_BYTES {
        return Reading::failed(format!(
            "text of {} bytes exceeds the limit of {MAX_TEXT_BYTES} bytes",
            text.len()
        ));
    }
    if text.chars().any(char::is_control) {
        return Reading::failed(format!(
            "control characters in a text of the firmware: \"{}\"",
            escaped(text.as_bytes())
        ));
    }
    let lower = text.to_ascii_lowercase();
    let is_filler = |c: char| matches!(c, '.' | '-' | '_' | '*' | '?' | ' ');
    let repeats = |c: char| text.len() > 3 && text.chars().all(|other| other == c);
    if text.chars().all(is_filler)
        || PLACEHOLDERS.contains(&lower.as_str())
        || repeats('F')
        || repeats('X')
    {
        Reading::Unsupported
    } else {
        bounded(text)
    }
}

/// Whether the text consists of zeros and the separators of a version, an address or an id.
fn is_of_zeros(text: &str) -> bool {
    let prefix = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = prefix.unwrap_or(text);
    let is_separator = |c: char| matches!(c, '.' | '-' | '_' | ':' | '/' | ' ');
    text != "0" && digits.contains('0') && digits.chars().all(|c| c == '0' || is_separator(c))
}

/// A hexadecimal id: in lower case, without `0x`, zero-padded to `width`.
#[must_use]
pub fn hex_id(raw: &str, width: usize) -> Reading<String> {
    let digits = raw.trim().trim_start_matches("0x").to_ascii_lowercase();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Reading::failed(format!("\"{}\" is not a hexadecimal id", excerpt(raw)));
    }
    Reading::Present(format!("{digits:0>width$}"))
}

/// A hexadecimal number as drivers print counters (`0x1f`).
#[must_use]
pub fn hex_number(raw: &str) -> Reading<Value> {
    let digits = raw.trim().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_or_else(
        |_| Reading::failed(format!("\"{}\" is not a hexadecimal number", collapse(raw))),
        |number| Reading::Present(Value::amount(number)),
    )
}

/// An integer if the text is one in canonical form, otherwise text.
#[must_use]
pub fn number_or_text(text: String) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::Number(number),
        _ => Value::Text(text),
    }
}

/// An unsigned integer; any other text is a failure that quotes the text.
#[must_use]
pub fn unsigned(text: &str) -> Reading<u64> {
    text.trim().parse().map_or_else(
        |_| Reading::failed(format!("\"{}\" is not a number", excerpt(text))),
        Reading::Present,
    )
}

/// The selected word of `always [madvise] never`; a text without brackets is returned as it is.
#[must_use]
pub fn selected_word(text: &str) -> Reading<String> {
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(word, _)| word);
    plain(chosen)
}

/// Count of numbers in a kernel list (`0-3,8,10-11`).
#[must_use]
pub fn list_length(list: &str) -> Reading<u32> {
    let mut count: u32 = 0;
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let length = match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < 1 << 20 => Some(last - first + 1),
            _ => None,
        };
        match length.and_then(|length| count.checked_add(length)) {
            Some(sum) => count = sum,
            None => return Reading::failed(format!("\"{}\" is not a valid list", excerpt(list))),
        }
    }
    Reading::Present(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_firmware_are_no_value() {
        for raw in [
            "",
            "  ",
            "\0",
            "N/A",
            "na",
            " To Be Filled By O.E.M.",
            "Not  Specified",
            "ff",
            "FFFFFFFF",
            "undefined",
            "None",
            "Default string",
            "0000000000",
            "0.0",
            "0.0.0.0",
            "00.00.0000",
            "0.0-0",
            "00",
            "0x0",
            "0X00",
            " 0x00000000\n",
            "00:00:00:00:00:00",
            "-",
            "...",
            "[N/A]",
            "Unknown",
        ] {
            assert_eq!(firmware(raw), Reading::Unsupported, "{raw:?}");
        }
        for raw in ["\u{1}\u{2}", &"V".repeat(257)] {
            assert!(matches!(firmware(raw), Reading::Failed { .. }), "{raw:?}");
        }
        for raw in [
            "0", "1.0", "0.1", "0.0.1", "0x1", "0x", "A00", "0.0a", "FA12", "000A", "nas-01",
            "NAND",
        ] {
            assert_eq!(firmware(raw), Reading::Present(raw.to_owned()));
        }
        // Zeros can be the chosen value of a setting; a placeholder cannot.
        for raw in ["0", "00", "0x0", "0.0", "0000"] {
            assert_eq!(setting(raw), Reading::Present(raw.to_owned()));
        }
        assert_eq!(setting("N/A"), Reading::Unsupported);
    }

    #[test]
    fn words_of_the_kernel_mean_what_they_say() {
        assert_eq!(plain("none\n"), Reading::Present("none".to_owned()));
        assert_eq!(plain("a \t b\n"), Reading::Present("a b".to_owned()));
        assert_eq!(plain("\n"), Reading::Unsupported);
        assert_eq!(
            selected_word("always [madvise] never"),
            Reading::Present("madvise".to_owned())
        );
        assert_eq!(selected_word("tsc"), Reading::Present("tsc".to_owned()));
    }

    #[test]
    fn ids_are_padded_and_lower_case() {
        assert_eq!(hex_id("0x10DE", 4), Reading::Present("10de".to_owned()));
        assert_eq!(hex_id("a1", 4), Reading::Present("00a1".to_owned()));
        assert!(matches!(hex_id("xyz", 4), Reading::Failed { .. }));
    }

    #[test]
    fn only_usual_integers_become_numbers() {
        assert_eq!(number_or_text("60".into()), Value::Number(60));
        assert_eq!(number_or_text("-1".into()), Value::Number(-1));
        for text in ["007", "+1", "1 2", "18446744073692774399", "Y"] {
            assert_eq!(number_or_text(text.into()), Value::from(text));
        }
    }

    #[test]
    fn lists_are_counted_and_damaged_ones_refused() {
        assert_eq!(list_length("0-3,8,10-11\n"), Reading::Present(7));
        assert_eq!(list_length(""), Reading::Present(0));
        for list in ["3-1", "a", "0-99999999999", "0-4294967294"] {
            assert!(
                matches!(list_length(list), Reading::Failed { .. }),
                "{list}"
            );
        }
        // The sum exceeds the number range.
        let list = "0-1048575,".repeat(5000);
        assert!(matches!(list_length(&list), Reading::Failed { .. }));
    }

    #[test]
    fn bytes_beyond_utf8_are_quoted_in_the_failure() {
        let why = |reading: Reading<&str>| match reading {
            Reading::Failed { why } => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(decode("x", "Größe".as_bytes()), Reading::Present("Größe"));
        // ISO 8859-1, and the product version of a Dell R6515.
        assert_eq!(
            why(decode("board_name", b"Gr\xf6\xdfe\n")),
            r#"board_name: not UTF-8: "Gr\xf6\xdfe""#
        );
        assert_eq!(
            why(decode("product_version", b"\xff\x1c[\xfe\"\n")),
            r#"product_version: not UTF-8: "\xff\x1c[\xfe\"""#
        );
        // A long text is cut, and the invalid byte is in the rest.
        let mut long = vec![b'a'; 500];
        long[300] = 0xff;
        let why = why(decode("x", &long));
        assert!(why.contains("\\xff") && why.len() < 120, "{why}");
        assert!(why.contains("\"…a") && why.ends_with("a…\""), "{why}");
        let Reading::Failed { why } = firmware("A\u{1}B") else {
            panic!("a control character is no value");
        };
        assert!(why.ends_with(r#": "A\x01B""#), "{why}");
        assert_eq!(escaped(b""), "");
    }

    #[test]
    fn values_and_messages_have_a_length() {
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        for read in [plain, firmware] {
            assert!(matches!(read(&long), Reading::Failed { .. }));
            assert!(
                read(&long[..MAX_VALUE_BYTES])
                    .present()
                    .is_none_or(|v| v.len() == MAX_VALUE_BYTES)
            );
        }
        let Reading::Failed { why } = unsigned(&long) else {
            panic!();
        };
        assert!(why.len() < 200, "{why}");
        assert!(why.contains('…'));
        assert_eq!(excerpt(" a  b\n"), "a b");
    }
}
