//! Mesh transport: one UDP socket per process, QUIC with mutual TLS 1.3 and identities in certificates. The mesh
//! carries calls, streams and messages between Lattice processes, and enrols new processes.
//!
//! The crate covers transport and identity only. It has no notion of allocations, nodes or Raft: the meaning of a call
//! lives in the crate that registers its handler in a [`Router`]. The crate must not depend on any daemon.
//!
//! Start with [`Mesh::bind`] and [`Mesh::peer`]; `examples/echo.rs` runs both ends. `README.md` describes the framing
//! on the wire.
#![forbid(unsafe_code)]

mod admission;
mod apply;
mod bundle;
pub mod ca;
mod ca_proof;
mod call;
mod clock;
mod config;
mod connection_drain;
mod credentials;
mod endpoint;
mod enrol;
mod error;
mod identity;
mod in_use;
mod limiter;
mod mesh;
mod message;
mod outdated;
mod peer;
mod renewal;
mod reset;
mod router;
mod serve;
mod signature;
mod simulated;
mod statement;
mod store;
mod tls;
mod token;
mod token_bucket;
mod trust;
mod trust_rpc;
mod verify;
mod wire;

pub use apply::{Applied, TrustState};
pub use bundle::{
    BundleRefused, BundleSignature, MAX_AUTHORITIES, MAX_BUNDLE_BYTES, MAX_REVOKED, Revoked,
    SignBundleError, SignedBundle, TrustBundle, TrustedAuthority,
};
pub use ca::{Authority, BACKDATING, CaError, Validity};
pub use ca_proof::{OfficeProof, OfficeSession};
pub use call::Items;
pub use clock::{Clock, SystemClock};
pub use config::MeshConfig;
pub use credentials::{Credentials, CredentialsError, KeyAndCsr, PrivateKey};
pub use endpoint::{Traffic, backoff};
pub use enrol::{
    EnrolError, EnrolRefused, EnrolRequest, Enrolled, Enroller, Issued, enrol, enrol_at_any,
    enrol_key, enrol_with,
};
pub use error::{CallError, MeshError, MessageDropped};
pub use identity::{Expect, Identity, InvalidIdentity};
pub use in_use::retry_while_in_use;
pub use lattice_quorum_types::rpc::{Role, Rpc, StreamRpc};
pub use mesh::{Mesh, WeakMesh};
pub use message::MAX_MESSAGE_BYTES;
pub use peer::Peer;
pub use renewal::{
    AskMembers, RenewError, RenewRefused, Renewal, RenewalSettings, RenewalSource, RenewalState,
    keep_renewed,
};
pub use router::{Caller, Failed, ItemSender, Router, Served};
pub use simulated::{Answers, Item, Opened, Wire};
pub use statement::{Signed, Signer, StatementRefused};
pub use token::{InvalidToken, JoinToken, Pin};
pub use token_bucket::{Crowd, RateLimit, RateLimiter};
pub use trust::Standing;
pub use trust_rpc::{GetTrust, PushTrust, Renew};
