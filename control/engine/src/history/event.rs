//! Node events other than class changes: reported by the agent or the BMC, or observed by this control in the quorum
//! and on the network.

use lattice_conformance::history::{Entry, Event, HistoryRecord};
use lattice_redfish::BmcEvent;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Kind name of BMC events.
pub const BMC_KIND: &str = "bmc";

/// An event with its position in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionedEvent {
    /// Number assigned by this control, in one sequence with the node's changes.
    pub number: u64,
    /// Time of the event, in Unix milliseconds.
    pub when: u64,
    /// Content of the event.
    pub what: EventContent,
}

/// Content of an event, by its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventContent {
    /// Event of the node's agent, from its journal.
    Event(Event),
    /// Observation of this control.
    Noted(NodeObservation),
    /// Event of the node's BMC.
    Bmc(Box<ReportedBmcEvent>),
    /// Record of an agent that is newer than this control; kept until a newer control can read it.
    Other(serde_json::Value),
}

impl EventContent {
    /// Stable name of the kind of event.
    pub fn kind(&self) -> &str {
        match self {
            Self::Event(event) => event.event.kind(),
            Self::Noted(noted) => noted.kind(),
            Self::Bmc(_) => BMC_KIND,
            Self::Other(value) => {
                let kind = value.get("event").and_then(|event| event.get("kind"));
                kind.and_then(serde_json::Value::as_str).unwrap_or("other")
            }
        }
    }

    /// The class change in a record that an older control could not read, if this control can read it.
    pub(super) fn entry(&self) -> Option<Entry> {
        let Self::Other(value) = self else {
            return None;
        };
        match serde_json::from_value(value.clone()) {
            Ok(HistoryRecord::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Returns the event. A record that an older control could not read is converted if this control can read it.
    pub(super) fn upgraded(self) -> Self {
        let Self::Other(value) = self else {
            return self;
        };
        match serde_json::from_value(value.clone()) {
            Ok(HistoryRecord::Event(event)) => Self::Event(event),
            _ => Self::Other(value),
        }
    }
}

/// Event that a BMC reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedBmcEvent {
    /// The event; of several equal log entries, the last one.
    pub deed: BmcEvent,
    /// Time at which this control read the event, in Unix milliseconds.
    pub read_at: u64,
    /// Number of log entries merged into this event.
    pub count: u32,
    /// Time of the first merged entry by the BMC's clock, if there are several.
    pub first_at: Option<u64>,
    /// Number of earlier entries of this log and others that were left out because of the hourly limit.
    pub left_out: u32,
}

/// Age on arrival, in milliseconds, above which the time of an event counts as wrong: the clock was not set.
pub(super) const MAX_EVENT_AGE_MS: u64 = 400 * 86_400_000;

impl ReportedBmcEvent {
    /// Time of the event by the BMC's clock, if that time is plausible.
    pub fn plausible_time(&self) -> Option<u64> {
        let since = self.read_at.saturating_sub(MAX_EVENT_AGE_MS);
        self.deed
            .at
            .filter(|at| (since..=self.read_at).contains(at))
    }

    /// Time at which the line is placed in the history.
    pub(super) fn history_time(&self) -> u64 {
        self.plausible_time().unwrap_or(self.read_at)
    }
}

/// Observation of a node by this control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeObservation {
    /// A drain reason was set, changed or cleared.
    Drain {
        /// Kind of change.
        turn: DrainTurn,
        /// Owner of the drain reason.
        owner: String,
        /// Text of the drain reason.
        reason: String,
        /// Whether the change happened while this control was not watching. The time of the note is then an upper
        /// bound.
        late: bool,
    },
    /// The lifecycle state of the node changed.
    Lifecycle {
        /// Previous state; `None` when the node was registered.
        from: Option<String>,
        /// New state.
        to: String,
        /// As in [`NodeObservation::Drain`].
        late: bool,
    },
    /// The node stopped or resumed answering this control.
    Liveness {
        /// Whether the node answers.
        is_alive: bool,
        /// Reason why the node does not answer.
        reason: Option<String>,
        /// Number of earlier changes that were left out because of the limit.
        left_out: u32,
        /// As in [`NodeObservation::Drain`].
        late: bool,
    },
    /// The node did not answer for a while and received no allocations; then it answered again.
    Suspect {
        /// Duration in milliseconds.
        for_ms: u64,
        /// Reason why the node was suspect.
        reason: Option<String>,
        /// Number of earlier such periods that were left out because of the limit.
        left_out: u32,
    },
    /// Audit entry that concerns the node or its baseline.
    Audit {
        /// Audit sequence number.
        number: u64,
        /// Name of the action.
        action: String,
        /// Principal that performed the action.
        by: String,
        /// Text summary of the action.
        summary: String,
    },
}

/// Change of a drain reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainTurn {
    /// The reason was set.
    Set,
    /// The text of the reason changed.
    Changed,
    /// The reason was cleared.
    Cleared,
}

impl NodeObservation {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Lifecycle { .. } => "lifecycle",
            Self::Liveness { .. } | Self::Suspect { .. } => "liveness",
            Self::Audit { .. } => "audit",
        }
    }
}

/// Position in a node's history list. Later items are older, or of the same time with a lower number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryPosition {
    /// Time in Unix milliseconds.
    pub when: u64,
    pub(crate) number: u64,
}

impl fmt::Display for HistoryPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.when, self.number)
    }
}

/// Error: a text is not a valid position.
#[derive(Debug)]
pub struct InvalidPosition;

impl FromStr for HistoryPosition {
    type Err = InvalidPosition;
    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (when, number) = text.split_once('.').ok_or(InvalidPosition)?;
        Ok(Self {
            when: when.parse().map_err(|_| InvalidPosition)?,
            number: number.parse().map_err(|_| InvalidPosition)?,
        })
    }
}
