//! Flat form of one document, for CSV: a column for each field, named by its path in the JSON document.

use serde::Serialize;
use serde_json::Value;

/// Returns the fields of a document with their paths, joined by `_`, and their values as text. A list of plain values is
/// separated by commas; any other list is compact JSON, so that no field is lost.
pub(super) fn flat_fields(value: &impl Serialize) -> anyhow::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    add(&mut fields, "", &serde_json::to_value(value)?);
    Ok(fields)
}

fn add(fields: &mut Vec<(String, String)>, path: &str, value: &Value) {
    let text = match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}_{key}"),
                };
                add(fields, &path, value);
            }
            return;
        }
        Value::Array(items) => match items.iter().map(plain).collect::<Option<Vec<_>>>() {
            Some(items) => items.join(","),
            None => value.to_string(),
        },
        other => plain(other).unwrap_or_default(),
    };
    let path = match path {
        "" => "value",
        path => path,
    };
    fields.push((path.to_owned(), text));
}

/// Returns the text of a value that is neither an object nor a list; that of `null` is empty.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_named_by_their_path() {
        let document = json!({
            "path": "atlas/web", "limits": {"max_nodes": 4, "other": null}, "admins": ["ada", "bo"],
            "conflicts": [{"allocation": 7}], "is_open": true,
        });
        let mut fields = flat_fields(&document).unwrap();
        fields.sort();
        let expected = [
            ("admins", "ada,bo"),
            ("conflicts", r#"[{"allocation":7}]"#),
            ("is_open", "true"),
            ("limits_max_nodes", "4"),
            ("limits_other", ""),
            ("path", "atlas/web"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(fields, expected);
        assert_eq!(
            flat_fields(&3).unwrap(),
            [("value".to_owned(), "3".to_owned())]
        );
    }
}
