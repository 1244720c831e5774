//! What happened to a GPU or a NIC, in the words of its vendor.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the code of an XID's reason goes on with is its number.
const XID: &str = "gpu.xid.";
/// The same of AMD's, which have names.
const AMD: &str = "gpu.amd.";
/// Of NICs of the driver mlx5_core.
const MLX5: &str = "nic.mlx5.";

/// An event's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventCode {
    /// NVIDIA's number.
    Xid(u32),
    /// AMD's driver has no numbers: what its lines in the kernel's log say.
    Amd(AmdEvent),
    /// What NVIDIA's driver of NICs says there.
    Mlx5(Mlx5Event),
}

/// What amdgpu tells of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdEvent {
    /// An error that could not be corrected.
    Uncorrectable,
    /// The same, in memory that nobody has read since.
    Deferred,
    /// Damaged memory was read.
    Poison,
    /// An error that cannot be contained.
    Fatal,
    /// As many pages are retired as may be.
    BadPages,
    /// A queue did not come to its end, and was not freed either.
    RingTimeout,
    /// A reset begins.
    ResetBegun,
    /// It succeeded.
    ResetDone,
    /// It did not.
    ResetFailed,
}

impl AmdEvent {
    /// Every one.
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

/// What mlx5_core tells of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mlx5Event {
    /// The firmware did not answer a command.
    CommandTimeout,
    /// The firmware does not count on any more: it hangs.
    HealthCompromised,
    /// The driver gave the device up: its firmware stopped, or the bus does not reach it.
    Fatal,
    /// The firmware says that its hardware is broken.
    Unrecoverable,
    /// The driver has reset it and works with it again.
    Recovered,
    /// It could not.
    RecoveryFailed,
}

impl Mlx5Event {
    /// Every one.
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
    /// The stable code of its reason: `gpu.xid.79`, `gpu.amd.ring_timeout`.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Xid(number) => format!("{XID}{number}"),
            Self::Amd(event) => format!("{AMD}{}", event.name()),
            Self::Mlx5(event) => format!("{MLX5}{}", event.name()),
        }
    }

    /// The event of a reason's code; none for a check's.
    #[must_use]
    pub fn of_reason(code: &str) -> Option<Self> {
        if let Some(number) = code.strip_prefix(XID) {
            return number.parse().ok().map(Self::Xid);
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

    /// Whether it is of a NIC.
    #[must_use]
    pub const fn is_of_nic(&self) -> bool {
        matches!(self, Self::Mlx5(_))
    }

    /// What health calls the GPU that identity calls `gpu` (`gpu.3`): AMD's have live values of
    /// names of their own. What is no such name (an address) stays.
    #[must_use]
    pub fn entity(&self, gpu: &str) -> String {
        match (self, gpu.strip_prefix("gpu.")) {
            (Self::Amd(_), Some(slot)) => format!("{AMD}{slot}"),
            _ => gpu.to_owned(),
        }
    }
}

/// An XID by its number, as everybody writes it; another event by its reason's code.
impl fmt::Display for EventCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(number) => fmt::Display::fmt(number, f),
            Self::Amd(_) | Self::Mlx5(_) => f.pad(&self.reason()),
        }
    }
}
