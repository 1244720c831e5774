//! Conditions of health checks: when a reading is bad.

use super::Pattern;
use crate::{Reading, Value};
use serde::{Deserialize, Serialize};

/// One condition on one value. Exactly one field must be set: see [`Condition::has_one_condition`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Bad if the value equals this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
    /// Bad if the value differs from this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_not: Option<Value>,
    /// Bad if the number is this or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<i64>,
    /// Bad if the number has one of these bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_bits: Option<i64>,
    /// Bad if the number is at least that of another key, live or conformance. Each `*` in this key takes the segment
    /// matched by the check's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches: Option<Pattern>,
    /// Bad if the number is not above that of another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Pattern>,
    /// Bad if the number is less than that of another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Pattern>,
    /// Bad if the value was this one earlier in this boot of the node and differs now. A value that never matched in
    /// this boot is considered intended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_longer: Option<Value>,
    /// Bad if the counter rises too fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rises: Option<CounterRise>,
}

/// Bad rise of a counter: `by` or more within `within_s`. Samples may be further apart, for example after the agent was
/// stopped. The rise between them is bad only if some period of `within_s` must have had a rise of `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterRise {
    /// Smallest rise that is bad.
    pub by: i64,
    /// Length of the window, in seconds.
    pub within_s: u64,
}

/// Result of a condition for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConditionResult {
    /// The value is bad, with the evidence.
    Bad(String),
    /// The value is good.
    Good,
    /// The value, or the one it is compared with, is unknown.
    Unknown,
}

impl Condition {
    /// Whether exactly one field is set.
    #[must_use]
    pub fn has_one_condition(&self) -> bool {
        let asked = [
            self.is.is_some(),
            self.is_not.is_some(),
            self.at_least.is_some(),
            self.has_bits.is_some(),
            self.reaches.is_some(),
            self.at_most.is_some(),
            self.below.is_some(),
            self.no_longer.is_some(),
            self.rises.is_some(),
        ];
        asked.into_iter().filter(|asked| *asked).count() == 1
    }

    /// Why a number of the condition makes it true always, or never; `None` if it does not.
    pub(super) fn mistake(&self) -> Option<&'static str> {
        match (self.rises, self.has_bits) {
            (Some(rise), _) if rise.by < 1 => {
                Some("when.rises.by must be at least 1; a lower value is always reached")
            }
            (Some(rise), _) if rise.within_s < 1 => {
                Some("when.rises.within_s must be at least 1 second")
            }
            (_, Some(0)) => Some("when.has_bits must have at least one bit set"),
            _ => None,
        }
    }

    /// The key to compare with, if any.
    pub(super) fn other_key(&self) -> Option<&Pattern> {
        let mut others = [&self.reaches, &self.at_most, &self.below].into_iter();
        others.find_map(Option::as_ref)
    }

    /// Evaluates a condition that needs no stored state: any except `rises` and `no_longer`. A reading that is unknown,
    /// absent or unsupported, or is no number where one is needed, gives [`ConditionResult::Unknown`].
    pub(super) fn evaluate(
        &self,
        (key, reading): (&str, &Reading<Value>),
        stars: &[&str],
        other: impl Fn(&str) -> Reading<Value>,
    ) -> ConditionResult {
        let Reading::Present(value) = reading else {
            return ConditionResult::Unknown;
        };
        let bad = |is_bad: bool, rule: String| match is_bad {
            true => ConditionResult::Bad(format!("{key} is {value}, {rule}")),
            false => ConditionResult::Good,
        };
        if let Some(wanted) = &self.is {
            return bad(value == wanted, "which is a fault".to_owned());
        }
        if let Some(wanted) = &self.is_not {
            return bad(value != wanted, format!("expected {wanted}"));
        }
        let Some(number) = value.as_number() else {
            return ConditionResult::Unknown;
        };
        if let Some(limit) = self.at_least {
            return bad(number >= limit, format!("the limit is {limit}"));
        }
        if let Some(bits) = self.has_bits {
            return bad(
                number & bits != 0,
                format!("which has bits of mask {bits:#x}"),
            );
        }
        let Some(pattern) = self.other_key() else {
            return ConditionResult::Unknown;
        };
        let name = pattern.fill(stars);
        let Some(limit) = other(&name).present().and_then(Value::as_number) else {
            return ConditionResult::Unknown;
        };
        let is_bad = match (&self.reaches, &self.at_most) {
            (Some(_), _) => number >= limit,
            (None, Some(_)) => number <= limit,
            (None, None) => number < limit,
        };
        bad(is_bad, format!("{name} is {limit}"))
    }
}
