//! What the first version wrote, as it wrote it: its log rows and snapshots are read for ever.
//!
//! Shapes that became others since are frozen here; those that did not are used from where they
//! are. Who changes one of these freezes its former shape here first: the snapshot and the data
//! directory in `fixtures/quorum/v1` do not open otherwise.
//!
//! Commands of the first version keep their schema number, and are judged by the rules of then.

mod command;
mod state;

pub use command::Envelope;
pub(crate) use command::encode;
pub(crate) use state::State;
