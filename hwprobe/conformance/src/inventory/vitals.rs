//! Live values: counters, states and temperatures. Health evaluates them; they never enter a digest.

use crate::{Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Live values by key, in the syntax of conformance keys (`gpu.0.ecc.uncorrected`, `nic.3.port.1.link_downed`):
/// counters and states in base units, read in one pass. A key is either here or in a [`crate::ClassRecord`], never in
/// both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vitals(pub BTreeMap<String, Reading<Value>>);

impl Vitals {
    /// Sets the reading of one key.
    pub fn put(&mut self, key: impl Into<String>, reading: Reading<impl Into<Value>>) {
        self.0.insert(key.into(), reading.map(Into::into));
    }

    /// The reading of one key; disabled if it was not read.
    #[must_use]
    pub fn get(&self, key: &str) -> Reading<Value> {
        self.0.get(key).cloned().unwrap_or_default()
    }

    /// Merges the values read by another probe.
    pub fn absorb(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
