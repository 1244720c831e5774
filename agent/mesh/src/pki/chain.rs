//! Verification of certificate chains.

use lattice_quorum_types::UnixMillis;
use rustls::{
    CertificateError, Error, RootCertStore, client::verify_server_cert_signed_by_trust_anchor,
    crypto::CryptoProvider, server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::time::Duration;

/// Checks that a chain failed because it leads to none of the trusted authorities.
pub(crate) fn is_unknown_authority(error: &Error) -> bool {
    // `BadSignature` occurs when two authorities have the same name: then only the signature distinguishes them.
    matches!(
        error,
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)
    )
}

/// Verifies the chain from `leaf` to `roots` at `now`, with the rules for TLS servers.
pub(crate) fn chain_to(
    roots: &RootCertStore,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
    provider: &CryptoProvider,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(leaf)?;
    let algorithms = provider.signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)
}

/// Converts a moment for the verification of a chain.
pub(crate) fn unix_time(at: UnixMillis) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_millis(at.0))
}
