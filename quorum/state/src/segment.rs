//! Segments: runs of rows of an append-only table that are set apart from the state. Once written, never
//! changed, and the same bytes on every voter: a segment's name has its digest.
//!
//! The state keeps a [`Segment`] of each, which says how to find it, what it must be, and enough to
//! leave it unread. The bytes are its user's to keep; see [`State::take_sealed`](crate::State::take_sealed).

use crate::topics::{Topic, Topics};
use bytes::Bytes;
use lattice_quorum_types::{UnixMillis, audit};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeSet, fmt, str::FromStr};

/// Marks a segment.
const MAGIC: [u8; 8] = *b"LATSEGM\n";
/// Format of a segment. Its bytes are its name and part of the state, so a later version must write the
/// segments of a log in the format in which the version that wrote the log wrote them.
const FORMAT: u16 = 1;
/// Magic, format, table, number and rows; the rows follow, as postcard.
const HEADER_BYTES: usize = 8 + 2 + 1 + 4 + 4;
const DIGEST_HEX: usize = 64;

/// An append-only table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Table {
    /// Allocations that have ended, in the order in which they did.
    Ended,
    /// What is written down for ever.
    Audit,
    /// Graphs that have ended, in the order in which they did.
    Dags,
    /// What is counted and billed, in the order in which it happened.
    Facts,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 4] = [Table::Ended, Table::Audit, Table::Dags, Table::Facts];

    /// Its name in names of segments.
    pub fn as_str(self) -> &'static str {
        match self {
            Table::Ended => "ended",
            Table::Audit => "audit",
            Table::Dags => "dags",
            Table::Facts => "facts",
        }
    }
}

/// Names a segment, and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentId {
    /// Of which table.
    pub table: Table,
    /// Counts the segments of the table, from 0.
    pub number: u32,
    /// blake3 of its bytes.
    pub digest: [u8; 32],
}

impl SegmentId {
    /// Whether these are its bytes.
    pub fn names(&self, bytes: &[u8]) -> bool {
        *blake3::hash(bytes).as_bytes() == self.digest
    }

    /// What is wrong with it.
    pub fn fault(&self, reason: impl Into<String>) -> SegmentFault {
        let reason = reason.into();
        SegmentFault { id: *self, reason }
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = blake3::Hash::from_bytes(self.digest);
        write!(f, "{}-{:08}-{digest}", self.table.as_str(), self.number)
    }
}

impl FromStr for SegmentId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().ok_or(());
        let (table, number, digest) = (next()?, next()?, next()?);
        let mut tables = Table::ALL.into_iter();
        let id = SegmentId {
            table: tables.find(|known| known.as_str() == table).ok_or(())?,
            number: number.parse().map_err(|_| ())?,
            digest: *blake3::Hash::from_hex(digest).map_err(|_| ())?.as_bytes(),
        };
        // One name for each.
        match digest.len() == DIGEST_HEX && id.to_string() == text {
            true => Ok(id),
            false => Err(()),
        }
    }
}

/// Why a segment cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("segment {id}: {reason}")]
pub struct SegmentFault {
    /// Which.
    pub id: SegmentId,
    /// In words.
    pub reason: String,
}

/// Where the bytes of segments are.
pub trait Segments {
    /// The bytes of a segment. They need not be verified.
    ///
    /// # Errors
    /// When they are not there.
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault>;
}

/// What the state keeps of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its name.
    pub id: SegmentId,
    /// Bytes of it.
    pub bytes: u64,
    /// Rows in it; one at least.
    pub rows: u32,
    /// Lowest key: an allocation's or an entry's number.
    pub first: u64,
    /// Highest key.
    pub last: u64,
    /// State time of its first row.
    pub from: UnixMillis,
    /// State time of its last row.
    pub to: UnixMillis,
    /// What its rows are about.
    pub(crate) topics: Topics,
}

