//! Syntax of JSON files, with its mistakes in the words of a configuration file.

use crate::Problem;
use serde_json::error::Category;
use serde_yaml_ng::Value;

/// Parses a JSON text; an empty one is a file without keys.
pub(crate) fn parse(text: &str) -> Result<Value, Problem> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(text).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let what = match error.classify() {
            Category::Eof => "the text ends too early".to_owned(),
            Category::Syntax => "a character is missing or not allowed".to_owned(),
            // Values of every type are read here, so only a repeated key remains.
            Category::Data | Category::Io => "a key is repeated".to_owned(),
        };
        Problem::without_key(format!("malformed JSON: {what}, at {place}"))
    })
}
