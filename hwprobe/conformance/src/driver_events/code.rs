//! Event codes of GPUs and NICs, in the terms of the vendor.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Prefix of the reason code of an XID; the number follows.
const XID: &str = "gpu.xid.";
/// Prefix of the reason code of a fatal error of an NVSwitch; the number follows.
const SXID: &str = "nvswitch.sxid.";
/// Prefix of the reason code of an amdgpu event; the name follows.
const AMD: &str = "gpu.amd.";
/// Prefix of the reason code of an mlx5_core event; the name follows.
const MLX5: &str = "nic.mlx5.";

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventCode {
    /// XID number of NVIDIA's driver.
    Xid(u32),
    /// An amdgpu event from the kernel log; AMD's driver has no event numbers.
    Amd(AmdEvent),
    /// An event of NVIDIA's NIC driver from the kernel log.
    Mlx5(Mlx5Event),
    /// SXid number of a fatal error of an NVSwitch, from the kernel log. Errors that the driver handled are no events.
    Sxid(u32),
}

/// GPU events that amdgpu reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdEvent {
    /// An uncorrectable error.
    Uncorrectable,
    /// An uncorrectable error in memory that has not been read since.
    Deferred,
    /// Damaged memory was read.
    Poison,
    /// An error that cannot be contained.
    Fatal,
    /// The maximum number of pages is retired.
    BadPages,
    /// A queue timed out and could not be recovered.
    RingTimeout,
    /// A GPU reset begins.
    ResetBegun,
    /// The reset succeeded.
    ResetDone,
    /// The reset failed.
    ResetFailed,
}

impl AmdEvent {
    /// Every amdgpu event.
    pub const ALL: [Self; 9] = [
        Self::Uncorrectable,
        Self::Deferred,
        Self::Poison,
        Self::Fatal,
        Self::BadPages,
        Self::RingTimeout,
        Self::ResetBegun,
        Self::ResetDone,
        Self::ResetFailed,
    ];

    /// The stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uncorrectable => "uncorrectable",
            Self::Deferred => "deferred",
            Self::Poison => "poison",
            Self::Fatal => "fatal",
            Self::BadPages => "bad_pages",
            Self::RingTimeout => "ring_timeout",
            Self::ResetBegun => "reset_begun",
            Self::ResetDone => "reset_done",
            Self::ResetFailed => "reset_failed",
        }
    }
}

/// NIC events that mlx5_core reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mlx5Event {
    /// The firmware did not answer a command.
    CommandTimeout,
    /// The firmware's health counter has stopped: the firmware hangs.
    HealthCompromised,
    /// The driver shut the device down: its firmware stopped, or the device is unreachable on the bus.
    Fatal,
    /// The firmware reports an unrecoverable hardware error.
    Unrecoverable,
    /// The driver reset the NIC and uses it again.
    Recovered,
    /// The driver could not recover the NIC.
    RecoveryFailed,
}

impl Mlx5Event {
    /// Every mlx5_core event.
    pub const ALL: [Self; 6] = [
        Self::CommandTimeout,
        Self::HealthCompromised,
        Self::Fatal,
        Self::Unrecoverable,
        Self::Recovered,
        Self::RecoveryFailed,
    ];

    /// The stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommandTimeout => "command_timeout",
            Self::HealthCompromised => "health_compromised",
            Self::Fatal => "fatal",
            Self::Unrecoverable => "unrecoverable",
            Self::Recovered => "recovered",
            Self::RecoveryFailed => "recovery_failed",
        }
    }
}

impl EventCode {
    /// The stable reason code: `gpu.xid.79`, `nvswitch.sxid.20034`, `gpu.amd.ring_timeout`.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Xid(number) => format!("{XID}{number}"),
            Self::Amd(event) => format!("{AMD}{}", event.name()),
            Self::Mlx5(event) => format!("{MLX5}{}", event.name()),
            Self::Sxid(number) => format!("{SXID}{number}"),
        }
    }

    /// The event of a reason code; `None` for the code of a check.
    #[must_use]
    pub fn from_reason(code: &str) -> Option<Self> {
        if let Some(number) = code.strip_prefix(XID) {
            return number.parse().ok().map(Self::Xid);
        }
        if let Some(number) = code.strip_prefix(SXID) {
            return number.parse().ok().map(Self::Sxid);
        }
        if let Some(name) = code.strip_prefix(MLX5) {
            let event = Mlx5Event::ALL
                .into_iter()
                .find(|event| event.name() == name);
            return event.map(Self::Mlx5);
        }
        let name = code.strip_prefix(AMD)?;
        let event = AmdEvent::ALL.into_iter().find(|event| event.name() == name);
        event.map(Self::Amd)
    }

    /// Whether the event belongs to a NIC.
    #[must_use]
    pub const fn is_nic_event(&self) -> bool {
        matches!(self, Self::Mlx5(_))
    }

    /// The health entity of a GPU. For an AMD event, `gpu.3` of the identity becomes `gpu.amd.3`, as in the vitals of
    /// AMD GPUs. Any other text, such as an address, is returned unchanged.
    #[must_use]
    pub fn entity(&self, gpu: &str) -> String {
        match (self, gpu.strip_prefix("gpu.")) {
            (Self::Amd(_), Some(slot)) => format!("{AMD}{slot}"),
            _ => gpu.to_owned(),
        }
    }
}

/// Displays an XID as its number, as is usual, and any other event as its reason code.
impl fmt::Display for EventCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(number) => fmt::Display::fmt(number, f),
            Self::Amd(_) | Self::Mlx5(_) | Self::Sxid(_) => f.pad(&self.reason()),
        }
    }
}
