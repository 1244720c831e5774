//! Segments: sealed runs of rows of an append-only table. A segment never changes and has the same bytes on every
//! voter: its name contains its digest.
//!
//! The state keeps one [`Segment`] per sealed run: its name, its size, and enough to skip reading it. The user of the
//! state stores the bytes; see [`State::take_sealed`](crate::State::take_sealed).

use crate::topics::{Topic, Topics};
use bytes::Bytes;
use lattice_quorum_types::{UnixMillis, audit};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeSet, fmt, str::FromStr};

/// Magic bytes at the start of a segment.
const MAGIC: [u8; 8] = *b"LATSEGM\n";
/// Format version of a segment. A segment's bytes determine its name and are part of the state. A later version must
/// therefore write the segments of a log in the format of the version that wrote the log.
const FORMAT: u16 = 1;
/// Magic, format, table, number and row count; the rows follow, as postcard.
const HEADER_BYTES: usize = 8 + 2 + 1 + 4 + 4;
const DIGEST_HEX: usize = 64;

/// Append-only table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Table {
    /// Ended allocations, in the order in which they ended.
    Ended,
    /// Audit entries.
    Audit,
    /// Ended DAGs, in the order in which they ended.
    Dags,
    /// Usage records, in order of number.
    UsageRecords,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 4] = [Table::Ended, Table::Audit, Table::Dags, Table::UsageRecords];

    /// Name of the table in segment names.
    pub fn as_str(self) -> &'static str {
        match self {
            Table::Ended => "ended",
            Table::Audit => "audit",
            Table::Dags => "dags",
            Table::UsageRecords => "facts",
        }
    }
}

/// Name of a segment, with the digest of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentId {
    /// Table of the segment.
    pub table: Table,
    /// Number of the segment in its table, from 0.
    pub number: u32,
    /// blake3 of the segment's bytes.
    pub digest: [u8; 32],
}

impl SegmentId {
    /// Checks that `bytes` have the digest of this segment.
    pub fn names(&self, bytes: &[u8]) -> bool {
        *blake3::hash(bytes).as_bytes() == self.digest
    }

    /// Fault of this segment, with its reason.
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
        // A segment has exactly one valid name.
        match digest.len() == DIGEST_HEX && id.to_string() == text {
            true => Ok(id),
            false => Err(()),
        }
    }
}

/// Error of a segment that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("segment {id}: {reason}")]
pub struct SegmentFault {
    /// Segment that cannot be read.
    pub id: SegmentId,
    /// Reason, as text.
    pub reason: String,
}

/// Storage of segments.
pub trait Segments {
    /// Returns the bytes of a segment. Callers verify the digest.
    ///
    /// # Errors
    /// [`SegmentFault`] if the segment is not available.
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault>;
}

/// Description of a segment, kept in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Name of the segment.
    pub id: SegmentId,
    /// Size of the segment, bytes.
    pub bytes: u64,
    /// Number of rows, at least 1.
    pub rows: u32,
    /// Lowest key, for example an allocation id or the number of an audit entry.
    pub first: u64,
    /// Highest key.
    pub last: u64,
    /// State time of the first row.
    pub from: UnixMillis,
    /// State time of the last row.
    pub to: UnixMillis,
    /// Filter of the topics of the rows.
    pub(crate) topics: Topics,
}

impl Segment {
    /// Range of the segment, as an audit search uses it.
    pub(crate) fn audit_bounds(&self) -> audit::SegmentBounds {
        audit::SegmentBounds {
            first: self.first,
            last: self.last,
            from: self.from,
            to: self.to,
        }
    }

    /// Returns the rows, in the order in which they were appended.
    ///
    /// # Errors
    /// [`SegmentFault`] if the segment is missing, damaged or not decodable.
    pub(crate) fn rows<R: Row>(&self, segments: &dyn Segments) -> Result<Vec<R>, SegmentFault> {
        let bytes = segments.read(&self.id)?;
        if !self.id.names(&bytes) {
            return Err(self.id.fault("it is damaged: its digest does not match"));
        }
        decode(&self.id, &bytes).map_err(|reason| self.id.fault(reason))
    }
}

/// A newly sealed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSegment {
    /// Name of the segment.
    pub id: SegmentId,
    /// Complete bytes of the segment.
    pub bytes: Bytes,
}

impl Segments for &[SealedSegment] {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let found = self.iter().find(|sealed| sealed.id == *id);
        let missing = || id.fault("it is not among the sealed segments");
        found.map(|sealed| sealed.bytes.clone()).ok_or_else(missing)
    }
}

/// Row of an append-only table.
pub(crate) trait Row: Clone + Serialize + DeserializeOwned {
    const TABLE: Table;
    /// Key of the row, unique in its table.
    fn key(&self) -> u64;
    /// State time at which the row was appended.
    fn at(&self) -> UnixMillis;
    /// Passes each topic of the row to `visit`, as far as searches use it.
    fn topics(&self, visit: &mut dyn FnMut(Topic<'_>));
}

/// Seals these rows as segment `number`.
pub(crate) fn seal<R: Row>(number: u32, rows: &[R]) -> (Segment, SealedSegment) {
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
    (segment, SealedSegment { id, bytes })
}

/// Decodes the rows of a segment; the caller has verified its digest.
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
        return Err("its content does not match its name".to_owned());
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
        false => Err("it has extra bytes at its end".to_owned()),
    }
}
