//! Four bytes for each allocation that has ended: how, in which attempt, and in which segment its record
//! is. In blocks that are shared until they change, so that a copy costs nothing. Where nothing has ended
//! there is no block: elements of arrays that were never placed have numbers too.

use lattice_quorum_types::{AllocationId, AllocationState};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::{collections::BTreeMap, sync::Arc};

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

/// See the module. An allocation's number is its place.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Index {
    /// By their number; each has as many places as any other.
    blocks: BTreeMap<usize, Arc<Vec<u32>>>,
}

impl Index {
    pub(crate) fn get(&self, id: AllocationId) -> Option<Ended> {
        let at = usize::try_from(id.0).ok()?;
        let packed = *self.blocks.get(&(at / BLOCK))?.get(at % BLOCK)?;
        (packed != 0).then_some(Ended(packed))
    }

    pub(super) fn set(&mut self, id: AllocationId, ended: Ended) {
        let Ok(at) = usize::try_from(id.0) else {
            return;
        };
        let block = self.blocks.entry(at / BLOCK);
        let block = block.or_insert_with(|| Arc::new(vec![0; BLOCK]));
        Arc::make_mut(block)[at % BLOCK] = ended.0;
    }

    /// Those above `id` that have ended, by number.
    pub(crate) fn after(&self, id: AllocationId) -> impl Iterator<Item = (AllocationId, Ended)> {
        let from = usize::try_from(id.0.saturating_add(1)).unwrap_or(usize::MAX);
        let blocks = self.blocks.range(from / BLOCK..);
        let all = blocks.flat_map(|(block, packed)| {
            let numbers = (block * BLOCK..).zip(packed.iter());
            numbers.filter(|(_, packed)| **packed != 0)
        });
        all.skip_while(move |(at, _)| *at < from)
            .map(|(at, packed)| (AllocationId(at as u64), Ended(*packed)))
    }
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let blocks = BTreeMap::<usize, Arc<Vec<u32>>>::deserialize(deserializer)?;
        match blocks.values().all(|block| block.len() == BLOCK) {
            true => Ok(Index { blocks }),
            false => Err(D::Error::custom("a block of the index has another size")),
        }
    }
}
