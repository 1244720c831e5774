//! An append-only table: the last rows in memory, those before in sealed segments. The rows in memory
//! are two groups: when the second is full, the first is sealed. So the last group's worth of rows is
//! always at hand.

use crate::segment::{Row, Sealed, Segment, seal};
use lattice_quorum_types::weight::on_wire;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// When a group of rows is full. Part of the state, so that a build with other bounds replays a log
/// to the same segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// So many rows.
    pub rows: u32,
    /// So many bytes, encoded.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            rows: 1024,
            bytes: 1 << 20,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Log<R> {
    bounds: Bounds,
    /// Shared with those who read it while it grows.
    sealed: Arc<Vec<Segment>>,
    /// The rows behind them.
    tail: Vec<R>,
    /// How many of them are the first group; 0 before the first one is full.
    former: u32,
    /// Bytes of the second group.
    open_bytes: u64,
}

impl<R: Row> Log<R> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Log {
            bounds,
            sealed: Arc::default(),
            tail: Vec::new(),
            former: 0,
            open_bytes: 0,
        }
    }

    /// Appends a row. Gives the number of the segment that it is, or will be, in, and the segment that
    /// this made.
    pub(crate) fn append(&mut self, row: R) -> (u32, Option<Sealed>) {
        let number = self.next_number() + u32::from(self.former > 0);
        self.open_bytes += on_wire(&row) as u64;
        self.tail.push(row);
        let open = self.tail.len() - self.former as usize;
        let is_full = open >= self.bounds.rows as usize || self.open_bytes >= self.bounds.bytes;
        let sealed = is_full.then(|| self.turn(open)).flatten();
        (number, sealed)
    }

    /// The second group, of `open` rows, becomes the first.
    fn turn(&mut self, open: usize) -> Option<Sealed> {
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
