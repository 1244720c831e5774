//! Health of a node's hardware, determined by checks that are data.
//!
//! A [`Table`] holds the checks and the classes of events (XIDs, and those of other drivers). The table has a version,
//! and a site overrides single entries ([`SiteTable`]). The [`Engine`] evaluates each pass over the node and
//! keeps the [`Reason`]s: stable code, entity, evidence, first and last seen, and the action. A check creates a reason
//! only from an explicit bad reading, and ends it only on an explicit good reading; an unreadable value does neither. A
//! reboot and an operator end reasons too.
//!
//! This module accesses no clock and no device: the caller passes times and readings as values.

mod condition;
mod engine;
mod event;
mod pattern;
mod site;
mod table;
#[cfg(test)]
mod tests;

pub use condition::{Condition, CounterRise};
pub use engine::{Engine, EngineState, HealthReport};
pub use pattern::Pattern;
pub use site::SiteTable;
pub use table::{Check, EventClass, Table, TableError, TableMistake, XidClass};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Severity of a reason, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informational: the verdict does not change.
    Inform,
    /// Still usable: a new allocation is placed here only if no other node fits, and never a sensitive one.
    Degraded,
    /// Not fit for new allocations.
    Faulty,
}

/// Remedy for a reason. The action, not the name of a check, decides whether a node is drained: a problem cured by
/// restarting the application is not a fault of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// No action.
    None,
    /// Restart the application.
    RestartApplication,
    /// Reset the GPU.
    ResetGpu,
    /// Reboot the node.
    Reboot,
    /// Power-cycle the node. Only an operator does this, never Lattice.
    PowerCycle,
    /// Update firmware or software.
    Update,
    /// Inspect the hardware.
    Inspect,
}

impl Action {
    /// Whether the action needs a drained node.
    #[must_use]
    pub const fn needs_drain(self) -> bool {
        matches!(
            self,
            Self::ResetGpu | Self::Reboot | Self::PowerCycle | Self::Inspect
        )
    }

    /// The action as text for operators.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::None => "no action",
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
        f.pad(self.description())
    }
}

/// One fault of one part of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable code: the name of a check, or of an event such as `gpu.xid.<number>` or `gpu.amd.<event>`.
    pub code: String,
    /// Affected part: `gpu.3`, `nic.0.port.1`, `memory`.
    pub entity: String,
    /// Evidence, as text for operators.
    pub evidence: String,
    /// Severity of the fault.
    pub severity: Severity,
    /// Remedy for the fault.
    pub action: Action,
    /// Observe-only: the reason counts in no verdict and drains no node.
    pub observe_only: bool,
    /// First seen, in Unix milliseconds.
    pub first_seen_ms: u64,
    /// Last seen, in Unix milliseconds.
    pub last_seen_ms: u64,
    /// Number of bad readings or events so far.
    pub count: u32,
}

impl Reason {
    /// Whether the reason leads to a drain: its severity is faulty, its action needs a drained node, and it is not
    /// observe-only.
    #[must_use]
    pub const fn drains(&self) -> bool {
        !self.observe_only && self.action.needs_drain() && matches!(self.severity, Severity::Faulty)
    }
}
