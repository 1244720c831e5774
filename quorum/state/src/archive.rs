//! Terminal allocations: appended once, never changed. Small on purpose, so that the records can
//! move into segment tables beside the state without touching its callers.

use lattice_quorum_types::{Allocation, AllocationId};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Bound};

/// Append-only records of ended allocations.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Archive {
    records: BTreeMap<AllocationId, Allocation>,
}

impl Archive {
    /// These records.
    pub(crate) fn of(records: impl Iterator<Item = Allocation>) -> Self {
        let records = records.map(|record| (record.id, record)).collect();
        Self { records }
    }
    /// Appends a terminal record.
    pub(crate) fn append(&mut self, record: Allocation) {
        self.records.insert(record.id, record);
    }
    /// One record.
    pub(crate) fn get(&self, id: AllocationId) -> Option<&Allocation> {
        self.records.get(&id)
    }
    /// Records with ids above `id`, in id order.
    pub(crate) fn after(&self, id: AllocationId) -> impl Iterator<Item = &Allocation> {
        self.records
            .range((Bound::Excluded(id), Bound::Unbounded))
            .map(|(_, record)| record)
    }
}
