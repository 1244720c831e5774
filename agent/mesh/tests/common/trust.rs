//! Trust bundles and certificate times.

use lattice_mesh::{
    Authority, Clock, Credentials, Identity, Revocation, Role, SignedBundle, SystemClock,
    TrustBundle, TrustedAuthority, Validity,
};
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::pem::PemObject;

pub fn id(role: Role, name: &str) -> Identity {
    Identity::new("demo", role, name).unwrap()
}

pub fn authorities(list: &[(&Authority, bool)]) -> Vec<TrustedAuthority> {
    list.iter()
        .map(|(authority, issuing)| TrustedAuthority {
            certificate: authority.certificate().to_vec().into(),
            issuing: *issuing,
        })
        .collect()
}

/// Builds a bundle with one authority and these revocations.
pub fn bundle(
    number: u64,
    authority: &Authority,
    revoked: &[(&Identity, UnixMillis)],
) -> TrustBundle {
    TrustBundle {
        cluster: "demo".to_owned(),
        number,
        authorities: authorities(&[(authority, true)]),
        revoked: revoked
            .iter()
            .map(|(identity, issued_before)| Revocation {
                role: identity.role(),
                name: identity.id().to_owned(),
                issued_before: *issued_before,
                forget_at: issued_before.after(86_400_000),
            })
            .collect(),
    }
}

pub fn signed(
    number: u64,
    authority: &Authority,
    revoked: &[(&Identity, UnixMillis)],
) -> SignedBundle {
    bundle(number, authority, revoked)
        .sign([authority])
        .unwrap()
}

/// Returns a time in whole seconds, `seconds` ahead of now. Backdating makes a certificate of that issue time valid
/// already.
pub fn ahead(seconds: u64) -> UnixMillis {
    UnixMillis((SystemClock.now().0 / 1000 + seconds) * 1000)
}

pub fn issued_at(authority: &Authority, identity: &Identity, at: UnixMillis) -> Credentials {
    Credentials::issued_by(authority, identity, Validity::from_now(at, super::DAY)).unwrap()
}

/// Returns the same key and certificate under other roots.
pub fn trusting(own: &Credentials, roots: &[&Authority]) -> Credentials {
    let folder = tempfile::tempdir().unwrap();
    own.save(folder.path()).unwrap();
    let pem: String = roots
        .iter()
        .map(|root| {
            let folder = tempfile::tempdir().unwrap();
            root.save(folder.path()).unwrap();
            std::fs::read_to_string(folder.path().join("ca.pem")).unwrap()
        })
        .collect();
    std::fs::write(folder.path().join("roots.pem"), pem).unwrap();
    Credentials::load(folder.path()).unwrap()
}

/// Computes the signed message of a bundle from the specification in `README.md`, independently of the code.
pub fn bundle_message(body: &[u8]) -> Vec<u8> {
    const CONTEXT: &str = "lattice mesh 1 trust bundle";
    let mut digest = blake3::Hasher::new_derive_key(CONTEXT);
    digest.update(&(body.len() as u64).to_le_bytes());
    digest.update(body);
    let mut message = format!("{CONTEXT}\0").into_bytes();
    message.extend_from_slice(digest.finalize().as_bytes());
    message
}

/// Reads the key of credentials or of an authority, for forgeries.
pub fn key_in(file: &std::path::Path) -> rcgen::KeyPair {
    let der = rustls_pki_types::PrivatePkcs8KeyDer::from_pem_file(file).unwrap();
    rcgen::KeyPair::try_from(der.secret_pkcs8_der()).unwrap()
}
