//! The result of reading one thing: seven states that stay distinct to the screen.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// What came of reading one value.
///
/// Only the first three are knowledge. The other four are *unknown*: never equal,
/// never zero, never a difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading<T> {
    /// The value.
    Present(T),
    /// The bus, firmware or kernel says there is none.
    Absent,
    /// The device is there and says it cannot answer, or answers with a placeholder.
    Unsupported,
    /// We may not read it.
    Denied {
        /// What refused.
        why: String,
    },
    /// Reading went wrong.
    Failed {
        /// What went wrong.
        why: String,
    },
    /// No answer within the deadline.
    Timeout {
        /// The deadline, in milliseconds.
        after_ms: u64,
    },
    /// Not asked, by policy or because no probe exists.
    Disabled {
        /// Who decided.
        why: String,
    },
}

/// A [`Reading`]'s state without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There is a value.
    Present,
    /// There is none.
    Absent,
    /// The device cannot say.
    Unsupported,
    /// Not permitted.
    Denied,
    /// Went wrong.
    Failed,
    /// Took too long.
    Timeout,
    /// Not asked.
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

    /// The state alone.
    pub const fn state(&self) -> State {
        match self {
            Self::Present(_) => State::Present,
            Self::Absent => State::Absent,
            Self::Unsupported => State::Unsupported,
            Self::Denied { .. } => State::Denied,
            Self::Failed { .. } => State::Failed,
            Self::Timeout { .. } => State::Timeout,
            Self::Disabled { .. } => State::Disabled,
        }
    }

    /// Whether this is knowledge (present, absent, unsupported) and so enters a digest.
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Present(_) | Self::Absent | Self::Unsupported)
    }

    /// Whether it was not answered in time: asked again it may be anything.
    pub const fn is_late(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// The value, if present.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            _ => None,
        }
    }

    /// `self`, unless nobody asked: then `other`.
    #[must_use]
    pub fn or_asked(self, other: Self) -> Self {
        match self {
            Self::Disabled { .. } => other,
            asked => asked,
        }
    }

    /// Applies `f` to a present value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        self.and_then(|value| Reading::Present(f(value)))
    }

    /// Continues with `f` on a present value, keeps any other state.
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

    /// Borrowing view.
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

    /// The state an I/O error stands for: a missing file is *absent*, a refusal is
    /// *denied*, a device that will not answer is *unsupported*, the rest *failed*.
    pub fn from_io(what: &str, error: &io::Error) -> Self {
        // ENXIO, ENODEV: attribute of a device that is not there any more.
        const GONE: [i32; 2] = [6, 19];
        // EINVAL, EOPNOTSUPP, ENOSYS: sysfs attributes a driver does not implement.
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
    /// Nobody asked yet.
    fn default() -> Self {
        Self::disabled("not probed")
    }
}

impl State {
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

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A present value as itself, any other state in angle brackets with its reason, so a
/// screen cannot show one for the other.
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
