//! Debouncing of class marks: a change is published after two equal reads.

use crate::{ClassMark, Digest};
use serde::{Deserialize, Serialize};

/// Maximum number of consecutive complete reads that each differ from the previous one. After one more such read the
/// published mark becomes incomplete.
pub const MAX_UNEQUAL_READS: u32 = 4;

/// Publication state of one class on one node. Pure: the caller provides the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debounce {
    published: Option<ClassMark>,
    last_complete: Option<ClassMark>,
    candidate: Option<ClassMark>,
    revision: u64,
    /// The previous read, if it was complete.
    before: Option<ClassMark>,
    /// Number of consecutive reads that differ from the previous one.
    unlike: u32,
    is_restless: bool,
}

/// Action after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// No change.
    Unchanged,
    /// A change was seen once. Read again soon (in 30 to 60 s) to confirm it.
    Confirm,
    /// No two consecutive reads were equal. The published mark stays incomplete until two are. No further confirming
    /// read is requested; the class is read again like any incomplete class.
    Unstable,
    /// Publish this mark under this revision.
    Publish {
        /// The mark to publish.
        mark: ClassMark,
        /// Revision of the mark; rises by one with each publication.
        revision: u64,
    },
}

impl Debounce {
    /// Restores the stored state. A change that was not yet confirmed is lost.
    #[must_use]
    pub const fn restore(
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

    /// Processes the mark of a fresh read.
    ///
    /// The first complete mark is published at once, because there is no earlier mark to differ from. A digest other
    /// than the last complete one needs two equal reads in a row. An incomplete or disabled mark is published at once,
    /// so that an unknown class does not keep its old value; so is the return to the last complete digest. A class with
    /// different digests in each read becomes incomplete as well, until two consecutive reads are equal.
    pub fn observe(&mut self, mark: ClassMark) -> Publication {
        let read = matches!(mark, ClassMark::Complete { .. }).then_some(mark);
        let before = std::mem::replace(&mut self.before, read);
        self.unlike = match (before, read) {
            (Some(before), Some(read)) if before != read => self.unlike.saturating_add(1),
            _ => 0,
        };
        if read.is_some() && self.unlike > MAX_UNEQUAL_READS {
            self.is_restless = true;
        }
        // The class stays restless until two reads are equal, or it is disabled.
        self.is_restless &= match read {
            Some(_) => before != read,
            None => mark == ClassMark::Incomplete,
        };
        if self.is_restless {
            self.candidate = None;
            return match self.published == Some(ClassMark::Incomplete) {
                true => Publication::Unstable,
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

    /// Whether a change was seen once and awaits confirmation.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.candidate.is_some()
    }

    /// The published mark.
    #[must_use]
    pub const fn published(&self) -> Option<ClassMark> {
        self.published
    }

    /// The last complete digest, even if the class is incomplete now.
    #[must_use]
    pub fn last_complete(&self) -> Option<Digest> {
        self.last_complete.and_then(|mark| mark.digest())
    }

    /// Number of publications so far.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }
}
