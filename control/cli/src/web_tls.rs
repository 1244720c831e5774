//! Certificate for the web page and the API, with its own CA. The private key of the CA is discarded, so that clients
//! trust nothing but this certificate.

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use secrecy::SecretString;
use std::time::{Duration, SystemTime};

/// Certificate and key of a TLS server, and the CA for its clients.
pub struct WebTls {
    /// CA certificate, PEM.
    pub ca_pem: String,
    /// Server certificate, PEM.
    pub certificate_pem: String,
    /// Private key of the server, PEM.
    pub key_pem: SecretString,
}

/// Creates a CA and a certificate for `hosts` (names and addresses). Both are valid from an hour before `now`, since
/// the clock of a client may be a little behind.
pub fn create(hosts: Vec<String>, now: SystemTime, lifetime: Duration) -> anyhow::Result<WebTls> {
    let params = |name, hosts| params(name, hosts, now, lifetime);
    let ca_key = KeyPair::generate().context("cannot generate a key pair")?;
    let mut ca = params("Lattice", Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca
        .self_signed(&ca_key)
        .context("cannot sign the CA certificate")?;
    let issuer = Issuer::from_ca_cert_der(ca_certificate.der(), &ca_key)
        .context("cannot use the CA certificate as issuer")?;
    let key = KeyPair::generate().context("cannot generate a key pair")?;
    let mut server = params("lattice-control", hosts)?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let certificate = server
        .signed_by(&key, &issuer)
        .context("cannot sign the server certificate")?;
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
