//! Record of one class of one node: its keys, and whether they suffice for a digest.

use crate::encode::{self, PreimageError};
use crate::{Class, ClassMark, Digest, NotUnder, Reading, Schemas, Value};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All values of one probe that should be equal on equal nodes.
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

/// Whether a record has a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassState {
    /// Every required key is known.
    Complete {
        /// Schema of the digest.
        schema: u16,
        /// The content address of the preimage.
        digest: Digest,
    },
    /// Some required keys are unknown, or some key timed out: no digest, never equal, never drifted.
    Incomplete {
        /// Those keys, with their readings.
        missing: BTreeMap<String, Reading<Value>>,
    },
    /// The class was not probed.
    Disabled {
        /// The reason.
        why: String,
    },
}

/// Key that marks differing reads; a settled class does not have it.
fn reads(class: Class) -> String {
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
        self.require(reads(self.class), Reading::<Value>::failed(why));
        self
    }

    /// The reason why the record does not count, whatever its keys are; see [`ClassRecord::unsettled`].
    #[must_use]
    pub fn why_unsettled(&self) -> Option<String> {
        let reading = self.entries.get(&reads(self.class))?;
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

    /// Merges this record with that of another source for the same class. A key in both keeps the reading of this
    /// record, unless only the other one is known. If one of the records is disabled, the result is the other one.
    #[must_use]
    pub fn unite(mut self, other: Self) -> Self {
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

    /// The reading of `key`.
    ///
    /// A key of a device beyond the recorded count (`nic.8.firmware` with `nic.count` 8) is absent. So is a key of
    /// something missing from a recorded list (`software.package.ucx` without `ucx` in `software.package.names`). Any
    /// other unrecorded key is unknown, and so is a key that the record's schema lacks.
    #[must_use]
    pub fn get(&self, key: &str) -> Reading<Value> {
        if let Some(reading) = self.entries.get(key) {
            return reading.clone();
        }
        if let Some(why) = &self.disabled {
            return Reading::disabled(why.clone());
        }
        let mut dots = key.match_indices('.');
        if dots.any(|(at, _)| self.is_beyond(&key[..at], &key[at + 1..])) {
            return Reading::Absent;
        }
        if Schemas::SHIPPED.lacks(self, key) {
            return Schemas::not_in(self.schema);
        }
        Reading::failed("not recorded")
    }

    /// This record as an agent that writes `schema` would have written it for the same machine.
    ///
    /// # Errors
    /// The record cannot be expressed in `schema`: see [`NotUnder`].
    pub fn under(&self, schema: u16) -> Result<Self, NotUnder> {
        Schemas::SHIPPED.under(self, schema)
    }

    /// Whether `rest`, which follows `prefix` in a key, starts with a slot at or beyond `<prefix>.count`, or with a
    /// name that `<prefix>.names` does not list.
    fn is_beyond(&self, prefix: &str, rest: &str) -> bool {
        let slot = rest.split_once('.').and_then(|(slot, _)| slot.parse().ok());
        let is_beyond_count = match self.entries.get(&format!("{prefix}.count")) {
            Some(Reading::Present(Value::Number(count))) => {
                slot.is_some_and(|slot: u32| i64::from(slot) >= *count)
            }
            Some(Reading::Absent) => slot.is_some(),
            _ => false,
        };
        let is_named = |name: &String| {
            let after = rest.strip_prefix(name.as_str());
            after.is_some_and(|after| after.is_empty() || after.starts_with('.'))
        };
        let is_unnamed = match self.entries.get(&format!("{prefix}.names")) {
            Some(Reading::Present(Value::List(names))) => !names.iter().any(is_named),
            Some(Reading::Absent) => true,
            _ => false,
        };
        is_beyond_count || is_unnamed
    }

    /// The canonical bytes: sorted known entries with explicit lengths.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// Decodes canonical bytes; the result contains known entries only.
    ///
    /// # Errors
    /// Any byte string that [`ClassRecord::encode`] would not write is rejected.
    pub fn decode(bytes: &[u8]) -> Result<Self, PreimageError> {
        encode::decode(bytes)
    }

    /// Complete with a digest, incomplete, or disabled. A key that timed out, required or not, prevents a digest: the
    /// next read may return it, and the two reads would have two digests.
    #[must_use]
    pub fn state(&self) -> ClassState {
        if let Some(why) = &self.disabled {
            return ClassState::Disabled { why: why.clone() };
        }
        let required = self.required.iter().map(|key| (key.clone(), self.get(key)));
        let late = self.entries.iter().filter(|(_, reading)| reading.is_late());
        let late = late.map(|(key, reading)| (key.clone(), reading.clone()));
        let missing: BTreeMap<_, _> = required
            .filter(|(_, reading)| !reading.is_known())
            .chain(late)
            .collect();
        if missing.is_empty() {
            ClassState::Complete {
                schema: self.schema,
                digest: encode::digest(self.class, self.schema, &self.encode()),
            }
        } else {
            ClassState::Incomplete { missing }
        }
    }

    /// Digest of the devices regardless of slot and NUMA node: equal for two nodes with the same parts in different
    /// places. The record's own digest covers the layout.
    #[must_use]
    pub fn parts_digest(&self) -> Digest {
        encode::parts_digest(self)
    }
}

impl ClassState {
    /// The short form that nodes publish by gossip.
    #[must_use]
    pub const fn mark(&self) -> ClassMark {
        match self {
            Self::Complete { schema, digest } => ClassMark::Complete {
                schema: *schema,
                digest: *digest,
            },
            Self::Incomplete { .. } => ClassMark::Incomplete,
            Self::Disabled { .. } => ClassMark::Disabled,
        }
    }

    /// The digest, if complete.
    #[must_use]
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Complete { digest, .. } => Some(*digest),
            _ => None,
        }
    }
}

/// The key that defines the meaning of the name `key`. Names of BIOS settings belong to an attribute registry, or in
/// band to the driver that provides them; under another registry the same name may be another setting. Such keys are
/// compared only between records in which that key is known and equal. If it differs, that is the only difference
/// reported.
pub(crate) fn name_space(key: &str) -> Option<&'static str> {
    const SPACES: &[(&str, &str)] = &[
        ("bios.setting.", "bios.registry"),
        ("bios.attribute.", "bios.attribute_driver"),
    ];
    let mut spaces = SPACES.iter();
    let found = spaces.find(|(prefix, _)| key.starts_with(prefix));
    found.map(|(_, space)| *space)
}

/// Splits `nic.3.firmware` into `("nic", 3)`, at the last all-digit segment that is not the last segment.
pub(crate) fn split_slot(key: &str) -> Option<(&str, i64)> {
    let mut end = key.rfind('.')?;
    loop {
        let start = key[..end].rfind('.')?;
        let segment = &key[start + 1..end];
        if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some((&key[..start], segment.parse().ok()?));
        }
        end = start;
    }
}

/// Checks that `bytes` are the preimage of `digest`, and decodes them.
///
/// # Errors
/// The bytes are not canonical, or hash to another digest.
pub fn verify(digest: &Digest, bytes: &[u8]) -> Result<ClassRecord, PreimageError> {
    let record = encode::decode(bytes)?;
    let found = encode::digest(record.class, record.schema, bytes);
    if found == *digest {
        Ok(record)
    } else {
        Err(PreimageError::OtherDigest {
            expected: *digest,
            found,
        })
    }
}
