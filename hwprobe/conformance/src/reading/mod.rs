//! Reading: the result of reading one value, in seven states that are never mixed up.

mod value;

pub use value::Value;
pub(crate) use value::to_nfc;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// Result of reading one value.
///
/// Only the first three states are known. The other four are *unknown*: never equal, never zero, never a difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading<T> {
    /// The value was read.
    Present(T),
    /// The bus, firmware or kernel reports that the value does not exist.
    Absent,
    /// The device exists, but cannot provide the value, or returns a placeholder.
    Unsupported,
    /// The process lacks permission to read the value.
    Denied {
        /// The cause of the denial.
        why: String,
    },
    /// The read failed.
    Failed {
        /// The cause of the failure.
        why: String,
    },
    /// No answer arrived within the deadline.
    Timeout {
        /// The deadline, in milliseconds.
        after_ms: u64,
    },
    /// Not read, by policy or because no probe exists.
    Disabled {
        /// The reason.
        why: String,
    },
}

/// A [`Reading`]'s state without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadingState {
    /// The value was read.
    Present,
    /// The value does not exist.
    Absent,
    /// The device cannot provide the value.
    Unsupported,
    /// The process lacks permission.
    Denied,
    /// The read failed.
    Failed,
    /// The read exceeded its deadline.
    Timeout,
    /// The value was not read.
    Disabled,
}

impl<T> Reading<T> {
    /// [`Reading::Failed`] with this reason.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed { why: why.into() }
    }

    /// [`Reading::Denied`] with this reason.
    pub fn denied(why: impl Into<String>) -> Self {
        Self::Denied { why: why.into() }
    }

    /// [`Reading::Disabled`] with this reason.
    pub fn disabled(why: impl Into<String>) -> Self {
        Self::Disabled { why: why.into() }
    }

    /// [`Reading::Timeout`] after this long.
    pub fn timed_out(after: Duration) -> Self {
        Self::Timeout {
            after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The state without the value.
    pub const fn state(&self) -> ReadingState {
        match self {
            Self::Present(_) => ReadingState::Present,
            Self::Absent => ReadingState::Absent,
            Self::Unsupported => ReadingState::Unsupported,
            Self::Denied { .. } => ReadingState::Denied,
            Self::Failed { .. } => ReadingState::Failed,
            Self::Timeout { .. } => ReadingState::Timeout,
            Self::Disabled { .. } => ReadingState::Disabled,
        }
    }

    /// Whether the reading is known (present, absent, unsupported) and so enters a digest.
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Present(_) | Self::Absent | Self::Unsupported)
    }

    /// Whether the read timed out; a new read may return any state.
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// The value, if present.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            _ => None,
        }
    }

    /// `self`, or `other` if `self` is disabled.
    #[must_use]
    pub fn or_if_disabled(self, other: Self) -> Self {
        match self {
            Self::Disabled { .. } => other,
            asked => asked,
        }
    }

    /// Applies `f` to a present value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        self.and_then(|value| Reading::Present(f(value)))
    }

    /// Continues with `f` on a present value; keeps any other state.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Present(value) => f(value),
            Self::Absent => Reading::Absent,
            Self::Unsupported => Reading::Unsupported,
            Self::Denied { why } => Reading::Denied { why },
            Self::Failed { why } => Reading::Failed { why },
            Self::Timeout { after_ms } => Reading::Timeout { after_ms },
            Self::Disabled { why } => Reading::Disabled { why },
        }
    }

    /// A reading that borrows the value.
    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Self::Present(value) => Reading::Present(value),
            Self::Absent => Reading::Absent,
            Self::Unsupported => Reading::Unsupported,
            Self::Denied { why } => Reading::Denied { why: why.clone() },
            Self::Failed { why } => Reading::Failed { why: why.clone() },
            Self::Timeout { after_ms } => Reading::Timeout {
                after_ms: *after_ms,
            },
            Self::Disabled { why } => Reading::Disabled { why: why.clone() },
        }
    }

    /// The reading that an I/O error stands for. A missing file or device is *absent*, a missing permission *denied*,
    /// an unimplemented attribute *unsupported*, and any other error *failed*.
    pub fn from_io(what: &str, error: &io::Error) -> Self {
        // ENXIO, ENODEV: attribute of a device that no longer exists.
        const GONE: [i32; 2] = [6, 19];
        // EINVAL, EOPNOTSUPP, ENOSYS: sysfs attributes that a driver does not implement.
        const UNIMPLEMENTED: [i32; 3] = [22, 95, 38];
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return Self::Absent,
            io::ErrorKind::PermissionDenied => {
                return Self::denied(format!("{what}: permission denied"));
            }
            _ => {}
        }
        match error.raw_os_error() {
            Some(code) if GONE.contains(&code) => Self::Absent,
            Some(code) if UNIMPLEMENTED.contains(&code) => Self::Unsupported,
            _ => Self::failed(format!("{what}: {error}")),
        }
    }
}

impl<T> Default for Reading<T> {
    /// Disabled, because no probe has run.
    fn default() -> Self {
        Self::disabled("not probed")
    }
}

impl ReadingState {
    /// The stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Disabled => "disabled",
        }
    }
}

impl fmt::Display for ReadingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Displays a present value as itself, and any other state in angle brackets with its reason, so that the two cannot be
/// confused.
impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(value) => value.fmt(f),
            Self::Absent | Self::Unsupported => write!(f, "<{}>", self.state()),
            Self::Denied { why } | Self::Failed { why } | Self::Disabled { why } => {
                write!(f, "<{}: {why}>", self.state())
            }
            Self::Timeout { after_ms } => write!(f, "<timeout after {after_ms} ms>"),
        }
    }
}
