//! Index of ended allocations: four bytes each, with final state, last attempt and segment number.
//!
//! Blocks are shared until they change, so a copy of the index is cheap. A block exists only where an allocation has
//! ended: elements of arrays that were never placed also have ids.

use lattice_quorum_types::{AllocationId, AllocationState};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::{collections::BTreeMap, sync::Arc};

/// Number of entries in a block.
const BLOCK_ENTRIES: usize = 4096;
/// Attempts from this number on are all stored as this value.
const MAX_STORED_ATTEMPT: u32 = (1 << 6) - 1;

/// Final state and location of an ended allocation, packed: two bits of state, six of the attempt, the rest the segment
/// number. The value 0 stands for an allocation that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedEntry(u32);

impl EndedEntry {
    pub(super) fn new(state: AllocationState, attempt: u32, segment: u32) -> Self {
        let state = match state {
            AllocationState::Completed => 1,
            AllocationState::Failed => 2,
            _ => 3,
        };
        EndedEntry((segment << 8) | (attempt.min(MAX_STORED_ATTEMPT) << 2) | state)
    }

    /// Final state: completed, failed or cancelled.
    pub(crate) fn state(self) -> AllocationState {
        match self.0 & 3 {
            1 => AllocationState::Completed,
            2 => AllocationState::Failed,
            _ => AllocationState::Cancelled,
        }
    }

    /// Last attempt; `None` if the attempt number is 63 or more, which six bits cannot store.
    pub(crate) fn attempt(self) -> Option<u32> {
        let attempt = (self.0 >> 2) & MAX_STORED_ATTEMPT;
        (attempt < MAX_STORED_ATTEMPT).then_some(attempt)
    }

    /// Number of the segment that contains, or will contain, the record.
    pub(crate) fn segment(self) -> u32 {
        self.0 >> 8
    }
}

/// Sparse array of [`EndedEntry`] entries, indexed by allocation id.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct ArchiveIndex {
    /// Blocks by block number; each has [`BLOCK_ENTRIES`] entries.
    blocks: BTreeMap<usize, Arc<Vec<u32>>>,
}

impl ArchiveIndex {
    pub(crate) fn get(&self, id: AllocationId) -> Option<EndedEntry> {
        let at = usize::try_from(id.0).ok()?;
        let packed = *self
            .blocks
            .get(&(at / BLOCK_ENTRIES))?
            .get(at % BLOCK_ENTRIES)?;
        (packed != 0).then_some(EndedEntry(packed))
    }

    pub(super) fn set(&mut self, id: AllocationId, ended: EndedEntry) {
        let Ok(at) = usize::try_from(id.0) else {
            return;
        };
        let block = self.blocks.entry(at / BLOCK_ENTRIES);
        let block = block.or_insert_with(|| Arc::new(vec![0; BLOCK_ENTRIES]));
        Arc::make_mut(block)[at % BLOCK_ENTRIES] = ended.0;
    }

    /// Ended allocations with an id above `id`, in order of id.
    pub(crate) fn after(
        &self,
        id: AllocationId,
    ) -> impl Iterator<Item = (AllocationId, EndedEntry)> {
        let from = usize::try_from(id.0.saturating_add(1)).unwrap_or(usize::MAX);
        let blocks = self.blocks.range(from / BLOCK_ENTRIES..);
        let all = blocks.flat_map(|(block, packed)| {
            let numbers = (block * BLOCK_ENTRIES..).zip(packed.iter());
            numbers.filter(|(_, packed)| **packed != 0)
        });
        all.skip_while(move |(at, _)| *at < from)
            .map(|(at, packed)| (AllocationId(at as u64), EndedEntry(*packed)))
    }
}

impl<'de> Deserialize<'de> for ArchiveIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let blocks = BTreeMap::<usize, Arc<Vec<u32>>>::deserialize(deserializer)?;
        match blocks.values().all(|block| block.len() == BLOCK_ENTRIES) {
            true => Ok(ArchiveIndex { blocks }),
            false => Err(D::Error::custom("a block of the index has another size")),
        }
    }
}
