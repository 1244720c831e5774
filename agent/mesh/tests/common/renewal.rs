//! Shared code of the renewal tests: certificates of one month, issued without a quorum.

use lattice_mesh::{Authority, Identity, Issued, RenewalSettings, Validity};
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateSigningRequestDer;
use std::{path::Path, sync::Arc, time::Duration};

pub const LIFE: Duration = Duration::from_secs(30 * 86_400);
pub const START: UnixMillis = UnixMillis(1_900_000_000_000);

pub fn issue(
    authority: &Authority,
    identity: &Identity,
    csr: &CertificateSigningRequestDer<'_>,
    validity: Validity,
    roots: &[Vec<u8>],
) -> Issued {
    let chain = authority.issue(identity, csr, validity).unwrap();
    Issued {
        chain: chain.iter().map(|c| c.to_vec()).collect(),
        roots: roots.to_vec(),
        cell: None,
    }
}

pub fn long_lived() -> Arc<Authority> {
    let validity = Validity::from_now(START, Duration::from_secs(3650 * 86_400));
    Arc::new(Authority::create("demo", validity).unwrap())
}

pub fn settings(folder: Option<&Path>) -> RenewalSettings {
    RenewalSettings::new(folder.map(Path::to_owned), 7)
}
