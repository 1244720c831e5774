//! The certificate of the demo's page and API: signed by an authority that lives as long as the
//! process and whose certificate is in the context file.

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::{net::IpAddr, time::Duration};

/// Certificates of the mesh live as long as the folder; this one only while the demo runs.
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);

/// What a TLS server shows, and what its clients trust.
pub struct WebTls {
    /// The authority's certificate, PEM.
    pub ca_pem: String,
    /// The server's certificate.
    pub certificate: CertificateDer<'static>,
    /// The server's private key.
    pub key: PrivateKeyDer<'static>,
}

/// A new authority and a certificate for `address`, `localhost` and the loopback addresses.
pub fn create(address: IpAddr, now: std::time::SystemTime) -> anyhow::Result<WebTls> {
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    names.sort();
    names.dedup();
    let ca_key = KeyPair::generate().context("cannot make a key")?;
    let mut ca = params("Lattice demo", Vec::new(), now)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca
        .self_signed(&ca_key)
        .context("cannot sign the authority")?;
    let issuer = Issuer::from_ca_cert_der(ca_certificate.der(), &ca_key)
        .context("cannot sign with the authority")?;
    let key = KeyPair::generate().context("cannot make a key")?;
    let mut server = params("lattice-control", names, now)?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let certificate = server.signed_by(&key, &issuer).context("cannot sign")?;
    Ok(WebTls {
        ca_pem: ca_certificate.pem(),
        certificate: certificate.der().clone(),
        key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
    })
}

fn params(
    name: &str,
    names: Vec<String>,
    now: std::time::SystemTime,
) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).context("cannot name the server")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // An hour back: the clock of whoever looks at it may be a little behind.
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + LIFETIME).into();
    Ok(params)
}
