//! Mesh transport: one UDP socket per process, QUIC with mutual TLS 1.3 and identities in certificates. The mesh
//! carries calls, streams and messages between Lattice processes, and enrols new processes.
//!
//! The crate covers transport and identity only. It has no notion of allocations, nodes or Raft: the meaning of a call
//! lives in the crate that registers its handler in a [`Router`]. The crate must not depend on any daemon.
//!
//! Start with [`Mesh::bind`] and [`Mesh::peer`]; `examples/echo.rs` runs both ends. `README.md` describes the framing
//! on the wire.
//!
//! The modules form layers; each imports only those above it in this list:
//!
//! 1. `clock`, `encoding`, `limits`, `retry`, and `pki`: identities, certificates, signatures.
//! 2. `trust`: credentials, trust bundles and the trust in force.
//! 3. `issuance`: the contract of the members that issue certificates and bundles.
//! 4. `rpc`: frames, errors, the router; `config` and `error`: settings and errors of an endpoint.
//! 5. `transport`: QUIC and TLS configurations, verification in handshakes.
//! 6. `endpoint`: shared state, and the life of a connection; `peer`: the calling side.
//! 7. `enrolment` and `outdated`: the two protocols of processes that the mesh protocol cannot serve.
//! 8. `mesh`: the public handle, and its acceptor.
//! 9. `renewal`: certificates and trust bundles that stay up to date; `reach`: trial connections.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod encoding;
mod endpoint;
mod enrolment;
mod error;
mod issuance;
mod limits;
mod mesh;
mod outdated;
mod peer;
mod pki;
mod reach;
mod renewal;
mod retry;
mod rpc;
mod transport;
mod trust;

pub use clock::{Clock, SystemClock};
pub use config::MeshConfig;
pub use endpoint::{state::Traffic, trust_change::AppliedBundle};
pub use enrolment::client::{
    EnrolError, Enrolment, enrol, enrol_at_any, enrol_key, enrol_with, verify_member,
};
pub use error::MeshError;
pub use issuance::{
    enroller::{EnrolRefused, EnrolRequest, Enroller, Issued},
    rpc::{GetTrust, PushTrust, Renew, RenewRefused},
};
pub use lattice_quorum_types::rpc::{Role, Rpc, StreamRpc};
pub use limits::token_bucket::{FullMapPolicy, RateLimit, RateLimiter};
pub use mesh::{Mesh, PresentedCertificate, WeakMesh};
pub use peer::{call::ItemStream, handle::Peer};
pub use pki::{
    authority::{Authority, CaError},
    ca_key_proof::{CaKeyProof, EnrolmentSession},
    identity::{ExpectedIdentity, Identity, InvalidIdentity},
    pin::Pin,
    validity::{BACKDATING, Validity},
};
pub use reach::{next_step, reach};
pub use renewal::{
    QuorumRenewalSource, RenewError, Renewal, RenewalSettings, RenewalSource, RenewalState,
    keep_renewed,
};
pub use retry::{backoff::backoff, in_use::retry_while_in_use};
pub use rpc::{
    error::CallError,
    message::{MAX_MESSAGE_BYTES, MessageDropped},
    router::{Caller, HandlerFailed, ItemSender, Router, ServedMethod},
    simulated::{EncodedItem, EndpointHandlers, OpenedStream, Wire},
};
pub use trust::{
    bundle::{
        BundleRefused, BundleSignature, MAX_AUTHORITIES, MAX_BUNDLE_BYTES, MAX_REVOKED, Revocation,
        SignBundleError, SignedBundle, TrustBundle, TrustedAuthority,
    },
    credentials::{Credentials, CredentialsError, KeyAndCsr, PrivateKey},
    in_force::{CertificateStanding, TrustState},
    statement::{Signer, StatementRefused, StatementSignature},
    token::{InvalidToken, JoinToken},
};
