//! Kinds of history lines, each with its maximum number of kept lines.

use super::{
    entry::Source,
    event::{EventContent, NodeObservation},
};
use lattice_redfish::BmcEventKind;

/// Maximum changes kept per node from its agent, and as many from its BMC. A node that changes twice a day fills them
/// in five years.
pub(crate) const MOST_CHANGES: usize = 4_000;
/// Maximum transitions of BMC classes to unknown or back kept per node.
pub(crate) const MAX_TRANSITIONS: usize = 1_000;
/// Maximum other events of a node's agent kept per node.
pub(crate) const MOST_EVENTS: usize = 2_000;
/// Maximum notes of this control kept per node: drains, lifecycle, audit.
pub(crate) const MOST_NOTES: usize = 2_000;
/// Maximum liveness notes kept per node.
pub(crate) const MOST_LIVENESS: usize = 1_000;
/// Maximum records kept per node that this control is too old to read.
pub(crate) const MOST_UNREAD: usize = 1_000;
/// Maximum BMC tasks kept per node.
pub(crate) const MOST_BMC_TASKS: usize = 500;
/// Maximum BMC log entries kept per node.
pub(crate) const MOST_BMC_LOGGED: usize = 1_000;

/// Kind of a line, as stored in the table `ORDER`. Each kind has its own limit, so that no kind displaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LineKind {
    Change = 0,
    Event = 1,
    BmcChange = 2,
    BmcTransition = 3,
    Note = 4,
    Liveness = 5,
    Unread = 6,
    BmcTask = 7,
    BmcLogEntry = 8,
}

impl LineKind {
    const ALL: [Self; 9] = [
        Self::Change,
        Self::Event,
        Self::BmcChange,
        Self::BmcTransition,
        Self::Note,
        Self::Liveness,
        Self::Unread,
        Self::BmcTask,
        Self::BmcLogEntry,
    ];

    /// The kind of a stored number. An unknown kind of a newer control counts as an event.
    pub(super) fn of(written: u8) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| *kind as u8 == written)
            .unwrap_or(Self::Event)
    }

    pub(super) const fn of_entry(source: Source, is_turn: bool) -> Self {
        match (source, is_turn) {
            (Source::Agent, _) => Self::Change,
            (Source::Bmc, false) => Self::BmcChange,
            (Source::Bmc, true) => Self::BmcTransition,
        }
    }

    pub(super) fn of_event(what: &EventContent) -> Self {
        match what {
            EventContent::Event(_) => Self::Event,
            EventContent::Noted(
                NodeObservation::Liveness { .. } | NodeObservation::Suspect { .. },
            ) => Self::Liveness,
            EventContent::Noted(_) => Self::Note,
            EventContent::Bmc(did) => match did.deed.of {
                BmcEventKind::Task { .. } => Self::BmcTask,
                BmcEventKind::Log { .. } => Self::BmcLogEntry,
            },
            EventContent::Other(_) => Self::Unread,
        }
    }

    /// Whether the kind is a change of a class, stored among the entries.
    pub(super) const fn is_change(self) -> bool {
        matches!(self, Self::Change | Self::BmcChange | Self::BmcTransition)
    }

    /// Maximum number of lines of the kind kept per node.
    pub(super) const fn max_lines(self) -> usize {
        match self {
            Self::Change | Self::BmcChange => MOST_CHANGES,
            Self::Event => MOST_EVENTS,
            Self::BmcTransition => MAX_TRANSITIONS,
            Self::Note => MOST_NOTES,
            Self::Liveness => MOST_LIVENESS,
            Self::Unread => MOST_UNREAD,
            Self::BmcTask => MOST_BMC_TASKS,
            Self::BmcLogEntry => MOST_BMC_LOGGED,
        }
    }
}
