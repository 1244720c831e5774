//! Serialization of numbers in requests.

use serde::{Serialize, Serializer, ser::Error};

/// Serializes a finite number. JSON has no NaN and no infinity: written as `null` they would mean "left out", and a
/// request would do less than its caller intended.
pub(crate) fn finite<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(number) if !number.is_finite() => Err(S::Error::custom(format!(
            "{number} cannot be sent; it must be a finite number"
        ))),
        value => value.serialize(serializer),
    }
}

/// As [`finite`], for a field that is always present.
pub(crate) fn finite_one<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    finite(&Some(*value), serializer)
}

/// As [`finite`], for a field that `null` resets.
pub(crate) fn finite_or_null<S: Serializer>(
    value: &Option<Option<f64>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    finite(&value.flatten(), serializer)
}

/// Value that may be a number without a JSON form.
pub(crate) trait JsonNumber: Serialize {
    /// Whether JSON can represent the value.
    fn is_sendable(&self) -> bool {
        true
    }
}

impl JsonNumber for bool {}

impl JsonNumber for u32 {}

impl JsonNumber for f64 {
    fn is_sendable(&self) -> bool {
        self.is_finite()
    }
}

/// As [`finite_or_null`], for any type of value.
pub(crate) fn finite_or_null_of<T: JsonNumber, S: Serializer>(
    value: &Option<Option<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(Some(value)) if !value.is_sendable() => Err(S::Error::custom(
            "a number that is not finite cannot be sent; it must be a finite number",
        )),
        value => value.serialize(serializer),
    }
}

#[cfg(test)]
mod tests {
    use crate::tenancy::scheduler::WeightsChange;

    #[test]
    fn what_is_not_finite_is_not_left_out_in_silence() {
        let energy = |energy| WeightsChange {
            energy,
            ..WeightsChange::default()
        };
        for number in [f64::NAN, f64::INFINITY] {
            let json = serde_json::to_string(&energy(Some(number))).map_err(|e| e.to_string());
            assert!(
                json.is_err_and(|e| e.contains("cannot be sent")),
                "{number}"
            );
        }
        let sent = |number| serde_json::to_string(&energy(number)).ok();
        assert_eq!(sent(Some(0.5)).as_deref(), Some(r#"{"energy":0.5}"#));
        assert_eq!(sent(None).as_deref(), Some("{}"));
    }
}
