//! Differences between two records of one class, key by key.

use crate::keys::name_space;
use crate::record::KeyRelation;
use crate::{Class, ClassRecord, Reading, Schemas, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One key on which two records differ, or may differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Conformance class of the key.
    pub class: Class,
    /// The differing key.
    pub key: String,
    /// Reading in the left record.
    pub left: Reading<Value>,
    /// Reading in the right record.
    pub right: Reading<Value>,
    /// Whether the readings differ, or at least one is unknown.
    pub verdict: KeyVerdict,
}

/// Whether two readings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyVerdict {
    /// Both readings are known and not equal.
    Differs,
    /// At least one reading is unknown: neither equal nor different.
    Unknown,
    /// For the complete class: both sides have the same parts in different places.
    Moved,
}

/// Compares two readings; `None` when both are known and equal.
pub(crate) fn compare<T: PartialEq>(left: &Reading<T>, right: &Reading<T>) -> Option<KeyVerdict> {
    if !left.is_known() || !right.is_known() {
        Some(KeyVerdict::Unknown)
    } else if left == right {
        None
    } else {
        Some(KeyVerdict::Differs)
    }
}

/// Every key on which `left` and `right` differ or are not both known.
///
/// Keys with a different meaning on either side (settings of two BIOS generations) are omitted; the key that identifies
/// the generation is among the differences.
///
/// For records of two schemas of a class, the keys that both schemas define are compared. Any other key is unknown on
/// the side with the schema that lacks it. If this build does not support one of the schemas, or the records belong to
/// two classes, no key is compared. The result is then one difference, the unknown key `schema`. For a class that is
/// disabled in both records, the result is the unknown key `class`.
#[must_use]
pub fn diff(left: &ClassRecord, right: &ClassRecord) -> Vec<Difference> {
    diff_under(&Schemas::SHIPPED, left, right)
}

/// As [`diff`]. If both sides have the same parts in different places, that difference comes first: swapped cards are
/// reported as such, not only as changed keys.
#[must_use]
pub fn diff_by_parts(left: &ClassRecord, right: &ClassRecord) -> Vec<Difference> {
    let mut found = diff(left, right);
    if has_moved(left, right) {
        let parts = |words: &str| Reading::Present(Value::Text(words.to_owned()));
        let moved = Difference {
            class: left.class,
            key: "parts".to_owned(),
            left: parts("the same parts"),
            right: parts("the same parts, in other places"),
            verdict: KeyVerdict::Moved,
        };
        found.insert(0, moved);
    }
    found
}

/// Whether both records are completely known and differ only in the places of their parts.
fn has_moved(left: &ClassRecord, right: &ClassRecord) -> bool {
    let digests = (left.state().digest(), right.state().digest());
    let is_other = matches!(digests, (Some(one), Some(other)) if one != other);
    let is_known = |record: &ClassRecord| record.entries.values().all(Reading::is_known);
    (left.class, left.schema) == (right.class, right.schema)
        && is_other
        && is_known(left)
        && is_known(right)
        && left.parts_digest() == right.parts_digest()
}

/// As [`diff`], with the schemas of another build.
#[must_use]
pub fn diff_under(schemas: &Schemas, left: &ClassRecord, right: &ClassRecord) -> Vec<Difference> {
    let knows_both = || schemas.supports_both(left.class, left.schema, right.schema);
    if left.class != right.class || (left.schema != right.schema && !knows_both()) {
        let name = |record: &ClassRecord| {
            Reading::disabled(format!(
                "schema {} of {} cannot be compared",
                record.schema, record.class
            ))
        };
        return vec![Difference {
            class: left.class,
            key: "schema".to_owned(),
            left: name(left),
            right: name(right),
            verdict: KeyVerdict::Unknown,
        }];
    }
    if left.disabled.is_some() && right.disabled.is_some() {
        return vec![Difference {
            class: left.class,
            key: "class".to_owned(),
            left: left.get("class"),
            right: right.get("class"),
            verdict: KeyVerdict::Unknown,
        }];
    }
    let keys: BTreeSet<&String> = left.entries.keys().chain(right.entries.keys()).collect();
    let compares = |key: &&String| {
        let space = name_space(key);
        space.is_none_or(
            |space| match (left.entries.get(space), right.entries.get(space)) {
                (None, None) => true,
                _ => {
                    let (left, right) = readings(schemas, left, right, space);
                    compare(&left, &right).is_none()
                }
            },
        )
    };
    keys.into_iter()
        .filter(compares)
        .filter_map(|key| {
            let (left_reading, right_reading) = readings(schemas, left, right, key);
            let verdict = compare(&left_reading, &right_reading)?;
            Some(Difference {
                class: left.class,
                key: key.clone(),
                left: left_reading,
                right: right_reading,
                verdict,
            })
        })
        .collect()
}

/// The readings of a key in both records, as far as both schemas give it the same meaning.
fn readings(
    schemas: &Schemas,
    left: &ClassRecord,
    right: &ClassRecord,
    key: &str,
) -> (Reading<Value>, Reading<Value>) {
    if left.schema == right.schema {
        return (left.get(key), right.get(key));
    }
    let (has_left, has_right) = (
        left.entries.contains_key(key),
        right.entries.contains_key(key),
    );
    // The schema of the side that has the key comes first.
    let shared = match has_left {
        true => schemas.key_relation(key, left.schema, right.schema),
        false => schemas.key_relation(key, right.schema, left.schema),
    };
    let otherwise = |schema| match shared {
        KeyRelation::Changed => {
            Reading::disabled(format!("has another meaning in schema {schema}"))
        }
        KeyRelation::Same | KeyRelation::Missing => Schemas::missing_in_schema(schema),
    };
    match (shared, has_left, has_right) {
        (KeyRelation::Same, _, _) => (left.get(key), right.get(key)),
        (_, true, _) => (left.get(key), otherwise(right.schema)),
        (_, false, _) => (otherwise(left.schema), right.get(key)),
    }
}
