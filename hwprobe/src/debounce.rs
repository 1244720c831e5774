//! When a freshly read mark is published: a change must be read twice.

use crate::{ClassMark, Digest};
use serde::{Deserialize, Serialize};

/// So many reads in a row that do not confirm the one before them say that a class does not hold
/// still: what was published before is not what it is, and nothing else is either.
pub const UNEQUAL_CONFIRMATIONS: u32 = 4;

/// The publication state of one class on one node. Pure: the caller owns the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debounce {
    published: Option<ClassMark>,
    last_complete: Option<ClassMark>,
    candidate: Option<ClassMark>,
    revision: u64,
    /// The read before, if it was complete.
    before: Option<ClassMark>,
    /// Reads in a row that were unlike the one before them.
    unlike: u32,
    is_restless: bool,
}

/// What to do after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Nothing new.
    Unchanged,
    /// A change was seen once; read again soon (30 to 60 s) to confirm it.
    Confirm,
    /// No two reads in a row were equal: what is published stays incomplete until two are. No
    /// read is to confirm it: it was tried often enough. It is read again as any incomplete class.
    Restless,
    /// Publish this mark under this revision.
    Publish {
        /// The mark.
        mark: ClassMark,
        /// Rises by one with each publication.
        revision: u64,
    },
}

impl Debounce {
    /// As it stood when it was last written down. What was seen only once then is forgotten.
    #[must_use]
    pub const fn restored(
        published: Option<ClassMark>,
        last_complete: Option<ClassMark>,
        revision: u64,
    ) -> Self {
        Self {
            published,
            last_complete,
            candidate: None,
            revision,
            before: None,
            unlike: 0,
            is_restless: false,
        }
    }

    /// Takes the mark of a fresh read.
    ///
    /// The first complete mark is published at once: nothing is there to drift from. A digest
    /// other than the last complete one needs two equal reads in a row. Becoming
    /// incomplete or disabled is published at once, since unknown must not be shown as
    /// the old value, and so is the return to the last complete digest. A class that reads
    /// otherwise each time becomes incomplete as well, and stays so until two reads in a row are
    /// equal.
    pub fn observe(&mut self, mark: ClassMark) -> Publication {
        let read = matches!(mark, ClassMark::Complete { .. }).then_some(mark);
        let before = std::mem::replace(&mut self.before, read);
        self.unlike = match (before, read) {
            (Some(before), Some(read)) if before != read => self.unlike.saturating_add(1),
            _ => 0,
        };
        if read.is_some() && self.unlike > UNEQUAL_CONFIRMATIONS {
            self.is_restless = true;
        }
        // Until two reads are equal, or the class is switched off.
        self.is_restless &= match read {
            Some(_) => before != read,
            None => mark == ClassMark::Incomplete,
        };
        if self.is_restless {
            self.candidate = None;
            return match self.published == Some(ClassMark::Incomplete) {
                true => Publication::Restless,
                false => self.publish(ClassMark::Incomplete),
            };
        }
        if self.published == Some(mark) {
            self.candidate = None;
            return Publication::Unchanged;
        }
        let is_change = read.is_some() && self.last_complete.is_some_and(|last| last != mark);
        if is_change && self.candidate != Some(mark) && before != read {
            self.candidate = Some(mark);
            return Publication::Confirm;
        }
        self.publish(mark)
    }

    fn publish(&mut self, mark: ClassMark) -> Publication {
        self.candidate = None;
        self.published = Some(mark);
        if matches!(mark, ClassMark::Complete { .. }) {
            self.last_complete = Some(mark);
        }
        self.revision += 1;
        Publication::Publish {
            mark,
            revision: self.revision,
        }
    }

    /// Whether a change was seen once and waits to be confirmed.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.candidate.is_some()
    }

    /// The published mark.
    #[must_use]
    pub const fn published(&self) -> Option<ClassMark> {
        self.published
    }

    /// The last complete digest, also while the class is incomplete.
    #[must_use]
    pub fn last_complete(&self) -> Option<Digest> {
        self.last_complete.and_then(|mark| mark.digest())
    }

    /// How often something was published.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }
}