impl Segment {
    /// As who searches the audit sees it.
    pub(crate) fn run(&self) -> audit::Segment {
        audit::Segment {
            first: self.first,
            last: self.last,
            from: self.from,
            to: self.to,
        }
    }

    /// Its rows, in the order in which they were appended.
    ///
    /// # Errors
    /// When it is not there, or is not what it was.
    pub(crate) fn rows<R: Row>(&self, segments: &dyn Segments) -> Result<Vec<R>, SegmentFault> {
        let bytes = segments.read(&self.id)?;
        if !self.id.names(&bytes) {
            return Err(self.id.fault("it is damaged: its digest does not match"));
        }
        decode(&self.id, &bytes).map_err(|reason| self.id.fault(reason))
    }
}

/// A segment that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Its name.
    pub id: SegmentId,
    /// All of it.
    pub bytes: Bytes,
}

impl Segments for &[Sealed] {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let found = self.iter().find(|sealed| sealed.id == *id);
        let missing = || id.fault("it was taken");
        found.map(|sealed| sealed.bytes.clone()).ok_or_else(missing)
    }
}

/// A row of an append-only table.
pub(crate) trait Row: Clone + Serialize + DeserializeOwned {
    const TABLE: Table;
    /// Unique in its table.
    fn key(&self) -> u64;
    /// State time it was appended at.
    fn at(&self) -> UnixMillis;
    /// What it is about, as far as that is asked for.
    fn topics(&self, say: &mut dyn FnMut(Topic<'_>));
}

/// Makes segment `number` of these rows.
pub(crate) fn seal<R: Row>(number: u32, rows: &[R]) -> (Segment, Sealed) {
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.push(R::TABLE as u8);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    for row in rows {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        {
            bytes = postcard::to_extend(row, bytes).expect("a row serialises");
        }
    }
    let id = SegmentId {
        table: R::TABLE,
        number,
        digest: *blake3::hash(&bytes).as_bytes(),
    };
    let keys = rows.iter().map(Row::key);
    let mut topics = BTreeSet::new();
    for row in rows {
        row.topics(&mut |topic| {
            topics.insert(topic.hash());
        });
    }
    let segment = Segment {
        id,
        bytes: bytes.len() as u64,
        rows: count,
        first: keys.clone().min().unwrap_or(0),
        last: keys.max().unwrap_or(0),
        from: rows.first().map_or(UnixMillis(0), Row::at),
        to: rows.last().map_or(UnixMillis(0), Row::at),
        topics: Topics::of(&topics),
    };
    let bytes = Bytes::from(bytes);
    (segment, Sealed { id, bytes })
}

/// The rows in a segment whose digest was verified.
fn decode<R: Row>(id: &SegmentId, bytes: &[u8]) -> Result<Vec<R>, String> {
    let (header, mut rest) = bytes
        .split_at_checked(HEADER_BYTES)
        .ok_or("it is too short")?;
    let (magic, header) = header.split_at(MAGIC.len());
    let &[f0, f1, table, n0, n1, n2, n3, c0, c1, c2, c3] = header else {
        return Err("it is too short".to_owned());
    };
    let format = u16::from_le_bytes([f0, f1]);
    if format != FORMAT {
        return Err(format!(
            "it has format {format}; this version of Lattice reads format {FORMAT}"
        ));
    }
    let number = u32::from_le_bytes([n0, n1, n2, n3]);
    if magic != MAGIC || table != R::TABLE as u8 || number != id.number {
        return Err("it is not what its name says".to_owned());
    }
    let mut rows = Vec::new();
    for _ in 0..u32::from_le_bytes([c0, c1, c2, c3]) {
        let (row, behind) = postcard::take_from_bytes(rest)
            .map_err(|e| format!("row {} cannot be decoded: {e}", rows.len()))?;
        rows.push(row);
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(rows),
        false => Err("it has bytes too many".to_owned()),
    }
}
