//! History entries of class changes.

use super::Cause;
use crate::{Class, ClassMark, Reading, Value};
use serde::{Deserialize, Serialize};

/// A key with a changed reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The changed key.
    pub key: String,
    /// Reading that was published before.
    pub from: Reading<Value>,
    /// Reading now.
    pub to: Reading<Value>,
}

/// One publication of a class by a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Sequence number, rising by one with each entry of the node.
    pub seq: u64,
    /// Time of publication in Unix milliseconds, by the node's clock.
    pub at: u64,
    /// Boot id of the host at the time of publication.
    pub boot_id: String,
    /// Cause of the read.
    pub cause: Cause,
    /// The published class.
    pub class: Class,
    /// Number of publications of the class, including this one.
    pub revision: u64,
    /// The mark published before; `None` for the first publication.
    pub from: Option<ClassMark>,
    /// The mark published now.
    pub to: ClassMark,
    /// The changed keys, sorted, up to the limits; if the schema changed, `schema` comes first. The first record of a
    /// class lists only keys that were published as unknown before, because its preimage contains all keys. If the
    /// previous record was lost, the only key is `record`. A class that is disabled from the start lists no keys; a
    /// class that was probed before lists `class`. A class that becomes incomplete lists the required keys that are
    /// unknown, with the reasons.
    pub changes: Vec<KeyChange>,
    /// Number of changed keys that are not listed.
    pub more: u32,
}
