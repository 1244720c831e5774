//! Key changes between the previous and the new published state.

use super::KeyChange;
use crate::{ClassMark, ClassRecord, ClassState, Digest, Reading, Value, diff};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of keys that an entry lists; swapping a card changes a dozen.
pub const MAX_CHANGES: usize = 64;
/// Maximum bytes of keys and values that an entry lists, which bounds the size of ten thousand entries.
pub const MAX_CHANGE_BYTES: usize = 32 << 10;

/// The previously published state.
pub(super) struct PreviousState<'a> {
    /// The mark; `None` if the class was never published.
    pub(super) mark: Option<ClassMark>,
    /// The last complete digest.
    pub(super) digest: Option<Digest>,
    /// The record of `digest`; `None` also if the preimage was lost.
    pub(super) record: Option<&'a ClassRecord>,
    /// Required keys that are unknown in the previously published state.
    pub(super) missing: &'a BTreeMap<String, Reading<Value>>,
}

impl PreviousState<'_> {
    fn get(&self, key: &str) -> Reading<Value> {
        match (self.missing.get(key), self.record) {
            (Some(reading), _) => reading.clone(),
            (None, Some(record)) => record.get(key),
            (None, None) => Reading::default(),
        }
    }
}

/// The listed changes, and the number of changes not listed.
pub(super) fn key_changes(
    before: &PreviousState<'_>,
    now: &ClassRecord,
    state: &ClassState,
) -> (Vec<KeyChange>, u32) {
    let changes = match state {
        ClassState::Complete { .. } => changes_of_complete(before, now),
        ClassState::Incomplete { missing } => {
            let one = |(key, reading): (&String, &Reading<Value>)| KeyChange {
                key: key.clone(),
                from: before.get(key),
                to: reading.clone(),
            };
            missing.iter().map(one).collect()
        }
        // Disabled from the start: no value was known, so no value changed.
        ClassState::Disabled { .. } if before.mark.is_none() => Vec::new(),
        ClassState::Disabled { why } => vec![KeyChange {
            key: "class".to_owned(),
            from: Reading::Present("probed".into()),
            to: Reading::disabled(why.clone()),
        }],
    };
    limit_changes(changes)
}

fn changes_of_complete(before: &PreviousState<'_>, now: &ClassRecord) -> Vec<KeyChange> {
    let keys: BTreeSet<&String> = match (before.record, before.digest) {
        (Some(record), _) if record.schema != now.schema => return schema_changes(record, now),
        (Some(record), _) => record.entries.keys().chain(now.entries.keys()).collect(),
        (None, Some(digest)) => {
            return vec![KeyChange {
                key: "record".to_owned(),
                from: Reading::failed(format!("the record of {digest} was lost")),
                to: Reading::Present(format!("{} keys", now.entries.len()).into()),
            }];
        }
        // The first complete record: its keys did not change, they became known.
        (None, None) => before.missing.keys().collect(),
    };
    let one = |key: &String| {
        let (from, to) = (before.get(key), now.get(key));
        // Between two unknown readings no change is detectable.
        let is_change = from != to && (from.is_known() || to.is_known());
        let key = key.clone();
        is_change.then_some(KeyChange { key, from, to })
    };
    keys.into_iter()
        .chain(before.missing.keys())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter_map(one)
        .collect()
}

/// Lists the change of the schema, and the changed keys as far as both schemas can express them.
fn schema_changes(before: &ClassRecord, now: &ClassRecord) -> Vec<KeyChange> {
    let schema = |record: &ClassRecord| Reading::Present(u32::from(record.schema).into());
    let schemas = KeyChange {
        key: "schema".to_owned(),
        from: schema(before),
        to: schema(now),
    };
    let shared = before.schema.min(now.schema);
    let changes = match (before.in_schema(shared), now.in_schema(shared)) {
        (Ok(before), Ok(now)) => diff(&before, &now),
        _ => Vec::new(),
    };
    let changes = changes.into_iter().map(|difference| KeyChange {
        key: difference.key,
        from: difference.left,
        to: difference.right,
    });
    std::iter::once(schemas)
        .chain(changes.filter(|change| change.from.is_known() || change.to.is_known()))
        .collect()
}

fn limit_changes(changes: Vec<KeyChange>) -> (Vec<KeyChange>, u32) {
    let all = changes.len();
    let mut bytes = 0;
    let mut listed = Vec::with_capacity(all.min(MAX_CHANGES));
    for change in changes {
        bytes += change.key.len() + weight(&change.from) + weight(&change.to);
        if listed.len() == MAX_CHANGES || bytes > MAX_CHANGE_BYTES {
            break;
        }
        listed.push(change);
    }
    let more = u32::try_from(all - listed.len()).unwrap_or(u32::MAX);
    (listed, more)
}

/// Approximate size of an encoded reading, in bytes.
fn weight(reading: &Reading<Value>) -> usize {
    match reading {
        Reading::Present(Value::Text(text)) => text.len(),
        Reading::Present(Value::List(items)) => items.iter().map(|item| item.len() + 4).sum(),
        Reading::Denied { why } | Reading::Failed { why } | Reading::Disabled { why } => why.len(),
        Reading::Present(Value::Flag(_) | Value::Number(_))
        | Reading::Absent
        | Reading::Unsupported
        | Reading::Timeout { .. } => 24,
    }
}
