//! Idempotency keys as they were: by the texts of the principal and the key.

use crate::keys::{self, Entry, KeyId};
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};

/// A principal's name and its key.
pub(crate) type Owned = (String, String);

#[derive(Debug, Deserialize)]
pub(crate) struct Keys {
    entries: BTreeMap<Owned, Entry>,
    order: VecDeque<Owned>,
}

/// What it is kept by today.
pub(crate) fn id((principal, key): Owned) -> KeyId {
    KeyId::of(&principal, &key)
}

impl From<Keys> for keys::Keys {
    fn from(old: Keys) -> Self {
        let entries = old.entries.into_iter();
        keys::Keys {
            entries: entries.map(|(owned, entry)| (id(owned), entry)).collect(),
            order: old.order.into_iter().map(id).collect(),
        }
    }
}
