//! Certificate for the web page and the API, with a CA of its own. Clients trust only that CA, so a renewed certificate
//! of the same CA needs no change at the clients.

use anyhow::{Context as _, ensure};
use lattice_api::x509;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use secrecy::{ExposeSecret as _, SecretString};
use std::time::{Duration, SystemTime};

/// Lifetime of the CA: ten years.
const CA_LIFETIME: Duration = Duration::from_secs(3650 * 86_400);

/// Certificate and key of a TLS server, and the CA for its clients.
pub struct WebTls {
    /// CA certificate, PEM.
    pub ca_pem: String,
    /// Private key of the CA, PEM; needed for renewals only.
    pub ca_key_pem: SecretString,
    /// Server certificate, PEM.
    pub certificate_pem: String,
    /// Private key of the server, PEM.
    pub key_pem: SecretString,
}

/// Certificate and key of a TLS server.
pub struct ServerPair {
    /// Server certificate, PEM.
    pub certificate_pem: String,
    /// Private key of the server, PEM.
    pub key_pem: SecretString,
}

/// Creates a CA and a certificate for `hosts` (names and addresses). Both are valid from an hour before `now`, since
/// the clock of a client may be a little behind.
pub fn create(hosts: Vec<String>, now: SystemTime, lifetime: Duration) -> anyhow::Result<WebTls> {
    let ca_key = KeyPair::generate().context("cannot generate a key pair")?;
    let mut ca = params("Lattice", Vec::new(), now, CA_LIFETIME)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca
        .self_signed(&ca_key)
        .context("cannot sign the CA certificate")?;
    let issuer = Issuer::from_ca_cert_der(ca_certificate.der(), &ca_key)
        .context("cannot use the CA certificate as issuer")?;
    let server = issue(&issuer, hosts, now, lifetime)?;
    Ok(WebTls {
        ca_pem: ca_certificate.pem(),
        ca_key_pem: ca_key.serialize_pem().into(),
        certificate_pem: server.certificate_pem,
        key_pem: server.key_pem,
    })
}

/// Issues the next certificate for `hosts` under an existing CA, with a new key.
pub fn renew(
    ca_pem: &str,
    ca_key_pem: &SecretString,
    hosts: Vec<String>,
    now: SystemTime,
    lifetime: Duration,
) -> anyhow::Result<ServerPair> {
    let ca_key = KeyPair::from_pem(ca_key_pem.expose_secret())
        .context("the private key of the CA cannot be read")?;
    let der = x509::read_pem(ca_pem).map_err(anyhow::Error::msg)?;
    let der = der.first().context("the CA file holds no certificate")?;
    let ca = x509::parse_certificate(der).map_err(anyhow::Error::msg)?;
    ensure!(
        ca.public_key == ca_key.der_bytes(),
        "the private key does not belong to the CA certificate"
    );
    let end = SystemTime::UNIX_EPOCH + Duration::from_millis(ca.not_after.0);
    ensure!(
        now + lifetime <= end,
        "the CA expires before the new certificate would; give fewer --days, or create a new CA with \
         `lattice admin https` in another folder and distribute its https-ca.pem"
    );
    let issuer =
        Issuer::from_ca_cert_pem(ca_pem, &ca_key).context("cannot use the CA certificate")?;
    issue(&issuer, hosts, now, lifetime)
}

fn issue(
    issuer: &Issuer<'_, &KeyPair>,
    hosts: Vec<String>,
    now: SystemTime,
    lifetime: Duration,
) -> anyhow::Result<ServerPair> {
    let key = KeyPair::generate().context("cannot generate a key pair")?;
    let mut server = params("lattice-control", hosts, now, lifetime)?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let certificate = server
        .signed_by(&key, issuer)
        .context("cannot sign the server certificate")?;
    Ok(ServerPair {
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
