//! Record of one class of one node: its keys with their readings.

use crate::{Class, Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All values of one class that should be equal on equal nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRecord {
    /// Conformance class of the record.
    pub class: Class,
    /// Schema of keys and values.
    pub schema: u16,
    /// Every key with its reading.
    pub entries: BTreeMap<String, Reading<Value>>,
    /// Keys without which there is no digest.
    pub required: BTreeSet<String>,
    /// The reason, if the class is disabled or has no probe; there are no entries then.
    pub disabled: Option<String>,
}

/// Required key of a record from [`ClassRecord::unsettled`]; other records do not have this key.
fn reads_key(class: Class) -> String {
    format!("{class}.probe.reads")
}

impl ClassRecord {
    /// An empty record of the class's current schema.
    #[must_use]
    pub const fn new(class: Class) -> Self {
        Self {
            class,
            schema: class.schema(),
            entries: BTreeMap::new(),
            required: BTreeSet::new(),
            disabled: None,
        }
    }

    /// A record of a class that is not probed, with the reason.
    #[must_use]
    pub fn disabled(class: Class, why: impl Into<String>) -> Self {
        Self {
            disabled: Some(why.into()),
            ..Self::new(class)
        }
    }

    /// Marks a complete record that does not count, because it is one of several differing reads. The required key for
    /// the reads is unknown, so the record has no digest.
    #[must_use]
    pub fn unsettled(mut self, why: &str) -> Self {
        self.require(reads_key(self.class), Reading::<Value>::failed(why));
        self
    }

    /// The reason why the record does not count, whatever its keys are; see [`ClassRecord::unsettled`].
    #[must_use]
    pub fn why_unsettled(&self) -> Option<String> {
        let reading = self.entries.get(&reads_key(self.class))?;
        (!reading.is_known()).then(|| reading.to_string())
    }

    /// Sets an optional key: an unknown reading does not prevent a digest, unless it is a timeout. See
    /// [`ClassRecord::state`].
    pub fn put(&mut self, key: impl Into<String>, reading: Reading<impl Into<Value>>) {
        self.entries.insert(key.into(), reading.map(Into::into));
    }

    /// Sets a required key: while it is unknown, the class is incomplete.
    pub fn require(&mut self, key: impl Into<String>, reading: Reading<impl Into<Value>>) {
        let key = key.into();
        self.required.insert(key.clone());
        self.put(key, reading);
    }

    /// Sets an optional key that is required if its read failed. The device has a value then, and two nodes with different
    /// values must not share a digest. A key that is denied or disabled stays optional.
    pub fn require_if_failed(
        &mut self,
        key: impl Into<String>,
        reading: Reading<impl Into<Value>>,
    ) {
        match reading {
            failed @ Reading::Failed { .. } => self.require(key, failed),
            other => self.put(key, other),
        }
    }

    /// Merges this record with that of another source for the same class. A key in both keeps the reading of this
    /// record, unless only the other one is known. If one of the records is disabled, the result is the other one.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        if self.disabled.is_some() {
            return other;
        }
        if other.disabled.is_some() {
            return self;
        }
        for (key, reading) in other.entries {
            let knows_better = |old: &Reading<Value>| !old.is_known() && reading.is_known();
            if self.entries.get(&key).is_none_or(knows_better) {
                self.entries.insert(key, reading);
            }
        }
        self.required.extend(other.required);
        self
    }
}
