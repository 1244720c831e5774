//! Documents for programs. Their values are exact: unsafe characters are escaped as the format allows.

use crate::terminal::{escape_json, escape_yaml};
use serde::Serialize;

/// Formats a value as JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(escape_json(&serde_json::to_string_pretty(value)?))
}

/// Formats a value as YAML, or as JSON where its text would contain unsafe characters.
pub fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_yaml_ng::to_string(value)?;
    let text = escape_yaml(text, || serde_json::to_string_pretty(value))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_host::terminal::is_unsafe;
    use serde_json::{Value, json};

    fn is_safe(text: &str) -> bool {
        text.chars().all(|c| c == '\n' || !is_unsafe(c))
    }

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
