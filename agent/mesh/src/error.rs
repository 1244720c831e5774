//! Errors of an endpoint and its connections.

use crate::{BundleRefused, CredentialsError, ExpectedIdentity, Identity};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

/// Reason why an endpoint could not be opened or served, new credentials were refused, or a peer could not be reached.
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
        /// Error text of rustls or quinn.
        reason: String,
    },
    /// The new certificate has another identity; a rotation keeps the identity of the process.
    #[error("the new certificate has identity {new}, but this process has identity {current}")]
    IdentityChanged {
        /// Identity of this process.
        current: Identity,
        /// Identity in the new certificate.
        new: Identity,
    },
    /// A trust bundle, from a peer or in new credentials, cannot be put in force.
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
    #[error("mutual TLS authentication with {addr} failed: {reason}")]
    NotTrusted {
        /// Address of the peer.
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
        expected: ExpectedIdentity,
        /// Identity of the peer that answers.
        found: Identity,
    },
    /// The last dial failed recently; the next dial waits.
    #[error("the last dial to {addr} failed ({last}); next attempt in {} ms", .retry_in.as_millis())]
    BackingOff {
        /// Address of the peer.
        addr: SocketAddr,
        /// Wait until the next try.
        retry_in: Duration,
        /// Error of the last dial.
        last: Arc<MeshError>,
    },
}
