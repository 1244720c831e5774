//! Past state of a class, and the age of a key's value.

use lattice_conformance::{ClassRecord, Digest, Reading, Value};

/// Time since which a value is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnchangedSince {
    /// Time in Unix milliseconds.
    pub at: u64,
    /// Whether the value is the first known one of the key, so that it may be older.
    pub at_least: bool,
}

/// Past state of a class.
#[derive(Debug, Clone, PartialEq)]
pub enum PastClassState {
    /// The class was complete.
    Known {
        /// The record, with known keys only.
        record: Box<ClassRecord>,
        /// Time since which the record is unchanged, in Unix milliseconds.
        since: u64,
    },
    /// A required key was unknown.
    Incomplete {
        /// Unknown keys, with the reasons.
        missing: Vec<(String, Reading<Value>)>,
    },
    /// The class was disabled.
    Disabled,
    /// The class was complete, but its record is not stored here.
    Lost {
        /// Digest of the record.
        digest: Digest,
    },
    /// The stored history does not reach back to this time.
    NotKept,
}
