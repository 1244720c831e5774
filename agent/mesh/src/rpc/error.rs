//! Errors of calls.

use crate::Role;
use std::{net::SocketAddr, time::Duration};

/// Reason why a call has no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The caller's role may not call the method.
    #[error("role {role} may not call {method}")]
    Denied {
        /// Called method.
        method: String,
        /// Role of the caller.
        role: Role,
    },
    /// The peer does not serve the method: it has another role or version.
    #[error("the peer does not serve {method}")]
    UnknownMethod {
        /// Called method.
        method: String,
    },
    /// The request or its reply is too large.
    #[error("a message of {bytes} bytes is above the limit of {limit_bytes} bytes")]
    TooLarge {
        /// Size, bytes.
        bytes: u64,
        /// Limit, bytes.
        limit_bytes: u64,
    },
    /// One side cannot decode the other's message, most likely because the versions differ.
    #[error("the message cannot be read: {reason}")]
    Malformed {
        /// Reason in words.
        reason: String,
    },
    /// No reply arrived in time. The peer may or may not have acted on the request.
    #[error("no reply within {} ms", .after.as_millis())]
    Deadline {
        /// Time waited.
        after: Duration,
    },
    /// The peer could not be reached, or the connection was lost.
    #[error("{reason}")]
    Transport {
        /// Address of the peer.
        addr: SocketAddr,
        /// Whether the request was sent, so that the peer may have acted on it.
        sent: bool,
        /// Cause in words.
        reason: String,
    },
    /// The peer's handler failed.
    #[error("the peer failed: {reason}")]
    HandlerFailed {
        /// Reason from the handler.
        reason: String,
    },
}

impl CallError {
    /// Returns whether the peer may have acted on the request. When `false`, repeating the request is safe.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::UnknownMethod { .. } => false,
            Self::Transport { sent, .. } => *sent,
            Self::TooLarge { .. }
            | Self::Malformed { .. }
            | Self::Deadline { .. }
            | Self::HandlerFailed { .. } => true,
        }
    }
}
