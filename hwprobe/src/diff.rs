//! What differs between two records of one class, key by key.

use crate::record::name_space;
use crate::schema::Shared;
use crate::{Class, ClassRecord, Reading, Schemas, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One key on which two records do not agree, or may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The class.
    pub class: Class,
    /// The key.
    pub key: String,
    /// What the left side says.
    pub left: Reading<Value>,
    /// What the right side says.
    pub right: Reading<Value>,
    /// Whether that is a difference.
    pub verdict: Verdict,
}

/// Whether two readings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Both are known and not equal.
    Differs,
    /// At least one is unknown: neither equal nor different.
    Unknown,
    /// Of a class as a whole: both sides have the same parts, and what differs is where they are.
    Moved,
}

/// Compares two readings; `None` when both are known and equal.
pub(crate) fn compare<T: PartialEq>(left: &Reading<T>, right: &Reading<T>) -> Option<Verdict> {
    if !left.is_known() || !right.is_known() {
        Some(Verdict::Unknown)
    } else if left == right {
        None
    } else {
        Some(Verdict::Differs)
    }
}

/// Every key on which `left` and `right` differ or are not both known.
///
/// Keys whose names mean something else on either side (settings of two BIOS generations) are left
/// out: the key that tells the generations apart is among the differences.
///
/// Of records of two schemas of a class the keys that both have are compared; any other is unknown
/// on the side whose schema does not have it. Where one of the schemas is not known to this build,
/// or the records are of two classes, nothing compares: the one difference returned then is the
/// unknown key `schema`.
#[must_use]
pub fn diff(left: &ClassRecord, right: &ClassRecord) -> Vec<Difference> {
    diff_under(&Schemas::SHIPPED, left, right)
}

/// As [`diff`], and where the parts on both sides are the same and only in other places, that first:
/// cards in swapped slots are told as such, and not only by every key that the swap moved.
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
            verdict: Verdict::Moved,
        };
        found.insert(0, moved);
    }
    found
}

/// Whether both are wholly known, and differ in nothing but where the parts are.
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
    let knows_both = || schemas.knows(left.class, left.schema, right.schema);
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
            verdict: Verdict::Unknown,
        }];
    }
    if left.disabled.is_some() && right.disabled.is_some() {
        return vec![Difference {
            class: left.class,
            key: "class".to_owned(),
            left: left.get("class"),
            right: right.get("class"),
            verdict: Verdict::Unknown,
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

/// What both records say of a key, as far as their schemas mean the same by it.
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
    // Seen from the side that has it.
    let shared = match has_left {
        true => schemas.shared(key, left.schema, right.schema),
        false => schemas.shared(key, right.schema, left.schema),
    };
    let otherwise = |schema| match shared {
        Shared::Otherwise => Reading::disabled(format!("means something else in schema {schema}")),
        Shared::Same | Shared::Missing => Schemas::not_in(schema),
    };
    match (shared, has_left, has_right) {
        (Shared::Same, _, _) => (left.get(key), right.get(key)),
        (_, true, _) => (left.get(key), otherwise(right.schema)),
        (_, false, _) => (otherwise(left.schema), right.get(key)),
    }
}
