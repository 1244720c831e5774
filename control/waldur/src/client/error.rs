//! Errors of requests to Waldur.

use crate::secret::SecretError;
use std::time::Duration;

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
    #[error("Waldur answered with status {status}")]
    Busy {
        /// HTTP status: 429, or 500 and above.
        status: u16,
        /// Time to wait before a retry, if the reply contains it.
        retry_after: Option<Duration>,
    },
    /// Waldur rejects the token, or the token is not valid in an HTTP header.
    #[error("Waldur rejects the token: {reason}")]
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
}

impl WaldurError {
    /// Whether a retry may succeed. A transient error stops the round; a rejected request is set aside and blocks
    /// nothing.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Time to wait before a retry, if the reply contained it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
