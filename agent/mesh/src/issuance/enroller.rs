//! Enroller: decides on enrolment requests of processes that hold a join token, and issues certificates to them.

use crate::{CaKeyProof, EnrolmentSession, Pin, Role};
use futures::future::BoxFuture;
use lattice_quorum_types::{
    UnixMillis,
    cidr::{self, Cidr},
};
use rustls_pki_types::CertificateSigningRequestDer;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Enrolment request, as the enroller receives it. The secret itself stays in the transport.
#[derive(Debug, Clone)]
pub struct EnrolRequest {
    /// blake3 digest of the token's secret, lower-case hex, as stored when the token was created.
    pub token_hash: String,
    /// Role in the token's text. The role of the stored token is authoritative.
    pub role: Role,
    /// Requested name.
    pub name: String,
    /// Whether the request may replace a member of that name.
    pub replace: bool,
    /// CSR with the new public key. Issuers must use only the key and ignore the other contents of the CSR.
    pub csr: CertificateSigningRequestDer<'static>,
    /// Time of the request, by the endpoint's clock, in whole seconds. A certificate with
    /// `Validity::from_now(issued_at, …)` counts as issued at exactly this moment, which is the time to record.
    pub issued_at: UnixMillis,
}

/// Certificate that an enroller issues, with the root certificates that its owner is to trust.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issued {
    /// Certificate chain (DER), leaf first.
    pub chain: Vec<Vec<u8>>,
    /// Certificates (DER) to trust from now on; a pinned one must be among them.
    pub roots: Vec<Vec<u8>>,
    /// Gossip cell, for agents.
    pub cell: Option<String>,
}

/// Reason why an enrolment was refused. Reveals nothing that is useful without a valid token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EnrolRefused {
    /// The token is wrong, used up, expired, or not for this role or name. The refusal does not reveal which.
    #[error(
        "the join token is not valid for this role and name (wrong, used, or expired); create a new one with `lattice admin token create`"
    )]
    TokenRefused,
    /// The name is taken.
    #[error("the name {name} is enrolled already; {needs}")]
    NameTaken {
        /// Requested name.
        name: String,
        /// Requirement for replacing the member of that name.
        needs: String,
    },
    /// The request is malformed.
    #[error("the enrolment request is not valid: {reason}")]
    Invalid {
        /// Reason in words.
        reason: String,
    },
    /// Too many tries from this address, or from all addresses together.
    #[error("too many enrolments at present; try again in {retry_in_ms} ms")]
    RateLimited {
        /// Wait until the next try, milliseconds.
        retry_in_ms: u64,
    },
    /// The server cannot decide at present.
    #[error("enrolment is not possible at present: {reason}")]
    Unavailable {
        /// Reason in words.
        reason: String,
    },
    /// The token is valid, but not at this address.
    #[error(
        "the join token is not for use from {from}, the address the quorum member sees; it is for {}; enrol from there, or create one for this network with `lattice admin token create --cidr`",
        cidr::list(.networks)
    )]
    WrongNetwork {
        /// Source address of the request.
        from: IpAddr,
        /// Networks in which the token is valid.
        networks: Vec<Cidr>,
    },
}

/// Decides on enrolments. The daemon that holds the issuing key implements this trait.
pub trait Enroller: Send + Sync + 'static {
    /// Authorises a request and issues a certificate. Implementations must consume the token durably before they return
    /// the certificate.
    fn enrol(
        &self,
        request: EnrolRequest,
        remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>>;

    /// Proves with [`crate::Authority::prove`] that this server holds the key of an authority that `pins` contains and
    /// that the cluster trusts at present. Returns `None` if the server holds no such key.
    fn prove(&self, _pins: &[Pin], _session: &EnrolmentSession) -> Option<CaKeyProof> {
        None
    }
}
