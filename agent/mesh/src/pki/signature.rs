//! Signatures outside TLS: message format and verification.
//!
//! A signed message is `"lattice mesh 1 <kind>" 0x00 H`. `H` is a blake3 digest in key derivation mode, with
//! `"lattice mesh 1 <kind>"` as its context. The digest covers the parts, each with its length (u64, little endian) in
//! front. The message is signed with ECDSA P-256 and SHA-256, ASN.1 form. The prefix separates the kinds from each
//! other, and from all other messages that the same keys sign: certificates, which begin with 0x30, and TLS handshakes,
//! which begin with 64 spaces.

use rustls::crypto::CryptoProvider;
use rustls_pki_types::alg_id;

/// Longest accepted signature, bytes. A P-256 signature has at most 72.
pub(crate) const MAX_SIGNATURE_BYTES: usize = 80;

/// Purpose of a signature.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Trust bundle, signed by an authority.
    TrustBundle,
    /// Statement of a member, signed with its own key.
    Statement,
    /// Proof that the server of an enrolment session holds an authority's key, signed with that key.
    Office,
}

impl Kind {
    fn context(self) -> &'static str {
        match self {
            Self::TrustBundle => "lattice mesh 1 trust bundle",
            Self::Statement => "lattice mesh 1 statement",
            Self::Office => "lattice mesh 1 enrolment office",
        }
    }
}

/// Returns the bytes to sign.
pub(crate) fn message(kind: Kind, parts: &[&[u8]]) -> Vec<u8> {
    let mut digest = blake3::Hasher::new_derive_key(kind.context());
    for part in parts {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let mut message = kind.context().as_bytes().to_vec();
    message.push(0);
    message.extend_from_slice(digest.finalize().as_bytes());
    message
}

/// Checks that the owner of `public_key` (an uncompressed P-256 point) signed `message`.
pub(crate) fn is_signed(
    provider: &CryptoProvider,
    public_key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    signature.len() <= MAX_SIGNATURE_BYTES
        && provider
            .signature_verification_algorithms
            .all
            .iter()
            .filter(|algorithm| {
                algorithm.public_key_alg_id() == alg_id::ECDSA_P256
                    && algorithm.signature_alg_id() == alg_id::ECDSA_SHA256
            })
            .any(|algorithm| {
                algorithm
                    .verify_signature(public_key, message, signature)
                    .is_ok()
            })
}
