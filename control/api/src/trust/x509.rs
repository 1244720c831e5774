//! X.509 certificates: description for display. This module verifies nothing.

use crate::problem::FieldError;
use lattice_quorum_types::UnixMillis;
use std::net::IpAddr;
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    pem::Pem,
    prelude::{FromDer, X509Certificate},
};

/// Fields of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFields {
    /// blake3 of the certificate, lower-case hex; identifies a CA.
    pub pin: String,
    /// Common name of the subject or, without one, its complete distinguished name.
    pub subject: String,
    /// Common name of the issuer or, without one, its complete distinguished name.
    pub issuer: String,
    /// First URI among the alternative names: in the certificate of a member, its SPIFFE URI.
    pub uri: Option<String>,
    /// DNS names and IP addresses among the alternative names: in the certificate of a server, its names.
    pub hosts: Vec<String>,
    /// Public key, as in the certificate.
    pub public_key: Vec<u8>,
    /// Whether the certificate may sign others (CA).
    pub is_authority: bool,
    /// Start of validity.
    pub not_before: UnixMillis,
    /// End of validity.
    pub not_after: UnixMillis,
    /// Authority key identifier: identifies the key that signed the certificate.
    authority_key: Option<Vec<u8>>,
    /// Subject key identifier.
    key: Option<Vec<u8>>,
}

impl CertificateFields {
    /// Whether this certificate names `authority` as its issuer: by key identifiers or, if one of the two certificates
    /// has none, by names. The signature is not verified.
    pub fn names_as_issuer(&self, authority: &Self) -> bool {
        match (&self.authority_key, &authority.key) {
            (Some(named), Some(key)) => named == key,
            _ => self.issuer == authority.subject,
        }
    }
}

fn moment(seconds: i64) -> UnixMillis {
    UnixMillis(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000))
}

/// Reads one certificate (DER).
///
/// # Errors
/// Bytes that are not exactly one certificate; the text describes the fault.
pub fn parse_certificate(der: &[u8]) -> Result<CertificateFields, String> {
    let (rest, x509) =
        X509Certificate::from_der(der).map_err(|e| format!("it is not a certificate: {e}"))?;
    if !rest.is_empty() {
        return Err("bytes follow the certificate".to_owned());
    }
    let names = x509.subject_alternative_name().ok().flatten();
    let names = || names.iter().flat_map(|names| &names.value.general_names);
    let uri = names().find_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let hosts = names().filter_map(host).collect();
    let extensions = || {
        let parsed = x509.extensions().iter();
        parsed.map(|extension| extension.parsed_extension())
    };
    let authority_key = extensions().find_map(|extension| match extension {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
        _ => None,
    });
    let key = extensions().find_map(|extension| match extension {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id),
        _ => None,
    });
    Ok(CertificateFields {
        pin: blake3::hash(der).to_hex().to_string(),
        subject: common_name(x509.subject()),
        issuer: common_name(x509.issuer()),
        uri,
        hosts,
        public_key: x509.public_key().subject_public_key.data.to_vec(),
        is_authority: x509.is_ca(),
        not_before: moment(x509.validity().not_before.timestamp()),
        // The certificate is valid to the end of its last second.
        not_after: moment(x509.validity().not_after.timestamp()).after(999),
        authority_key: authority_key.map(|id| id.0.to_vec()),
        key: key.map(|id| id.0.to_vec()),
    })
}

/// Returns the name if it is one of a server: a DNS name or an IP address.
fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|addr| addr.to_string())
        }
        _ => None,
    }
}

/// Returns the common name or, without one, the complete distinguished name.
fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let common = name.iter_common_name().next();
    let text = common.and_then(|cn| cn.as_str().ok());
    text.map_or_else(|| name.to_string(), str::to_owned)
}

/// Returns every certificate in a PEM text, as DER.
///
/// # Errors
/// A text that is not PEM, has no certificate, or contains a private key; the error text describes the fault.
pub fn read_pem(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut found = Vec::new();
    for part in Pem::iter_from_buffer(text.as_bytes()) {
        let part = part.map_err(|e| format!("it is not PEM: {e}"))?;
        if part.label == "CERTIFICATE" {
            found.push(part.contents);
        } else if part.label.contains("PRIVATE KEY") {
            return Err("it holds a private key, which must not leave its machine".to_owned());
        }
    }
    if found.is_empty() {
        return Err("it holds no certificate (-----BEGIN CERTIFICATE-----)".to_owned());
    }
    Ok(found)
}

/// Reads a PEM text with exactly one CA certificate.
///
/// # Errors
/// The field `certificate`, with a description of the fault.
pub fn read_authority(text: &str) -> Result<(Vec<u8>, CertificateFields), FieldError> {
    let fail = |reason: String| FieldError {
        field: "certificate".to_owned(),
        reason,
    };
    let mut all = read_pem(text).map_err(fail)?;
    let (Some(der), true) = (all.pop(), all.is_empty()) else {
        let reason = "it contains several certificates; give only the CA certificate";
        return Err(fail(reason.to_owned()));
    };
    let described = parse_certificate(&der).map_err(fail)?;
    if !described.is_authority {
        let reason = format!(
            "{} is not a CA certificate: it may not sign others; give ca.pem of the new authority",
            described.uri.as_ref().unwrap_or(&described.subject)
        );
        return Err(fail(reason));
    }
    Ok((der, described))
}

/// Formats one certificate as PEM.
pub fn to_pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut base64 = String::new();
    for three in der.chunks(3) {
        let at = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for n in 0..4 {
            let six = (bits >> (18 - 6 * n)) & 63;
            base64.push(if n <= three.len() {
                char::from(ALPHABET[six as usize])
            } else {
                '='
            });
        }
    }
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (n, c) in base64.chars().enumerate() {
        if n > 0 && n % 64 == 0 {
            text.push('\n');
        }
        text.push(c);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn bytes_survive_pem() {
        for length in [1, 2, 3, 47, 48, 49, 700] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 7 % 256) as u8).collect();
            let text = to_pem(&bytes);
            assert!(text.lines().all(|line| line.len() <= 64));
            assert_eq!(read_pem(&text).unwrap(), [bytes]);
        }
    }

    #[test]
    fn what_is_no_authority_is_refused_by_its_field() {
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (text, wanted) in [
            ("", "no certificate"),
            ("hello", "no certificate"),
            (key, "private key"),
            (&to_pem(&[1, 2, 3]), "not a certificate"),
            (&(to_pem(&[1]) + &to_pem(&[2])), "several"),
        ] {
            let error = read_authority(text).unwrap_err();
            assert_eq!(error.field, "certificate");
            assert!(error.reason.contains(wanted), "{text}: {error}");
        }
    }
}
