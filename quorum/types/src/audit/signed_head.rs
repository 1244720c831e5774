//! Signed audit heads: a member's signature that the audit chain had reached a certain entry.

use super::Hex;
use crate::UnixMillis;
use serde::{Deserialize, Serialize};

/// Largest difference between the time of a signed audit head and that of its command, milliseconds. The leader sets
/// both times, and state time may be 30 s ahead of the leader's clock.
pub const MAX_SIGNED_HEAD_SKEW_MS: u64 = 120_000;
/// Longest name of a cluster or a member, bytes.
const MAX_NAME_BYTES: usize = 253;
/// Longest signature, bytes. An ECDSA P-256 signature in ASN.1 has at most 72.
const MAX_SIGNATURE_BYTES: usize = 80;
/// Largest number of certificates in a chain.
const MAX_CERTIFICATES: usize = 4;
/// Longest certificate, bytes. Certificates of Lattice members have about 500.
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;

/// Signed content of an audit head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHeadContent {
    /// Name of the cluster.
    pub cluster: String,
    /// Number of the last entry.
    pub number: u64,
    /// Hash of the last entry.
    pub hash: Hex,
    /// Time of the signature, at which the signer's certificate must be valid.
    pub at: UnixMillis,
}

impl SignedHeadContent {
    /// Context of the signature.
    pub const CONTEXT: &'static str = "lattice audit checkpoint 1";

    /// Bytes to sign: the postcard encoding.
    pub fn signed_bytes(&self) -> Vec<u8> {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        postcard::to_stdvec(self).expect("a checkpoint serialises")
    }
}

/// A signed audit head, as the leader proposes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    /// Signed content.
    pub of: SignedHeadContent,
    /// Signing member: `quorum/2`.
    pub signer: String,
    /// Issue time of the signer's certificate. The state machine rejects a revoked certificate by this time.
    pub issued_at: UnixMillis,
    /// Signature by the key of the first certificate.
    pub signature: Hex,
    /// Certificates (DER): the signer's own first, that of the authority last.
    pub certificates: Vec<Hex>,
}

/// A signed audit head that is not well formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidSignedHead {
    /// Name of the field.
    pub field: &'static str,
    /// Description of the error, with the bound.
    pub reason: String,
}

impl SignedHead {
    /// Checks the bounds of all fields, because the audit stores the signed head permanently.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), InvalidSignedHead> {
        let longest = self.certificates.iter().map(|c| c.0.len()).max();
        let bounds = [
            ("of.cluster", self.of.cluster.len(), MAX_NAME_BYTES),
            ("signer", self.signer.len(), MAX_NAME_BYTES),
            ("of.hash", self.of.hash.0.len(), 32),
            ("signature", self.signature.0.len(), MAX_SIGNATURE_BYTES),
            ("certificates", self.certificates.len(), MAX_CERTIFICATES),
            ("certificates", longest.unwrap_or(0), MAX_CERTIFICATE_BYTES),
        ];
        let bad = bounds
            .into_iter()
            .find(|(_, found, most)| *found == 0 || found > most);
        match bad {
            None => Ok(()),
            Some((field, found, most)) => Err(InvalidSignedHead {
                field,
                reason: format!("its length is {found}, which is not between 1 and {most}"),
            }),
        }
    }
}

/// Audit head: the end of the audit, and its signed part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// Number of the last entry; 0: there is none.
    pub number: u64,
    /// Hash of the last entry.
    pub hash: [u8; 32],
    /// Time of the last entry.
    pub at: UnixMillis,
    /// Number of the newest signed audit head's own entry. 0: there is none, or it is older than the entries that every
    /// member holds in memory.
    pub signed_head: u64,
    /// Time of the first entry that no signed head covers and that is not itself a signed head; `None`: all entries are
    /// covered.
    pub unsigned_since: Option<UnixMillis>,
}
