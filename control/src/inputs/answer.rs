//! A number in a source's JSON answer.

use serde_json::Value;

/// What is read of such an answer at most, bytes.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// So much of what an answer says instead is shown, characters.
const SHOWN: usize = 60;

/// Why there is no number in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// It is no JSON.
    #[error("the answer is no JSON: {reason}")]
    NotJson {
        /// Why, with line and column.
        reason: String,
    },
    /// There is nothing at the place.
    #[error("the answer has nothing at {pointer}")]
    Missing {
        /// The place, as a JSON pointer.
        pointer: String,
    },
    /// There is something else.
    #[error("{pointer} is {found}, not {expected}")]
    Other {
        /// The place, as a JSON pointer.
        pointer: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
}

/// The number at `pointer` (RFC 6901), which `is_one` must take; `None` where the answer says `null`: the
/// source does not know. A text that is a number counts as one: Prometheus writes them so.
pub(crate) fn number(
    body: &[u8],
    pointer: &str,
    expected: &'static str,
    is_one: impl Fn(f64) -> bool,
) -> Result<Option<f64>, AnswerError> {
    let answer: Value = serde_json::from_slice(body).map_err(|error| AnswerError::NotJson {
        reason: error.to_string(),
    })?;
    let pointer_text = || match pointer {
        "" => "its top".to_owned(),
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
    let number = number.filter(|number| number.is_finite() && is_one(*number));
    number.map(Some).ok_or_else(|| AnswerError::Other {
        pointer: pointer_text(),
        found: found.to_string().chars().take(SHOWN).collect(),
        expected,
    })
}
