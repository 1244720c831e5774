//! Errors of requests to Waldur.

use super::Right;
use crate::secret::SecretError;
use std::time::Duration;

/// Status of a failure inside Waldur. Waldur 7 answers with it where a request itself cannot be handled: usage of a
/// resource without a plan, or a name that is too long.
const INTERNAL_ERROR: u16 = 500;

/// Error of a request to Waldur.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaldurError {
    /// The connection failed, or the reply is not a valid one of Waldur. The outcome of the request is unknown.
    #[error("Waldur is unreachable or its reply is invalid: {reason}")]
    Unreached {
        /// Innermost cause, or the fault of the reply.
        reason: String,
    },
    /// Waldur cannot handle the request now.
    #[error("Waldur answered {what} with status {status}")]
    Busy {
        /// Path of the request.
        what: String,
        /// HTTP status: 429, or 500 and above.
        status: u16,
        /// Time to wait before a retry, if the reply contains it.
        retry_after: Option<Duration>,
    },
    /// Waldur rejects the token, or the token is not valid in an HTTP header.
    #[error("Waldur rejects the token: {reason}; store a valid one at `token_secret_ref`")]
    Denied {
        /// Reason from the reply.
        reason: String,
    },
    /// The token cannot be read.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// Waldur rejects the request.
    #[error("Waldur rejected {what} with status {status}: {reason}")]
    Refused {
        /// Path of the request.
        what: String,
        /// HTTP status: 400, 403, 404, 409, …
        status: u16,
        /// Reason from the reply.
        reason: String,
    },
    /// What Waldur has cannot be used, or an operator has to decide about it.
    #[error("{what}: {reason}")]
    Unusable {
        /// The object, such as `offering 0a1b`.
        what: String,
        /// Why it cannot be used, and the next step.
        reason: String,
    },
    /// Waldur rejects the request, because the token's user lacks a right.
    #[error("missing right: {right}; Waldur rejected {what} with status {status}: {reason}")]
    MissingRight {
        /// The right.
        right: Right,
        /// Path of the request.
        what: String,
        /// HTTP status: 403, or 404 where the user has no role at all.
        status: u16,
        /// Reason from the reply.
        reason: String,
    },
}

impl WaldurError {
    /// Whether a retry may succeed. A transient error stops the round; a rejected request is set aside and blocks
    /// nothing.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreached { .. } | Self::Busy { .. } | Self::Denied { .. } | Self::Secret(_) => {
                true
            }
            Self::Refused { .. } | Self::Unusable { .. } | Self::MissingRight { .. } => false,
        }
    }

    /// Time to wait before a retry, if the reply contained it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The error as that of a request about one object. With status 500 Waldur fails at this request, while it answers
    /// others, and a repeat fails again: such a request counts as rejected, so that it is set aside and does not stop
    /// the round. Every other status is unchanged: 429, 502, 503 and 504 end by waiting.
    ///
    /// Not for requests that a round cannot do without, such as lists: their failure ends the round.
    #[must_use]
    pub fn of_one_request(self) -> Self {
        match self {
            Self::Busy {
                what,
                status: INTERNAL_ERROR,
                ..
            } => Self::Refused {
                what,
                status: INTERNAL_ERROR,
                reason: "Waldur failed at the request; the log of Waldur has the cause".to_owned(),
            },
            other => other,
        }
    }

    /// The error as that of a POST request to `path`: a refusal with status 403 is the lack of the right that this request
    /// needs.
    #[must_use]
    pub(super) fn of_post(self, path: &str) -> Self {
        match (self, Right::of_post(path)) {
            (
                Self::Refused {
                    what,
                    status: status @ 403,
                    reason,
                },
                Some(right),
            ) => Self::MissingRight {
                right,
                what,
                status,
                reason,
            },
            (error, _) => error,
        }
    }

    /// This error, with `right` in place of the right that the path of the request implies.
    #[must_use]
    pub(super) fn for_right(mut self, instead: Right) -> Self {
        if let Self::MissingRight { right, .. } = &mut self {
            *right = instead;
        }
        self
    }

    /// A refusal with status 404 as the lack of a right: Waldur hides an object from a user without any role at its
    /// customer.
    #[must_use]
    pub(super) fn hidden_without(self, right: Right) -> Self {
        match self {
            Self::Refused {
                what,
                status: status @ 404,
                reason,
            } => Self::MissingRight {
                right,
                what,
                status,
                reason,
            },
            other => other,
        }
    }
}
