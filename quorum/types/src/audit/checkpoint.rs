//! Signed checkpoints: that the chain had come to this entry, by a member's key.

use super::Hex;
use crate::UnixMillis;
use serde::{Deserialize, Serialize};

/// A checkpoint's time and that of the command which brings it are at most so far apart,
/// milliseconds: the leader sets both, and state time may be 30 s ahead of its clock.
pub const MAX_CHECKPOINT_OFF_MS: u64 = 120_000;
/// Longest name of a cluster or a member, bytes.
const MAX_NAME_BYTES: usize = 253;
/// Longest signature, bytes: ECDSA P-256 in ASN.1 has 72.
const MAX_SIGNATURE_BYTES: usize = 80;
/// Most certificates in a chain.
const MAX_CERTIFICATES: usize = 4;
/// Longest certificate, bytes; ours have about 500.
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;

/// How far the chain had come when it was signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointOf {
    /// Whose audit it is.
    pub cluster: String,
    /// The last entry.
    pub number: u64,
    /// Its hash.
    pub hash: Hex,
    /// When it was signed: what the signer's certificate is judged at.
    pub at: UnixMillis,
}

impl CheckpointOf {
    /// What a checkpoint is signed for.
    pub const CONTEXT: &'static str = "lattice audit checkpoint 1";

    /// What is signed: its postcard.
    pub fn signed_bytes(&self) -> Vec<u8> {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        postcard::to_stdvec(self).expect("a checkpoint serialises")
    }
}

/// A checkpoint as the leader brings it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// What is signed.
    pub of: CheckpointOf,
    /// By whom: `quorum/2`.
    pub signer: String,
    /// When the signer's certificate was issued: a revoked one signs nothing.
    pub issued_at: UnixMillis,
    /// By the first certificate's key.
    pub signature: Hex,
    /// Certificates (DER): the signer's own first, that of the authority last.
    pub certificates: Vec<Hex>,
}

/// What no checkpoint can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidCheckpoint {
    /// Which field.
    pub field: &'static str,
    /// What is wrong, with the bound.
    pub reason: String,
}

impl Checkpoint {
    /// Whether it can be one: it is kept for ever.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<(), InvalidCheckpoint> {
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
            Some((field, found, most)) => Err(InvalidCheckpoint {
                field,
                reason: format!("its length is {found}, which is not between 1 and {most}"),
            }),
        }
    }
}

/// Where an audit ends, and how far it is signed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// The last entry; 0: there is none.
    pub number: u64,
    /// Its hash.
    pub hash: [u8; 32],
    /// When it was written.
    pub at: UnixMillis,
    /// The newest checkpoint's own entry; 0: there is none, or it is further back than what every
    /// member has at hand.
    pub checkpoint: u64,
    /// When the first entry was written that no checkpoint covers and that is none itself; `None`:
    /// everything is covered.
    pub unsigned_since: Option<UnixMillis>,
}
