//! Extraction of a number from a source's JSON reply.

use serde_json::Value;

/// Largest reply that is read, in bytes.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// Maximum characters of an unexpected value shown in an error.
const SHOWN: usize = 60;

/// Reason why a reply contains no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// The reply is not JSON.
    #[error("response is not valid JSON: {reason}")]
    NotJson {
        /// Parse error with line and column.
        reason: String,
    },
    /// The reply has no value at the pointer.
    #[error("response has no value at {pointer}")]
    Missing {
        /// JSON pointer.
        pointer: String,
    },
    /// The value at the pointer is not the expected number.
    #[error("{pointer} is {found}, not {expected}")]
    Other {
        /// JSON pointer.
        pointer: String,
        /// Value found, shortened.
        found: String,
        /// Description of the expected value.
        expected: &'static str,
    },
}

/// The number at `pointer` (RFC 6901), which `is_valid` must accept; `None` where the value is `null`: the source has
/// no data. A string that contains a number is accepted, because Prometheus writes numbers as strings.
pub(crate) fn number(
    body: &[u8],
    pointer: &str,
    expected: &'static str,
    is_valid: impl Fn(f64) -> bool,
) -> Result<Option<f64>, AnswerError> {
    let answer: Value = serde_json::from_slice(body).map_err(|error| AnswerError::NotJson {
        reason: error.to_string(),
    })?;
    let pointer_text = || match pointer {
        "" => "the document root".to_owned(),
        pointer => pointer.to_owned(),
    };
    let found = answer.pointer(pointer);
    let found = found.ok_or_else(|| AnswerError::Missing {
        pointer: pointer_text(),
    })?;
    let number = match found {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let number = number.filter(|number| number.is_finite() && is_valid(*number));
    number.map(Some).ok_or_else(|| AnswerError::Other {
        pointer: pointer_text(),
        found: found.to_string().chars().take(SHOWN).collect(),
        expected,
    })
}
