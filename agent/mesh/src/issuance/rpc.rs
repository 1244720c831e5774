//! Trust and renewal RPCs between members.

use super::enroller::Issued;
use crate::{BundleRefused, Role, Rpc, SignedBundle};
use serde::{Deserialize, Serialize};

/// Requests the trust bundle in force at the callee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetTrust {
    /// Number of the bundle in force at the caller; 0 without a bundle.
    pub have: u64,
}

impl Rpc for GetTrust {
    const METHOD: &'static str = "mesh.trust";
    const CALLERS: &'static [Role] = &Role::ALL;
    /// `None` when the callee has no bundle with a higher number.
    type Reply = Option<SignedBundle>;
}

/// Forwards a trust bundle. The callee accepts it for its signature alone. Only quorum and control may push, so that an
/// agent cannot load its peers with signature verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushTrust {
    /// Bundle to put in force.
    pub bundle: SignedBundle,
}

impl Rpc for PushTrust {
    const METHOD: &'static str = "mesh.push_trust";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    /// Number of the bundle now in force.
    type Reply = Result<u64, BundleRefused>;
}

/// Reason why a quorum member issued no new certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RenewRefused {
    /// The identity is no longer a member, or the certificate that authenticated the request is revoked.
    #[error("{reason}")]
    NotMember {
        /// Reason in words.
        reason: String,
    },
    /// The request is malformed.
    #[error("the renewal request is not valid: {reason}")]
    Invalid {
        /// Reason in words.
        reason: String,
    },
    /// The quorum member cannot decide at present; another member may.
    #[error("renewal is not possible at present: {reason}")]
    Unavailable {
        /// Reason in words.
        reason: String,
    },
}

/// Requests a new certificate of the caller's own identity from a quorum member. The caller's present certificate
/// proves the identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// CSR with the new public key (PKCS #10, DER). Issuers must take only the key from it.
    pub csr: Vec<u8>,
}

impl Rpc for Renew {
    const METHOD: &'static str = "mesh.renew";
    const CALLERS: &'static [Role] = &Role::ALL;
    type Reply = Result<Issued, RenewRefused>;
}
