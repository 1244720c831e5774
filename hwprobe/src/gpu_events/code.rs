//! What happened to a GPU, in the words of its vendor.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the code of an XID's reason goes on with is its number.
const XID: &str = "gpu.xid.";
/// The same of AMD's, which have names.
const AMD: &str = "gpu.amd.";

/// An event's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventCode {
    /// NVIDIA's number.
    Xid(u32),
    /// AMD's driver has no numbers: what its lines in the kernel's log say.
    Amd(AmdEvent),
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

impl EventCode {
    /// The stable code of its reason: `gpu.xid.79`, `gpu.amd.ring_timeout`.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Xid(number) => format!("{XID}{number}"),
            Self::Amd(event) => format!("{AMD}{}", event.name()),
        }
    }

    /// The event of a reason's code; none for a check's.
    #[must_use]
    pub fn of_reason(code: &str) -> Option<Self> {
        if let Some(number) = code.strip_prefix(XID) {
            return number.parse().ok().map(Self::Xid);
        }
        let name = code.strip_prefix(AMD)?;
        let event = AmdEvent::ALL.into_iter().find(|event| event.name() == name);
        event.map(Self::Amd)
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
            Self::Amd(_) => f.pad(&self.reason()),
        }
    }
}
