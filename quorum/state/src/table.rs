//! Append-only table: the last rows in memory, earlier rows in sealed segments.
//!
//! The rows in memory form two groups. When the second group is full, the first is sealed. The last full group of rows
//! is therefore always in memory.

use crate::segment::{Row, SealedSegment, Segment, seal};
use lattice_quorum_types::size::encoded_bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Size at which a group of rows is full. Part of the state, so that a build with other bounds replays a log to the
/// same segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentLimits {
    /// Number of rows at which a group is full.
    pub rows: u32,
    /// Encoded size at which a group is full, bytes.
    pub bytes: u64,
}

impl Default for SegmentLimits {
    fn default() -> Self {
        SegmentLimits {
            rows: 1024,
            bytes: 1 << 20,
        }
    }
}

/// Append-only table of rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AppendOnlyTable<R> {
    bounds: SegmentLimits,
    /// Sealed segments; shared with readers while the table grows.
    sealed: Arc<Vec<Segment>>,
    /// Rows after the last sealed segment.
    tail: Vec<R>,
    /// Number of rows in the first group; 0 before a group is full.
    former: u32,
    /// Size of the second group, bytes.
    open_bytes: u64,
}

impl<R: Row> AppendOnlyTable<R> {
    pub(crate) fn new(bounds: SegmentLimits) -> Self {
        AppendOnlyTable {
            bounds,
            sealed: Arc::default(),
            tail: Vec::new(),
            former: 0,
            open_bytes: 0,
        }
    }

    /// Appends a row. Returns the number of the segment that contains, or will contain, the row, and the segment that
    /// this append sealed.
    pub(crate) fn append(&mut self, row: R) -> (u32, Option<SealedSegment>) {
        let number = self.next_number() + u32::from(self.former > 0);
        self.open_bytes += encoded_bytes(&row) as u64;
        self.tail.push(row);
        let open = self.tail.len() - self.former as usize;
        let is_full = open >= self.bounds.rows as usize || self.open_bytes >= self.bounds.bytes;
        let sealed = is_full.then(|| self.seal_first_group(open)).flatten();
        (number, sealed)
    }

    /// Seals the first group; the second group, of `open` rows, becomes the first.
    fn seal_first_group(&mut self, open: usize) -> Option<SealedSegment> {
        let former = self.former as usize;
        let sealed = (former > 0).then(|| {
            let (segment, sealed) = seal(self.next_number(), &self.tail[..former]);
            Arc::make_mut(&mut self.sealed).push(segment);
            sealed
        });
        self.tail.drain(..former);
        self.former = u32::try_from(open).unwrap_or(u32::MAX);
        self.open_bytes = 0;
        sealed
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.sealed.len()).unwrap_or(u32::MAX)
    }

    /// Rows in memory, oldest first.
    pub(crate) fn tail(&self) -> &[R] {
        &self.tail
    }

    /// All segments, oldest first.
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        &self.sealed
    }
}
