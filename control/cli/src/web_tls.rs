//! A certificate for the page and the API, with an authority of its own whose key is thrown away:
//! clients trust that authority and nothing else it could ever sign.

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use secrecy::SecretString;
use std::time::{Duration, SystemTime};

/// What a TLS server shows, and what its clients trust.
pub struct WebTls {
    /// The authority's certificate, PEM.
    pub ca_pem: String,
    /// The server's certificate, PEM.
    pub certificate_pem: String,
    /// The server's private key, PEM.
    pub key_pem: SecretString,
}

/// A new authority and a certificate for `hosts` (names and addresses), both from an hour before
/// `now`: the clock of whoever looks at it may be a little behind.
pub fn create(hosts: Vec<String>, now: SystemTime, lifetime: Duration) -> anyhow::Result<WebTls> {
    let params = |name, hosts| params(name, hosts, now, lifetime);
    let ca_key = KeyPair::generate().context("cannot make a key")?;
    let mut ca = params("Lattice", Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca
        .self_signed(&ca_key)
        .context("cannot sign the authority")?;
    let issuer = Issuer::from_ca_cert_der(ca_certificate.der(), &ca_key)
        .context("cannot sign with the authority")?;
    let key = KeyPair::generate().context("cannot make a key")?;
    let mut server = params("lattice-control", hosts)?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let certificate = server.signed_by(&key, &issuer).context("cannot sign")?;
    Ok(WebTls {
        ca_pem: ca_certificate.pem(),
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem().into(),
    })
}

fn params(
    name: &str,
    hosts: Vec<String>,
    now: SystemTime,
    lifetime: Duration,
) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts).context("cannot name the server")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + lifetime).into();
    Ok(params)
}
