//! Whether a node's hardware is fit for work, by checks that are data.
//!
//! A [`Table`] holds the checks and the classes of events (XIDs, and what AMD's driver says instead);
//! it is versioned, and a site overrides it
//! line by line ([`Table::with_site`]). The [`Engine`] looks at what a pass over the node saw and
//! keeps the [`Reason`]s: stable code, entity, evidence, first and last seen, what to do. Only an
//! explicit bad reading makes a reason and only an explicit good one clears it: what cannot be read
//! is neither.
//!
//! This module knows no clock and no device: both come in as values.

mod condition;
mod engine;
mod event;
mod pattern;
mod table;
#[cfg(test)]
mod tests;

pub use condition::{Condition, Rise};
pub use engine::{Engine, Memory, Report};
pub use pattern::Pattern;
pub use table::{Check, EventClass, Table, TableError, XidClass};

use serde::{Deserialize, Serialize};
use std::fmt;

/// How bad it is, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing: the verdict stays as it is.
    Inform,
    /// Still usable: new work goes there where no other node will do, and none that is sensitive.
    Degraded,
    /// Not fit for new work.
    Faulty,
}

/// What helps. It, not the name of a check, decides whether a node is taken out of service: what a
/// restart of the application cures is no fault of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing.
    None,
    /// The application is started again.
    RestartApplication,
    /// The GPU is reset.
    ResetGpu,
    /// The node is rebooted.
    Reboot,
    /// Its power is cycled: by a person, never by us.
    PowerCycle,
    /// Firmware or software is updated.
    Update,
    /// Somebody looks at it.
    Inspect,
}

impl Action {
    /// Whether it needs the node empty.
    #[must_use]
    pub const fn needs_drain(self) -> bool {
        matches!(
            self,
            Self::ResetGpu | Self::Reboot | Self::PowerCycle | Self::Inspect
        )
    }

    /// For a person.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::RestartApplication => "restart the application",
            Self::ResetGpu => "reset the GPU",
            Self::Reboot => "reboot the node",
            Self::PowerCycle => "power-cycle the node",
            Self::Update => "update firmware or software",
            Self::Inspect => "inspect the hardware",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

/// One thing that is wrong with one part of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable code: the check's name, or an event's, `gpu.xid.<number>` or `gpu.amd.<event>`.
    pub code: String,
    /// The part: `gpu.3`, `nic.0.port.1`, `memory`.
    pub entity: String,
    /// What was read, for a person.
    pub evidence: String,
    /// How bad it is.
    pub severity: Severity,
    /// What helps.
    pub action: Action,
    /// Only watched: it counts in no verdict and drains nothing.
    pub observe_only: bool,
    /// First seen, Unix milliseconds.
    pub first_seen_ms: u64,
    /// Last seen, Unix milliseconds.
    pub last_seen_ms: u64,
    /// How often.
    pub count: u32,
}

impl Reason {
    /// Whether it asks for a node without work, and is not only watched.
    #[must_use]
    pub const fn drains(&self) -> bool {
        !self.observe_only && self.action.needs_drain() && matches!(self.severity, Severity::Faulty)
    }
}
