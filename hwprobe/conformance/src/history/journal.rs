//! Lines of the persistent journal, and the checkpoint that folds them.

use super::{Entry, Event};
use crate::{Class, ClassMark, Digest, Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The state after all previous lines, so that the previous lines may be dropped.
    Checkpoint(Checkpoint),
    /// A class was published.
    Entry(Entry),
    /// The host was read in this boot, and no change awaits confirmation: later changes are not caused by the boot.
    Boot {
        /// Boot id of the kernel.
        boot_id: String,
        /// Time of the read, in Unix milliseconds.
        at: u64,
    },
    /// An event other than a publication.
    Event(Event),
    /// A line that a newer agent wrote, in a form unknown to this version; it is kept unchanged.
    #[serde(untagged)]
    Other(serde_json::Value),
}

impl Line {
    /// Sequence number of the line, if it has one.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Entry(entry) => Some(entry.seq),
            Self::Event(event) => Some(event.seq),
            Self::Other(value) => {
                let mut parts = value.as_object()?.values();
                parts.find_map(|part| part.get("seq")?.as_u64())
            }
            Self::Checkpoint(_) | Self::Boot { .. } => None,
        }
    }
}

/// Current state of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedClass {
    /// The published mark.
    pub published: ClassMark,
    /// The last complete mark, even if the class is incomplete now.
    pub last_complete: Option<ClassMark>,
    /// Number of publications of the class.
    pub revision: u64,
    /// Time of the last publication, in Unix milliseconds.
    pub since: u64,
    /// The required keys that are unknown and the keys that timed out, with the reasons, as far as the entry lists
    /// them; empty unless the class is incomplete.
    pub missing: BTreeMap<String, Reading<Value>>,
}

/// State of a history after all lines so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Sequence number of the last entry, event or line of a newer agent; 0 before the first.
    pub seq: u64,
    /// Boot id of the last boot that was read without a change awaiting confirmation.
    pub boot_id: Option<String>,
    /// Boot id of the last recorded event; `None` before the first event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_boot: Option<String>,
    /// State of every class that was ever published.
    pub classes: BTreeMap<Class, PublishedClass>,
}

impl Checkpoint {
    /// Applies the next line.
    pub fn fold(&mut self, line: &Line) {
        match line {
            Line::Checkpoint(checkpoint) => *self = checkpoint.clone(),
            Line::Boot { boot_id, .. } => self.boot_id = Some(boot_id.clone()),
            Line::Entry(entry) => self.publish(entry),
            Line::Event(event) => {
                self.seq = self.seq.max(event.seq);
                self.seen_boot = Some(event.boot_id.clone());
            }
            // The sequence number of the unknown line must not be reused.
            Line::Other(_) => self.seq = self.seq.max(line.seq().unwrap_or_default()),
        }
    }

    fn publish(&mut self, entry: &Entry) {
        self.seq = self.seq.max(entry.seq);
        let before = self.classes.get(&entry.class);
        let is_complete = entry.to.digest().is_some();
        let last_complete = match is_complete {
            true => Some(entry.to),
            false => before.and_then(|standing| standing.last_complete),
        };
        let missing = entry.changes.iter().filter(|change| !change.to.is_known());
        let missing = missing.map(|change| (change.key.clone(), change.to.clone()));
        let standing = PublishedClass {
            published: entry.to,
            last_complete,
            revision: entry.revision,
            since: entry.at,
            missing: match entry.to {
                ClassMark::Incomplete => missing.collect(),
                ClassMark::Complete { .. } | ClassMark::Disabled => BTreeMap::new(),
            },
        };
        self.classes.insert(entry.class, standing);
    }

    /// Digests of the preimages that are needed to continue from this state.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        let standings = self.classes.values();
        standings.filter_map(|standing| standing.last_complete?.digest())
    }
}
