//! What can go wrong between two processes.

use crate::{BundleRefused, CredentialsError, Expect, Identity, Role};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

/// Why an endpoint could not be opened or a peer not be reached.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MeshError {
    /// Another process has the port.
    #[error(
        "UDP address {addr} is in use by another process; stop it (`ss -ulpn` names it) or choose another port"
    )]
    AddressInUse {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// The socket could not be opened.
    #[error("cannot listen on UDP {addr}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// TLS could not be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// What rustls said.
        reason: String,
    },
    /// Rotation is for new certificates of the same process.
    #[error("the new certificate is of {new}; this process is {current}")]
    IdentityChanged {
        /// Who this process is.
        current: Identity,
        /// Whom the new certificate names.
        new: Identity,
    },
    /// The new credentials come with a trust bundle that cannot follow the one in force.
    #[error(transparent)]
    Bundle(#[from] BundleRefused),
    /// `serve` was called before.
    #[error("this mesh endpoint serves already")]
    AlreadyServing,
    /// The endpoint is shut down.
    #[error("this mesh endpoint is shut down")]
    Closed,
    /// Nobody answers, or not in time.
    #[error("{addr} cannot be reached: {reason}")]
    Unreachable {
        /// Whom we dialled.
        addr: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// One side does not accept the other's certificate.
    #[error("{addr} and this process do not trust each other: {reason}")]
    NotTrusted {
        /// Whom we dialled.
        addr: SocketAddr,
        /// What the side that refused said.
        reason: String,
    },
    /// Somebody else answers there.
    #[error("{addr} is {found}, not the {expected} that was expected")]
    UnexpectedPeer {
        /// Whom we dialled.
        addr: SocketAddr,
        /// Whom we wanted.
        expected: Expect,
        /// Who answers.
        found: Identity,
    },
    /// The last dial failed a moment ago; the next one waits.
    #[error("{addr} was tried a moment ago ({last}); next try in {} ms", .retry_in.as_millis())]
    BackingOff {
        /// Whom we dial.
        addr: SocketAddr,
        /// Until the next try.
        retry_in: Duration,
        /// Why the last one failed.
        last: Arc<MeshError>,
    },
}

/// Why a call has no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The caller's role may not call this.
    #[error("role {role} may not call {method}")]
    Denied {
        /// The method.
        method: String,
        /// The role of the caller.
        role: Role,
    },
    /// The peer does not serve this: another role, or another version.
    #[error("the peer does not serve {method}")]
    UnknownMethod {
        /// The method.
        method: String,
    },
    /// The request, or its reply, is too large.
    #[error("a message of {bytes} bytes is above the limit of {limit_bytes} bytes")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit it met.
        limit_bytes: u64,
    },
    /// One side cannot read what the other wrote: most likely two versions.
    #[error("the message cannot be read: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// No reply in time. Whether the peer acted is not known.
    #[error("no reply within {} ms", .after.as_millis())]
    Deadline {
        /// How long was waited.
        after: Duration,
    },
    /// The peer cannot be reached, or was lost on the way.
    #[error("{reason}")]
    Transport {
        /// The peer.
        addr: SocketAddr,
        /// Whether the request had left, so that the peer may have acted on it.
        sent: bool,
        /// What happened.
        reason: String,
    },
    /// The peer's handler failed.
    #[error("the peer failed: {reason}")]
    HandlerFailed {
        /// What it said.
        reason: String,
    },
}

impl CallError {
    /// Whether the peer may have acted on the request. When false, repeating it is safe.
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

/// Why a message was not queued. Messages are hints: the sender goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageDropped {
    /// Longer than [`crate::MAX_MESSAGE_BYTES`].
    #[error("the message is longer than {} bytes", crate::MAX_MESSAGE_BYTES)]
    TooLarge,
    /// The peer takes them slower than they come, or is not reached.
    #[error("the peer's queue is full")]
    QueueFull,
    /// The endpoint is shut down.
    #[error("this mesh endpoint is shut down")]
    Closed,
}
