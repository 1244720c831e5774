//! Key patterns with a wildcard for the slot: `nic.*.firmware`.

use crate::{Class, ClassRecord, Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Maximum number of slots taken from a recorded count.
const MAX_SLOTS: i64 = 4_096;

/// A key, or all keys that differ in the slot only. A `*` stands for one slot number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// The text is not a valid key pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a valid key: {reason}")]
pub struct InvalidPattern {
    /// The rejected text, at most 80 characters.
    pub text: String,
    /// The rule that the text breaks.
    pub reason: String,
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let bad = |reason: &str| {
            Err(InvalidPattern {
                text: text.chars().take(80).collect(),
                reason: reason.to_owned(),
            })
        };
        let mut segments = text.split('.');
        let class = segments.next().unwrap_or_default();
        if class.parse::<Class>().is_err() {
            return bad("it must begin with its class, such as nic");
        }
        let rest: Vec<&str> = segments.collect();
        if rest.is_empty() || rest.iter().any(|segment| segment.is_empty()) {
            return bad("it must have parts between dots, such as nic.0.firmware");
        }
        if rest.iter().any(|s| s.contains('*') && *s != "*") {
            return bad("a * must stand for a whole slot number, such as nic.*.firmware");
        }
        if rest.last() == Some(&"*") {
            return bad("a slot must be followed by a key, such as nic.*.firmware");
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;
    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Pattern {
    /// The class of the keys that the pattern matches.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        self.0.split('.').next()?.parse().ok()
    }

    /// Whether the pattern matches this key.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        let (mut ours, mut theirs) = (self.0.split('.'), key.split('.'));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some("*"), Some(slot)) if is_slot(slot) => {}
                (Some(one), Some(other)) if one == other => {}
                _ => return false,
            }
        }
    }

    /// The keys that the pattern stands for in this record: each slot covered by the count, and each slot with a
    /// recorded key. A pattern without a `*` stands for itself.
    pub(super) fn keys_in(&self, record: &ClassRecord) -> BTreeSet<String> {
        let mut keys = BTreeSet::from([String::new()]);
        for segment in self.0.split('.') {
            let longer = |prefix: &String| -> Vec<String> {
                match segment {
                    "*" => slots(record, prefix)
                        .into_iter()
                        .map(|slot| format!("{prefix}.{slot}"))
                        .collect(),
                    plain if prefix.is_empty() => vec![plain.to_owned()],
                    plain => vec![format!("{prefix}.{plain}")],
                }
            };
            keys = keys.iter().flat_map(longer).collect();
        }
        keys
    }

    /// The reading for a pattern without slots: absent if the count is known, else the state of the count.
    pub(super) fn reading_without_slots(&self, record: &ClassRecord) -> Reading<Value> {
        let prefix = self.0.split(".*").next().unwrap_or_default();
        match record.get(&format!("{prefix}.count")) {
            Reading::Present(Value::Number(_)) | Reading::Absent => Reading::Absent,
            Reading::Present(_) => Reading::failed("the count is not a number"),
            unknown => unknown,
        }
    }
}

fn is_slot(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit())
}

fn slots(record: &ClassRecord, prefix: &str) -> BTreeSet<i64> {
    let counted = match record.entries.get(&format!("{prefix}.count")) {
        Some(Reading::Present(Value::Number(count))) => (*count).clamp(0, MAX_SLOTS),
        _ => 0,
    };
    let below = format!("{prefix}.");
    let recorded = record
        .entries
        .range(below.clone()..)
        .map_while(|(key, _)| key.strip_prefix(&below))
        .filter_map(|rest| rest.split('.').next())
        .filter(|segment| is_slot(segment))
        .filter_map(|segment| segment.parse().ok());
    (0..counted).chain(recorded).collect()
}
