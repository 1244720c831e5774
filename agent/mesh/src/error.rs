//! Errors of the mesh: endpoints, calls and messages.

use crate::{BundleRefused, CredentialsError, Expect, Identity, Role};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

/// Reason why an endpoint could not be opened or a peer could not be reached.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MeshError {
    /// Another process uses the port.
    #[error(
        "UDP address {addr} is in use by another process; stop it (`ss -ulpn` names it) or choose another port"
    )]
    AddressInUse {
        /// Requested address.
        addr: SocketAddr,
    },
    /// The socket could not be opened.
    #[error("cannot listen on UDP {addr}")]
    Bind {
        /// Requested address.
        addr: SocketAddr,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// TLS could not be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// Error text of rustls.
        reason: String,
    },
    /// The new certificate has another identity; a rotation keeps the identity of the process.
    #[error("the new certificate is of {new}; this process is {current}")]
    IdentityChanged {
        /// Identity of this process.
        current: Identity,
        /// Identity in the new certificate.
        new: Identity,
    },
    /// The new credentials contain a trust bundle that cannot follow the one in force.
    #[error(transparent)]
    Bundle(#[from] BundleRefused),
    /// The endpoint serves already; `serve` may be called once.
    #[error("this mesh endpoint serves already")]
    AlreadyServing,
    /// The endpoint is shut down.
    #[error("this mesh endpoint is shut down")]
    Closed,
    /// The peer does not answer in time, or cannot be reached.
    #[error("{addr} cannot be reached: {reason}")]
    Unreachable {
        /// Dialled address.
        addr: SocketAddr,
        /// Cause in words.
        reason: String,
    },
    /// One side rejects the other's certificate.
    #[error("{addr} and this process do not trust each other: {reason}")]
    NotTrusted {
        /// Dialled address.
        addr: SocketAddr,
        /// Reason from the side that rejected the certificate.
        reason: String,
    },
    /// Another identity than the expected one answers at the address.
    #[error("{addr} is {found}, not the {expected} that was expected")]
    UnexpectedPeer {
        /// Dialled address.
        addr: SocketAddr,
        /// Expected identity.
        expected: Expect,
        /// Identity of the peer that answers.
        found: Identity,
    },
    /// The last dial failed recently; the next dial waits.
    #[error("{addr} was tried a moment ago ({last}); next try in {} ms", .retry_in.as_millis())]
    BackingOff {
        /// Address of the peer.
        addr: SocketAddr,
        /// Wait until the next try.
        retry_in: Duration,
        /// Error of the last dial.
        last: Arc<MeshError>,
    },
}

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

/// Reason why a message was not queued. Messages are hints: the sender continues without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageDropped {
    /// The message is longer than [`crate::MAX_MESSAGE_BYTES`].
    #[error("the message is longer than {} bytes", crate::MAX_MESSAGE_BYTES)]
    TooLarge,
    /// The peer accepts messages more slowly than they arrive, or is unreachable.
    #[error("the peer's queue is full")]
    QueueFull,
    /// The endpoint is shut down.
    #[error("this mesh endpoint is shut down")]
    Closed,
}
