//! Planted bugs: deliberate faults which show that the simulation's checks detect them.
//!
//! Builds with `debug_assertions` contain these bugs, inert until `plant` arms one on the calling thread. In other
//! builds the check for a planted bug is a constant `false`, and the compiler removes each branch. A Cargo feature in
//! place of `debug_assertions` would need a second build, or would reach the daemons of `cargo build --workspace`,
//! since Cargo unifies features.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Limits are checked at submission, but not at assignment.
    LimitsUnchecked,
    /// Allocations get nodes that are not free.
    NodesTaken,
    /// A repeat with the same idempotency key counts as a new command.
    KeysForgotten,
    /// Some audit entries are sent to watchers but not stored.
    AuditDropped,
    /// The time of a command differs between members.
    NotDeterministic,
    /// A former leader continues to lead after a restart, with the commit point on its disk.
    LeadsOn,
    /// A watch that starts at certain revisions misses its first event.
    EventsLost,
    /// A leader answers reads without confirming that it leads.
    ReadsUnchecked,
    /// A member that lost its disk follows any leader.
    AnyLeaderFollowed,
    /// A member that lost its disk votes again after a restart, as soon as it has a part of the log.
    BlankForgotten,
    /// A leader's snapshot is not on disk until it is installed.
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

    /// Plants a bug for all code on this thread.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Checks whether the bug is planted on this thread.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Returns a value that differs between consecutive calls.
    pub fn pseudo_random() -> u64 {
        CHANCE.set(CHANCE.get() + 1);
        CHANCE.get() % 3
    }
}

#[cfg(debug_assertions)]
pub use here::{is_planted, plant, pseudo_random};

/// Checks whether the bug is planted on this thread: never in this build.
#[cfg(not(debug_assertions))]
pub const fn is_planted(_: Bug) -> bool {
    false
}

/// Returns 0: no bug is planted in this build.
#[cfg(not(debug_assertions))]
pub const fn pseudo_random() -> u64 {
    0
}
