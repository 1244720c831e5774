//! Documents for programs. Their values are exact: unsafe characters are escaped as the format allows.

use crate::terminal::is_unsafe;
use serde::Serialize;

/// Formats a value as JSON. `serde_json` escapes control characters below space only.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(escape(text, |c| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    }))
}

/// Formats a value as YAML. Where a plain text would contain unsafe characters, all strings are quoted: the document is
/// then written as JSON is, which is YAML too.
pub fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_yaml_ng::to_string(value)?;
    if is_safe(&text) {
        return Ok(text.trim_end().to_owned());
    }
    let text = serde_json::to_string_pretty(value)?;
    Ok(escape(text, |c| match u32::from(c) {
        code @ 0..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }))
}

fn is_safe(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !is_unsafe(c))
}

/// Escapes the unsafe characters of a document in which they occur only within quoted strings.
fn escape(text: String, escaped: impl Fn(char) -> String) -> String {
    if is_safe(&text) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c == '\n' || !is_unsafe(c) {
            true => shown.push(c),
            false => shown.push_str(&escaped(c)),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn documents_are_exact_and_safe() {
        for text in [
            "\u{1b}[31mRED\u{1b}[2J\u{7}",
            "\u{9b}31m \u{7f} \u{85}",
            "\u{202e}reversed",
            "tag \u{e0041}",
            "two\nlines\u{2028} and \"quotes\" \\",
            "tab\tand\r",
        ] {
            let value = json!({"reason": text, "nodes": [1, text], "note": null});
            let as_json = super::json(&value).unwrap();
            assert!(is_safe(&as_json), "{as_json:?}");
            assert_eq!(serde_json::from_str::<Value>(&as_json).unwrap(), value);
            let as_yaml = yaml(&value).unwrap();
            assert!(is_safe(&as_yaml), "{as_yaml:?}");
            assert_eq!(serde_yaml_ng::from_str::<Value>(&as_yaml).unwrap(), value);
        }
    }

    #[test]
    fn plain_documents_have_the_usual_form() {
        let value = json!({"reason": "fan is loud: 5 °C"});
        assert_eq!(
            super::json(&value).unwrap(),
            "{\n  \"reason\": \"fan is loud: 5 °C\"\n}"
        );
        assert_eq!(yaml(&value).unwrap(), "reason: 'fan is loud: 5 °C'");
    }
}
