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

/// Keys with what is remembered under each.
pub(crate) fn in_order(
    order: VecDeque<Owned>,
    mut remembered: impl FnMut(&Owned) -> Option<Entry>,
) -> keys::Keys {
    let known = order.into_iter().filter_map(|owned| {
        let entry = remembered(&owned)?;
        let (principal, key) = &owned;
        Some((KeyId::of(principal, key), entry))
    });
    keys::Keys::from(known.collect::<VecDeque<_>>())
}

impl From<Keys> for keys::Keys {
    fn from(mut old: Keys) -> Self {
        in_order(old.order, |owned| old.entries.remove(owned))
    }
}
