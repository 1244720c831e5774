//! Causes of reads, to which changes are attributed.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Trigger of the read that found a change; the agent reads the node, and control its BMC. The trigger need not have
/// caused the change: a device that was flashed hours earlier is found by the next read, whatever triggers that read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The class was not known before.
    First,
    /// The host was booted after the previous read.
    Boot,
    /// A kernel module was loaded or unloaded, or has another version.
    DriverLoad {
        /// Name of the module.
        module: String,
    },
    /// The kernel reported a device event.
    DeviceEvent {
        /// The reported event.
        what: String,
    },
    /// An operator requested the read.
    Operator {
        /// Name of the operator.
        who: String,
    },
    /// The agent was restarted without a reboot of the host.
    AgentStart,
    /// A periodic read, or a read without any other of these causes.
    Periodic,
}

impl Cause {
    /// Precedence of the cause: if several apply, the one with the highest value is recorded.
    const fn strength(&self) -> u8 {
        match self {
            Self::First => 6,
            Self::Boot => 5,
            Self::DriverLoad { .. } => 4,
            Self::DeviceEvent { .. } => 3,
            Self::Operator { .. } => 2,
            Self::AgentStart => 1,
            Self::Periodic => 0,
        }
    }

    /// The stronger of two causes; `self`, the earlier one, if both are equal.
    #[must_use]
    pub fn or_stronger(self, other: Self) -> Self {
        if other.strength() > self.strength() {
            other
        } else {
            self
        }
    }

    /// The stable name, without details.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Boot => "boot",
            Self::DriverLoad { .. } => "driver_load",
            Self::DeviceEvent { .. } => "device_event",
            Self::Operator { .. } => "operator",
            Self::AgentStart => "agent_start",
            Self::Periodic => "periodic",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DriverLoad { module } => write!(f, "driver load ({module})"),
            Self::DeviceEvent { what } => write!(f, "device event ({what})"),
            Self::Operator { who } => write!(f, "operator ({who})"),
            Self::First => f.write_str("first read"),
            Self::Boot => f.write_str("boot"),
            Self::AgentStart => f.write_str("agent start"),
            Self::Periodic => f.write_str("periodic"),
        }
    }
}
