//! History of a node: its states, and when and why they changed. Pure: the caller provides clock and disk.
//!
//! A [`History`] takes one read after another and returns an [`Entry`] for each publication. The persistent form is a
//! sequence of [`Line`]s. A [`Checkpoint`] folds them, and a history is restored from it. [`record_at`] returns the
//! state of a class at an earlier time.

mod cause;
mod changes;
mod debounce;
mod entry;
mod event;
mod fold;
mod journal;
mod past_state;
mod state;

pub use cause::Cause;
pub use changes::{MAX_CHANGE_BYTES, MAX_CHANGES};
pub use debounce::{Debounce, Publication};
pub use entry::{Entry, KeyChange};
pub use event::{Event, EventKind, HistoryRecord, ReasonChange};
pub use fold::{EventFold, FoldedLine, RecordingLimit};
pub use journal::{Checkpoint, Line, PublishedClass};
pub use past_state::{PastState, entry_at, record_at};
pub use state::{History, ObserveOutcome, ReadContext};

#[cfg(test)]
mod tests;
