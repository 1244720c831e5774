//! Planted bugs: faults on purpose, which show that the simulation's checks find them.
//!
//! Builds with `debug_assertions` contain them, inert until `plant` arms one on the calling thread. In
//! optimised builds [`is`] is a constant `false`, and the compiler removes each branch. A Cargo feature in
//! place of `debug_assertions` would need a second build, or would reach the daemons of
//! `cargo build --workspace`, since Cargo unifies features.

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Limits are looked at when work is submitted, and not when it gets its nodes.
    LimitsNotAsked,
    /// Work gets nodes that are not free any more.
    NodesTaken,
    /// A repeat under the same key is a new command.
    KeysForgotten,
    /// Some entries of the audit are told of and not kept.
    AuditDropped,
    /// A command's time is not everywhere the same.
    NotDeterministic,
    /// A member that led leads on after a restart, with the commit point on its disk.
    LeadsOn,
    /// A watch that begins at some revisions misses the first event.
    EventsLost,
    /// A leader answers reads without making sure that it leads.
    ReadsUnchecked,
    /// A member that lost its disk follows any leader that comes.
    AnyLeaderFollowed,
    /// A member that lost its disk votes again once it has some of the log, after a restart.
    BlankForgotten,
    /// A leader's snapshot is on the disk only when it is installed.
    SnapshotNotKept,
}

#[cfg(debug_assertions)]
mod here {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static CHANCE: Cell<u64> = const { Cell::new(0) };
    }

    /// Plants a bug in everything this thread does.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this thread has it.
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// What is not the same everywhere.
    pub fn chance() -> u64 {
        CHANCE.set(CHANCE.get() + 1);
        CHANCE.get() % 3
    }
}

#[cfg(debug_assertions)]
pub use here::{chance, is, plant};

/// Whether this thread has it.
#[cfg(not(debug_assertions))]
pub const fn is(_: Bug) -> bool {
    false
}

/// What is not the same everywhere.
#[cfg(not(debug_assertions))]
pub const fn chance() -> u64 {
    0
}
