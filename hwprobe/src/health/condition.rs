//! When a reading is bad.

use super::Pattern;
use crate::{Reading, Value};
use serde::{Deserialize, Serialize};

/// One question about one value. Exactly one field is set; [`Condition::is_one`] says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The value is this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
    /// The value is not this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_not: Option<Value>,
    /// The number is this or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<i64>,
    /// The number has one of these bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_bits: Option<i64>,
    /// The number reaches that of another key, live or conformance, whose `*` stand for what they
    /// stand for in the check's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches: Option<Pattern>,
    /// The number is not above that of another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Pattern>,
    /// The number is less than that of another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Pattern>,
    /// The value was this in this boot of the node, and is something else: what was never so is
    /// meant to be as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_longer: Option<Value>,
    /// The counter grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rises: Option<Rise>,
}

/// How fast a counter may not grow. Over a time that is longer, as of an agent that looks seldom
/// or was not there, the rise must be one that `by` within `within_s` alone can explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rise {
    /// By this much or more,
    pub by: i64,
    /// within this many seconds.
    pub within_s: u64,
}

/// What a condition says of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Bad, with what was seen.
    Bad(String),
    /// Good.
    Good,
    /// The value, or the one it is compared with, is not known.
    Unknown,
}

impl Condition {
    /// Whether exactly one question is asked.
    #[must_use]
    pub fn is_one(&self) -> bool {
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

    /// The key it compares with.
    pub(super) fn other(&self) -> Option<&Pattern> {
        let mut others = [&self.reaches, &self.at_most, &self.below].into_iter();
        others.find_map(Option::as_ref)
    }

    /// Judges everything but what must be remembered: counters, and what no longer is. A reading
    /// that is not known, absent or not supported is no answer.
    pub(super) fn judge(
        &self,
        (key, reading): (&str, &Reading<Value>),
        stars: &[&str],
        other: impl Fn(&str) -> Reading<Value>,
    ) -> Answer {
        let Reading::Present(value) = reading else {
            return Answer::Unknown;
        };
        let bad = |is_bad: bool, rule: String| match is_bad {
            true => Answer::Bad(format!("{key} is {value}, {rule}")),
            false => Answer::Good,
        };
        if let Some(wanted) = &self.is {
            return bad(value == wanted, "which is a fault".to_owned());
        }
        if let Some(wanted) = &self.is_not {
            return bad(value != wanted, format!("not {wanted}"));
        }
        let Some(number) = value.as_number() else {
            return Answer::Unknown;
        };
        if let Some(limit) = self.at_least {
            return bad(number >= limit, format!("the limit is {limit}"));
        }
        if let Some(bits) = self.has_bits {
            return bad(number & bits != 0, format!("with bits of {bits:#x}"));
        }
        let Some(pattern) = self.other() else {
            return Answer::Unknown;
        };
        let name = pattern.filled(stars);
        let Some(limit) = other(&name).present().and_then(Value::as_number) else {
            return Answer::Unknown;
        };
        let is_bad = match (&self.reaches, &self.at_most) {
            (Some(_), _) => number >= limit,
            (None, Some(_)) => number <= limit,
            (None, None) => number < limit,
        };
        bad(is_bad, format!("{name} is {limit}"))
    }
}
