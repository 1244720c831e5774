//! Archive of ended allocations: appended once, never changed.
//!
//! Records are rows of an append-only table. The index holds in memory, for each ended allocation, its segment, final
//! state and last attempt: judging a command needs these and reads no disk. See `../0007-append-only-tables.md`.

mod index;

use crate::{
    segment::{Row, SealedSegment, Segment, Table},
    table::{AppendOnlyTable, SegmentLimits},
    topics::Topic,
};
pub(crate) use index::{ArchiveIndex, EndedEntry};
use lattice_quorum_types::{Allocation, AllocationId, UnixMillis};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Append-only records of ended allocations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Archive {
    log: AppendOnlyTable<Allocation>,
    index: ArchiveIndex,
}

impl Row for Allocation {
    const TABLE: Table = Table::Ended;
    fn key(&self) -> u64 {
        self.id.0
    }
    fn at(&self) -> UnixMillis {
        self.ended_at.unwrap_or(self.state_since)
    }
    fn topics(&self, say: &mut dyn FnMut(Topic<'_>)) {
        say(Topic::User(&self.user));
        for level in self.spec.project.ancestors() {
            say(Topic::Project(level.as_str()));
        }
    }
}

impl Archive {
    pub(crate) fn new(bounds: SegmentLimits) -> Self {
        Archive {
            log: AppendOnlyTable::new(bounds),
            index: ArchiveIndex::default(),
        }
    }

    /// Appends a terminal record; returns the segment that this append sealed, if any.
    pub(crate) fn append(&mut self, record: Allocation) -> Option<SealedSegment> {
        let (id, state, attempt) = (record.id, record.state, record.attempt);
        let (segment, sealed) = self.log.append(record);
        self.index.set(id, EndedEntry::new(state, attempt, segment));
        sealed
    }

    /// Final state, attempt and segment of an allocation; `None` for an allocation that has not ended.
    pub(crate) fn ended(&self, id: AllocationId) -> Option<EndedEntry> {
        self.index.get(id)
    }

    /// Record of an ended allocation, if the record is still in memory.
    pub(crate) fn get(&self, id: AllocationId) -> Option<&Allocation> {
        let ended = self.ended(id)?;
        self.segment(ended).is_none().then_some(())?;
        self.tail().iter().rev().find(|record| record.id == id)
    }

    /// Sealed segment that contains the record; `None` while the record is in memory.
    pub(crate) fn segment(&self, ended: EndedEntry) -> Option<&Segment> {
        self.sealed().get(ended.segment() as usize)
    }

    /// Records in memory, in the order in which the allocations ended.
    pub(crate) fn tail(&self) -> &[Allocation] {
        self.log.tail()
    }

    /// All sealed segments, oldest first.
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        self.log.sealed()
    }

    /// Index from allocation id to final state, attempt and segment.
    pub(crate) fn index(&self) -> &ArchiveIndex {
        &self.index
    }
}

#[cfg(test)]
mod tests;
