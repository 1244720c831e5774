//! Four bytes for each allocation that has ended: how, in which attempt, and in which segment its record
//! is. In blocks that are shared until they change, so that a copy costs nothing.

use lattice_quorum_types::{AllocationId, AllocationState};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeSeq};
use std::sync::Arc;

/// Numbers in a block.
const BLOCK: usize = 4096;
/// Attempts from here on are not told apart.
const MANY_ATTEMPTS: u32 = (1 << 6) - 1;

/// How an allocation ended: two bits of state, six of the attempt, the rest the segment's number. 0 is
/// one that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended(u32);

impl Ended {
    pub(super) fn new(state: AllocationState, attempt: u32, segment: u32) -> Self {
        let state = match state {
            AllocationState::Completed => 1,
            AllocationState::Failed => 2,
            _ => 3,
        };
        Ended((segment << 8) | (attempt.min(MANY_ATTEMPTS) << 2) | state)
    }

    /// Completed, failed or cancelled.
    pub(crate) fn state(self) -> AllocationState {
        match self.0 & 3 {
            1 => AllocationState::Completed,
            2 => AllocationState::Failed,
            _ => AllocationState::Cancelled,
        }
    }

    /// Its last attempt; `None`: one of too many to tell.
    pub(crate) fn attempt(self) -> Option<u32> {
        let attempt = (self.0 >> 2) & MANY_ATTEMPTS;
        (attempt < MANY_ATTEMPTS).then_some(attempt)
    }

    /// Number of the segment that its record is, or will be, in.
    pub(crate) fn segment(self) -> u32 {
        self.0 >> 8
    }
}

/// See the module. Allocations are numbered from 1 without gaps but those of a
/// restored cluster, so their number is the place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    blocks: Vec<Arc<Vec<u32>>>,
}

impl Index {
    pub(crate) fn get(&self, id: AllocationId) -> Option<Ended> {
        let at = usize::try_from(id.0).ok()?;
        let packed = *self.blocks.get(at / BLOCK)?.get(at % BLOCK)?;
        (packed != 0).then_some(Ended(packed))
    }

    pub(super) fn set(&mut self, id: AllocationId, ended: Ended) {
        let Ok(at) = usize::try_from(id.0) else {
            return;
        };
        while self.blocks.len() <= at / BLOCK {
            self.blocks.push(Arc::new(vec![0; BLOCK]));
        }
        Arc::make_mut(&mut self.blocks[at / BLOCK])[at % BLOCK] = ended.0;
    }

    /// Those above `id` that have ended, by number.
    pub(crate) fn after(&self, id: AllocationId) -> impl Iterator<Item = (AllocationId, Ended)> {
        let from = usize::try_from(id.0.saturating_add(1)).unwrap_or(usize::MAX);
        let blocks = self.blocks.iter().enumerate().skip(from / BLOCK);
        let all = blocks.flat_map(|(block, packed)| {
            let numbers = (block * BLOCK..).zip(packed.iter());
            numbers.filter(|(_, packed)| **packed != 0)
        });
        all.skip_while(move |(at, _)| *at < from)
            .map(|(at, packed)| (AllocationId(at as u64), Ended(*packed)))
    }
}

impl Serialize for Index {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_seq(Some(self.blocks.len() * BLOCK))?;
        for packed in self.blocks.iter().flat_map(|block| block.iter()) {
            all.serialize_element(packed)?;
        }
        all.end()
    }
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = Vec::<u32>::deserialize(deserializer)?;
        all.resize(all.len().next_multiple_of(BLOCK), 0);
        let blocks = all.chunks(BLOCK).map(|block| Arc::new(block.to_vec()));
        Ok(Index {
            blocks: blocks.collect(),
        })
    }
}
