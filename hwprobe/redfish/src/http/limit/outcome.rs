//! Results of setting a limit: confirmation, or the reason for a failure.

use crate::http::error::FetchError;
use lattice_conformance::{Milliwatts, Reading};
use std::fmt;

/// A limit as the BMC reported it after the change, or before it if the requested limit was in force already.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ConfirmedLimit {
    pub(super) limit: Option<Milliwatts>,
    pub(super) draw: Reading<Milliwatts>,
    pub(super) exception_action: Reading<String>,
}

/// Confirmation that the BMC cuts no power if a limit cannot be enforced, as read from the BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct SafeException {
    pub(super) action: Reading<String>,
}

impl ConfirmedLimit {
    /// The limit in force; none if there is no limit.
    #[must_use]
    pub const fn limit(&self) -> Option<Milliwatts> {
        self.limit
    }

    /// Power draw of the node in the same read, if the same resource reports it.
    #[must_use]
    pub const fn draw(&self) -> &Reading<Milliwatts> {
        &self.draw
    }

    /// Action of the BMC if the limit cannot be enforced.
    #[must_use]
    pub const fn exception_action(&self) -> &Reading<String> {
        &self.exception_action
    }
}

impl SafeException {
    /// Action of the BMC; absent if the BMC has no such action.
    #[must_use]
    pub const fn action(&self) -> &Reading<String> {
        &self.action
    }
}

/// Reason why no limit was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitRefusal {
    /// This client has no account that may set limits.
    #[error("no account that may set limits is configured")]
    NoCredential,
    /// The node has no control that accepts a limit.
    #[error("the node has no power control that takes a limit")]
    NoControl,
    /// The limit is outside the BMC's supported range.
    #[error("{asked} is outside of {}", range(.lowest.as_ref(), .highest.as_ref()))]
    OutOfRange {
        /// Requested limit.
        asked: Milliwatts,
        /// Lowest supported limit.
        lowest: Option<Milliwatts>,
        /// Highest supported limit.
        highest: Option<Milliwatts>,
    },
    /// The BMC cuts, or may cut, the power if the limit cannot be enforced.
    #[error(
        "the BMC's action for a limit that cannot be enforced is {action}, which may cut the power: \
             NoAction or LogEventOnly must be set first"
    )]
    PowerOff {
        /// The configured action.
        action: String,
    },
    /// The control has no setting for "no limit".
    #[error("the control cannot be switched off, and reports no highest limit")]
    CannotLift,
    /// The current limit cannot be interpreted.
    #[error("the limit that is set now cannot be read: {why}")]
    Unreadable {
        /// The reason.
        why: String,
    },
}

/// The limit is not set, or not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum SetLimitError {
    /// No limit was sent.
    #[error("refused: {0}")]
    Refused(#[from] LimitRefusal),
    /// The control could not be read, or the change could not be sent, for example because the BMC was unreachable or
    /// busy, or rejected the login.
    #[error("nothing was sent: {0}")]
    NotSent(FetchError),
    /// The BMC rejected the change. The limit is unchanged; after a status of 500 or more, a read has confirmed this.
    #[error("the BMC refused with status {status}: {message}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// Message of the BMC.
        message: String,
    },
    /// The change was sent, but another limit is in force.
    #[error("requested {}, but {} is in effect", display_limit(.asked.as_ref()), display_limit(.stored.limit.as_ref()))]
    Altered {
        /// Requested limit.
        asked: Option<Milliwatts>,
        /// Limit in force.
        stored: ConfirmedLimit,
    },
    /// The BMC's action for a limit that cannot be enforced is unknown.
    #[error("it is unknown whether the BMC cuts the power: {why}")]
    ExceptionUnconfirmed {
        /// The reason.
        why: String,
    },
    /// The change was sent, but the limit in force is unknown, or the BMC may now cut the power if the limit cannot be
    /// enforced.
    #[error("requested {}, and the limit in effect is unknown: {why}", display_limit(.asked.as_ref()))]
    Unconfirmed {
        /// Requested limit.
        asked: Option<Milliwatts>,
        /// The reason.
        why: String,
    },
}

fn display_limit(limit: Option<&Milliwatts>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), Milliwatts::to_string)
}

fn range(lowest: Option<&Milliwatts>, highest: Option<&Milliwatts>) -> String {
    let shown = |bound: Option<&Milliwatts>| bound.map_or("?".to_owned(), Milliwatts::to_string);
    format!("{} to {}", shown(lowest), shown(highest))
}

impl fmt::Display for ConfirmedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&display_limit(self.limit.as_ref()))
    }
}
