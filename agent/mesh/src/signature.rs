//! Signatures outside TLS: what is signed, and how it is judged.
//!
//! A signed message is `"lattice mesh 1 <kind>" 0x00 H`, where `H` is the blake3 digest, in key
//! derivation mode with `"lattice mesh 1 <kind>"` as its context, of the parts, each with its
//! length (u64, little endian) in front. It is signed with ECDSA P-256 and SHA-256, ASN.1 form.
//! The text in front keeps the kinds apart from each other, and from what the same keys sign
//! elsewhere: certificates (which begin with 0x30) and TLS handshakes (with 64 spaces).

use rustls::crypto::CryptoProvider;
use rustls_pki_types::alg_id;

/// Longest signature, bytes: a P-256 signature has at most 72.
pub(crate) const MAX_SIGNATURE_BYTES: usize = 80;

/// What a signature is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A trust bundle, by an authority.
    TrustBundle,
    /// A statement of a member, by its own key.
    Statement,
    /// That who serves a stranger's session holds an authority's key, by that key.
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

/// The bytes that are signed.
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

/// Whether `signature` is one of `message` by the owner of `public_key` (an uncompressed P-256
/// point).
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
