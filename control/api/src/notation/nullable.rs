//! Fields of a change that `null` resets.

use serde::{Deserialize, Deserializer};

/// Reads a field so that `null` differs from a field left out.
pub(crate) fn deserialize_present<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}
