//! Certificate of a process or an authority: the fields that the mesh reads. An identity is exactly one SPIFFE URI; DNS
//! names are not used.

use super::{identity::Identity, validity::issued_at};
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateDer;
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

/// Fields that the mesh reads from a certificate.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFields {
    pub(crate) is_ca: bool,
    pub(crate) identity: Result<Identity, String>,
    pub(crate) public_key: Vec<u8>,
    /// Issue time, in whole seconds.
    pub(crate) issued_at: UnixMillis,
    pub(crate) not_after: UnixMillis,
}

impl CertificateFields {
    /// Parses a certificate. The error states the defect.
    pub(crate) fn read(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let (rest, x509) = X509Certificate::from_der(certificate)
            .map_err(|e| format!("not a certificate: {e}"))?;
        if !rest.is_empty() {
            return Err("bytes follow the certificate".to_owned());
        }
        let at =
            |seconds: i64| UnixMillis(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
        let not_before = at(x509.validity().not_before.timestamp());
        let not_after = at(x509.validity().not_after.timestamp());
        Ok(Self {
            issued_at: issued_at(not_before),
            is_ca: x509.is_ca(),
            identity: identity_of(&x509),
            public_key: x509.public_key().subject_public_key.data.to_vec(),
            // A certificate is valid to the end of its last second.
            not_after: not_after.after(999),
        })
    }

    /// Returns the identity of a leaf certificate that a process may present.
    pub(crate) fn identity(self) -> Result<Identity, String> {
        if self.is_ca {
            return Err("a CA certificate is not an identity".to_owned());
        }
        self.identity
    }
}

/// Returns the identity in a certificate for signatures. Requires exactly one URI and no other name: two readers could
/// interpret a certificate with several names differently.
fn identity_of(x509: &X509Certificate<'_>) -> Result<Identity, String> {
    let san = x509
        .subject_alternative_name()
        .map_err(|_| "the alternative names cannot be read".to_owned())?
        .ok_or_else(|| "no alternative name".to_owned())?;
    let [GeneralName::URI(uri)] = san.value.general_names.as_slice() else {
        return Err("there must be one alternative name, a SPIFFE URI".to_owned());
    };
    let usage = x509
        .key_usage()
        .map_err(|_| "the key usage cannot be read".to_owned())?;
    if !usage.is_some_and(|usage| usage.value.digital_signature()) {
        return Err("the key is not for signatures".to_owned());
    }
    uri.parse::<Identity>().map_err(|e| e.to_string())
}
