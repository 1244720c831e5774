//! Lookup of a key in a record, with the readings that unrecorded keys have.

use super::ClassRecord;
use super::schema::Schemas;
use crate::{Reading, Value};

impl ClassRecord {
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
            return Schemas::missing_in_schema(self.schema);
        }
        Reading::failed("not recorded")
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
}
