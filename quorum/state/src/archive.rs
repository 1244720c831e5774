//! Allocations that have ended: appended once, never changed. Their records are rows of a table; of
//! each, where it is and how it ended is at hand, because commands are judged by that and judging
//! reads no disk. See `../0007-append-only-tables.md`.

mod index;

use crate::{
    segment::{FIRST_VERSION, Row, Sealed, Segment, Table},
    table::{Bounds, Log},
    topics::Topic,
    v5, v6,
};
pub(crate) use index::{Ended, FormerIndex, Index};
use lattice_quorum_types::{Allocation, AllocationId, UnixMillis, weight::on_wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Append-only records of ended allocations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Archive {
    log: Log<Allocation>,
    index: Index,
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
    fn version(&self) -> u16 {
        let is_plain = self.spec.terms.is_empty() && self.course.is_empty();
        match (is_plain, self.spec.demand.is_empty()) {
            (true, true) => FIRST_VERSION,
            (true, false) => v5::DEMAND_IN_SEGMENTS,
            (false, _) => v6::TERMS_IN_SEGMENTS,
        }
    }
    fn bytes(&self) -> usize {
        match self.version() {
            FIRST_VERSION => on_wire(&v5::Written(self)),
            v5::DEMAND_IN_SEGMENTS => on_wire(&v6::Written(self)),
            _ => on_wire(self),
        }
    }
    fn encode(&self, version: u16, bytes: Vec<u8>) -> postcard::Result<Vec<u8>> {
        match version {
            FIRST_VERSION => postcard::to_extend(&v5::Written(self), bytes),
            v5::DEMAND_IN_SEGMENTS => postcard::to_extend(&v6::Written(self), bytes),
            _ => postcard::to_extend(self, bytes),
        }
    }
    fn decode(version: u16, bytes: &[u8]) -> postcard::Result<(Self, &[u8])> {
        match version {
            0 | FIRST_VERSION => {
                let (old, rest): (v5::Allocation, _) = postcard::take_from_bytes(bytes)?;
                Ok((old.into(), rest))
            }
            v5::DEMAND_IN_SEGMENTS => {
                let (old, rest): (v6::Allocation, _) = postcard::take_from_bytes(bytes)?;
                Ok((old.into(), rest))
            }
            _ => postcard::take_from_bytes(bytes),
        }
    }
}

impl Archive {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Archive {
            log: Log::new(bounds),
            index: Index::default(),
        }
    }

    /// These records, of a snapshot that held them all; they ended in the order of their revisions.
    pub(crate) fn of(records: impl Iterator<Item = Allocation>) -> (Self, Vec<Sealed>) {
        let mut records: Vec<Allocation> = records.collect();
        records.sort_by_key(|record| (record.revision, record.id));
        let mut archive = Archive::new(Bounds::default());
        let sealed = records.into_iter().filter_map(|r| archive.append(r));
        let sealed = sealed.collect();
        (archive, sealed)
    }

    /// What a snapshot of format 5 has of them.
    pub(crate) fn of_fifth(old: v5::Archive) -> Self {
        Archive {
            log: Log::map(old.log, Into::into),
            index: old.index.into(),
        }
    }

    /// What a snapshot of format 6 has of them.
    pub(crate) fn of_sixth(old: v6::Archive) -> Self {
        Archive {
            log: Log::map(old.log, Into::into),
            index: old.index.into(),
        }
    }

    /// Appends a terminal record.
    pub(crate) fn append(&mut self, record: Allocation) -> Option<Sealed> {
        let (id, state, attempt) = (record.id, record.state, record.attempt);
        let (segment, sealed) = self.log.append(record);
        self.index.set(id, Ended::new(state, attempt, segment));
        sealed
    }

    /// How an allocation ended, if it has.
    pub(crate) fn ended(&self, id: AllocationId) -> Option<Ended> {
        self.index.get(id)
    }

    /// The record, if it is in memory.
    pub(crate) fn get(&self, id: AllocationId) -> Option<&Allocation> {
        let ended = self.ended(id)?;
        self.segment(ended).is_none().then_some(())?;
        self.tail().iter().rev().find(|record| record.id == id)
    }

    /// The segment that has the record; `None` while it is in memory.
    pub(crate) fn segment(&self, ended: Ended) -> Option<&Segment> {
        self.sealed().get(ended.segment() as usize)
    }

    /// Records in memory, in the order in which they ended.
    pub(crate) fn tail(&self) -> &[Allocation] {
        self.log.tail()
    }

    /// All segments, in the order in which they were made.
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        self.log.sealed()
    }

    /// Where every record is.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

#[cfg(test)]
mod tests;
