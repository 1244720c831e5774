//! What happened to a node beside changes of its classes: as its agent told it, and as this control
//! saw it in the quorum and on the wire.

use lattice_hwprobe::history::{Entry, Event, Record};
use lattice_redfish::Deed;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The kind of what a BMC did.
pub(crate) const BMC_KIND: &str = "bmc";

/// Something that happened, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Happened {
    /// Ours, in one sequence with the node's changes.
    pub(crate) number: u64,
    /// When, Unix milliseconds.
    pub(crate) when: u64,
    /// What it was.
    pub(crate) what: What,
}

/// Who told what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// The node's agent, from its journal.
    Event(Event),
    /// This control.
    Noted(Noted),
    /// The node's BMC.
    Bmc(Box<BmcDid>),
    /// The node's agent, which is newer than this control: kept until it is understood.
    Other(serde_json::Value),
}

impl What {
    /// The stable name of what happened.
    pub(crate) fn kind(&self) -> &str {
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

    /// The change that an older control could not read, where this one can.
    pub(super) fn entry(&self) -> Option<Entry> {
        let Self::Other(value) = self else {
            return None;
        };
        match serde_json::from_value(value.clone()) {
            Ok(Record::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    /// With what an older control could not read, as this one reads it.
    pub(super) fn understood(self) -> Self {
        let Self::Other(value) = self else {
            return self;
        };
        match serde_json::from_value(value.clone()) {
            Ok(Record::Event(event)) => Self::Event(event),
            _ => Self::Other(value),
        }
    }
}

/// What a BMC did or noticed, by its own word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BmcDid {
    /// It, the last time where it was logged several times.
    pub(crate) deed: Deed,
    /// When this control read it, Unix milliseconds.
    pub(crate) read_at: u64,
    /// For how many entries it stands.
    pub(crate) count: u32,
    /// The first of them by the BMC's clock, where there are several.
    pub(crate) first_at: Option<u64>,
    /// Entries of its log and others before it that are not written down: too many.
    pub(crate) left_out: u32,
}

/// What happened so long before it was heard has its time from a clock that was not set yet.
pub(super) const LONG_AGO_MS: u64 = 400 * 86_400_000;

impl BmcDid {
    /// When it happened, where the BMC's clock can be believed.
    pub(crate) fn believed(&self) -> Option<u64> {
        let since = self.read_at.saturating_sub(LONG_AGO_MS);
        self.deed
            .at
            .filter(|at| (since..=self.read_at).contains(at))
    }

    /// Where its line stands.
    pub(super) fn stands_at(&self) -> u64 {
        self.believed().unwrap_or(self.read_at)
    }
}

/// What this control saw of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Noted {
    /// A drain reason was set, says something else, or was cleared.
    Drain {
        /// Which of them.
        turn: DrainTurn,
        /// Whose it is.
        owner: String,
        /// What it says.
        reason: String,
        /// It happened while this control did not look: at the time of the note at the latest.
        late: bool,
    },
    /// What is intended for the node became something else.
    Lifecycle {
        /// What it was; none when the node was registered.
        from: Option<String>,
        /// What it is.
        to: String,
        /// As of a drain.
        late: bool,
    },
    /// It answers this control no more, or again.
    Liveness {
        /// Whether it does.
        is_alive: bool,
        /// Why it does not.
        reason: Option<String>,
        /// Changes before this one that are not noted: too many.
        left_out: u32,
        /// As of a drain.
        late: bool,
    },
    /// For a while it did not answer, and was given no work; then it did.
    Suspect {
        /// How long, milliseconds.
        for_ms: u64,
        /// Why it was suspect.
        reason: Option<String>,
        /// Such times before this one that are not noted: too many.
        left_out: u32,
    },
    /// Something that is in the audit, of the node or of what it is judged by.
    Audit {
        /// Its number there.
        number: u64,
        /// The action's word.
        action: String,
        /// Who did it.
        by: String,
        /// What was done, in words.
        summary: String,
    },
}

/// What became of a drain reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DrainTurn {
    /// It was set.
    Set,
    /// It says something else.
    Changed,
    /// It was cleared.
    Cleared,
}

impl Noted {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Lifecycle { .. } => "lifecycle",
            Self::Liveness { .. } | Self::Suspect { .. } => "liveness",
            Self::Audit { .. } => "audit",
        }
    }
}

/// A place in a node's list: what comes after it is older, or as old with a lower number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Unix milliseconds.
    pub(crate) when: u64,
    pub(crate) number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.when, self.number)
    }
}

/// A text that is no place.
#[derive(Debug)]
pub(crate) struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;
    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (when, number) = text.split_once('.').ok_or(NoPlace)?;
        Ok(Self {
            when: when.parse().map_err(|_| NoPlace)?,
            number: number.parse().map_err(|_| NoPlace)?,
        })
    }
}
