//! Texts of mistakes, in the words of a configuration file instead of those of the Rust types that read it.

use crate::suggestion;
use serde::de::{Expected, Unexpected};
use serde_yaml_ng::Value;

/// Form of a socket address.
pub(crate) const ADDRESS: &str = "an address with a port, like 10.0.0.1:7101 or [fd00::1]:7101";
/// Longest part of a wrong value in a message, characters.
const MAX_SHOWN_CHARS: usize = 60;

/// Describes a value of the wrong type, or out of range.
pub(crate) fn mismatch(found: Unexpected<'_>, wanted: &dyn Expected) -> String {
    let wanted = expected(&wanted.to_string());
    format!("must be {wanted}, not {}", unexpected(found))
}

/// Describes a word that is not among the known ones.
pub(crate) fn unknown_word(word: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    let near = suggestion::nearest(word, known.iter().copied());
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    format!("must be one of {list}, not {}{hint}", quoted(word))
}

/// Names what a type expects. The texts on the left are those of serde and of the standard library.
pub(crate) fn expected(text: &str) -> String {
    let range = |most: u64| format!("a whole number from 0 to {most}");
    match text {
        "u8" => range(u8::MAX.into()),
        "u16" => range(u16::MAX.into()),
        "u32" => range(u32::MAX.into()),
        "u64" | "u128" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "a borrowed string" | "a character" => "a text".to_owned(),
        "path string" => "a path".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "keys and values".to_owned(),
        "unit" => "nothing".to_owned(),
        "newtype variant" | "tuple variant" | "struct variant" => {
            "a word with its value, as {word: value}".to_owned()
        }
        "socket address" | "IPv4 socket address" | "IPv6 socket address" => ADDRESS.to_owned(),
        "IP address" | "IPv4 address" | "IPv6 address" => "an IP address".to_owned(),
        other => match other.strip_prefix("a nonzero ") {
            Some(_) => "a whole number, 1 or more".to_owned(),
            None if other.starts_with("struct ") => "keys and values".to_owned(),
            None if other.starts_with("enum ") => "one of the known words".to_owned(),
            None => other.to_owned(),
        },
    }
}

/// Replaces the text of a parser of the standard library. Other texts stay as they are.
pub(crate) fn reword(text: String) -> String {
    match text.as_str() {
        "invalid socket address syntax"
        | "invalid IPv4 socket address syntax"
        | "invalid IPv6 socket address syntax" => format!("must be {ADDRESS}"),
        "invalid IP address syntax"
        | "invalid IPv4 address syntax"
        | "invalid IPv6 address syntax" => {
            "must be an IP address, like 10.0.0.1 or fd00::1".to_owned()
        }
        "invalid digit found in string" => "must be a whole number".to_owned(),
        "invalid float literal" => "must be a number".to_owned(),
        "provided string was not `true` or `false`" => "must be true or false".to_owned(),
        _ => text,
    }
}

/// Describes a value of the file: its text or number, or its kind.
pub(crate) fn found(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) => format!("the text {}", quoted(text)),
        other => kind(other).to_owned(),
    }
}

/// Kind of a value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "keys and values",
        Value::Tagged(_) => "a tagged value",
    }
}

fn unexpected(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Char(value) => format!("the text {}", quoted(value.encode_utf8(&mut [0; 4]))),
        Unexpected::Str(text) => format!("the text {}", quoted(text)),
        Unexpected::Bytes(_) => "bytes".to_owned(),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map | Unexpected::NewtypeStruct => "keys and values".to_owned(),
        Unexpected::Other(text) => text.to_owned(),
        Unexpected::Enum
        | Unexpected::UnitVariant
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant => "a word".to_owned(),
    }
}

/// Text in quotes, with control characters escaped, and shortened.
fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
