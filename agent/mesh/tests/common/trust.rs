//! Bundles, and time for certificates.

use lattice_mesh::{
    Authority, Clock, Credentials, Identity, Revoked, Role, SignedBundle, SystemClock, TrustBundle,
    TrustedAuthority, Validity,
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

/// One authority, and who is revoked from when on.
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
            .map(|(identity, issued_before)| Revoked {
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

/// Whole seconds ahead of now: a certificate of that moment is in force already, by backdating.
pub fn ahead(seconds: u64) -> UnixMillis {
    UnixMillis((SystemClock.now().0 / 1000 + seconds) * 1000)
}

pub fn issued_at(authority: &Authority, identity: &Identity, at: UnixMillis) -> Credentials {
    Credentials::issued_by(authority, identity, Validity::from_now(at, super::DAY)).unwrap()
}

/// The same key and certificate under other roots.
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

/// What `README.md` says is signed of a bundle, by itself.
pub fn bundle_message(body: &[u8]) -> Vec<u8> {
    const CONTEXT: &str = "lattice mesh 1 trust bundle";
    let mut digest = blake3::Hasher::new_derive_key(CONTEXT);
    digest.update(&(body.len() as u64).to_le_bytes());
    digest.update(body);
    let mut message = format!("{CONTEXT}\0").into_bytes();
    message.extend_from_slice(digest.finalize().as_bytes());
    message
}

/// The key of credentials or of an authority, for forgeries.
pub fn key_in(file: &std::path::Path) -> rcgen::KeyPair {
    let der = rustls_pki_types::PrivatePkcs8KeyDer::from_pem_file(file).unwrap();
    rcgen::KeyPair::try_from(der.secret_pkcs8_der()).unwrap()
}
