//! State of a class at an earlier time.

use super::{Entry, KeyChange};
use crate::{Class, ClassMark, ClassRecord, Digest, verify};

/// State of a class at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastState {
    /// The class was complete.
    Complete {
        /// Sequence number of the entry that published the state.
        seq: u64,
        /// Time of the entry that published the state, in Unix milliseconds.
        since: u64,
        /// The record, with known keys only.
        record: Box<ClassRecord>,
    },
    /// The class was incomplete.
    Incomplete {
        /// Sequence number of the entry that published the state.
        seq: u64,
        /// Time of the entry that published the state, in Unix milliseconds.
        since: u64,
        /// The unknown keys that the entry lists, with the reasons; see [`Entry::changes`].
        missing: Vec<KeyChange>,
    },
    /// The class was not probed.
    Disabled {
        /// Sequence number of the entry that published the state.
        seq: u64,
        /// Time of the entry that published the state, in Unix milliseconds.
        since: u64,
    },
    /// The class was complete with this digest, but the preimage is missing or damaged.
    Lost {
        /// Sequence number of the entry that published the state.
        seq: u64,
        /// Digest of the missing preimage.
        digest: Digest,
    },
    /// No kept entry is that old.
    NotKept,
}

/// The last entry for `class` at or before `at`. `entries` are in order of `seq`.
#[must_use]
pub fn entry_at(entries: &[Entry], class: Class, at: u64) -> Option<&Entry> {
    let mut newest_first = entries.iter().rev();
    newest_first.find(|entry| entry.class == class && entry.at <= at)
}

/// The state of `class` at `at`, from `entries` in order of `seq` and their preimages, which are verified.
pub fn record_at(
    entries: &[Entry],
    class: Class,
    at: u64,
    preimage: impl FnOnce(&Digest) -> Option<Vec<u8>>,
) -> PastState {
    let Some(entry) = entry_at(entries, class, at) else {
        return PastState::NotKept;
    };
    let (seq, since) = (entry.seq, entry.at);
    match entry.to {
        ClassMark::Complete { digest, .. } => {
            let bytes = preimage(&digest);
            match bytes.and_then(|bytes| verify(&digest, &bytes).ok()) {
                Some(record) => PastState::Complete {
                    seq,
                    since,
                    record: Box::new(record),
                },
                None => PastState::Lost { seq, digest },
            }
        }
        ClassMark::Incomplete => PastState::Incomplete {
            seq,
            since,
            missing: entry.changes.clone(),
        },
        ClassMark::Disabled => PastState::Disabled { seq, since },
    }
}
