//! YAML values that JSON cannot represent.

use crate::problem::FieldError;
use serde_yaml_ng::Value;

/// Rejects numbers that are not finite: JSON cannot represent them, and a request would be read as if they had been
/// left out.
///
/// # Errors
/// The first such number, by its path (`members[1].data_ready`).
pub fn all_finite(value: &Value) -> Result<(), FieldError> {
    check_below(value, "")
}

fn check_below(value: &Value, path: &str) -> Result<(), FieldError> {
    match value {
        Value::Number(number) if !number.is_finite() => Err(FieldError {
            field: path.to_owned(),
            reason: format!("{number} is not a finite number"),
        }),
        Value::Sequence(all) => (all.iter().enumerate())
            .try_for_each(|(place, value)| check_below(value, &format!("{path}[{place}]"))),
        Value::Mapping(fields) => fields.iter().try_for_each(|(name, value)| {
            let name = name.as_str().unwrap_or("?");
            let dot = if path.is_empty() { "" } else { "." };
            check_below(value, &format!("{path}{dot}{name}"))
        }),
        _ => Ok(()),
    }
}
