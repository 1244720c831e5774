//! State of a record: whether its keys suffice for a digest.

use super::encode::record_digest;
use super::{ClassMark, ClassRecord};
use crate::{Digest, Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a record has a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassState {
    /// Every required key is known, and no key timed out.
    Complete {
        /// Schema of the digest.
        schema: u16,
        /// The content address of the preimage.
        digest: Digest,
    },
    /// Some required keys are unknown, or some key timed out: no digest, never equal, never drifted.
    Incomplete {
        /// The unknown required keys and the keys that timed out, with their readings.
        missing: BTreeMap<String, Reading<Value>>,
    },
    /// The class was not probed.
    Disabled {
        /// The reason.
        why: String,
    },
}

impl ClassRecord {
    /// Complete with a digest, incomplete, or disabled. A key that timed out, required or not, prevents a digest: the
    /// next read may return it, and the two reads would have two digests.
    #[must_use]
    pub fn state(&self) -> ClassState {
        if let Some(why) = &self.disabled {
            return ClassState::Disabled { why: why.clone() };
        }
        let required = self.required.iter().map(|key| (key.clone(), self.get(key)));
        let late = self
            .entries
            .iter()
            .filter(|(_, reading)| reading.is_timeout());
        let late = late.map(|(key, reading)| (key.clone(), reading.clone()));
        let missing: BTreeMap<_, _> = required
            .filter(|(_, reading)| !reading.is_known())
            .chain(late)
            .collect();
        if missing.is_empty() {
            ClassState::Complete {
                schema: self.schema,
                digest: record_digest(self.class, self.schema, &self.encode()),
            }
        } else {
            ClassState::Incomplete { missing }
        }
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
