//! Trust in force, in the form that TLS handshakes need, and verification of peers against it.

use crate::{
    Credentials, CredentialsError, Identity, Role, TrustedAuthority,
    limits::log_limiter::LogLimiter,
    pki::{
        certificate::CertificateFields,
        chain::{chain_to, is_unknown_authority, unix_time},
        crypto::provider,
    },
};
use arc_swap::ArcSwap;
use lattice_quorum_types::UnixMillis;
use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::CertificateDer;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::Notify;

/// Standing of a process's own certificate under the trust in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStanding {
    /// The certificate is from an issuing authority, or the process has no trust bundle yet, only roots.
    Good,
    /// The certificate is trusted, but its authority no longer issues. Renew before the authority loses its trust.
    Superseded,
    /// The certificate is from no trusted authority: every peer refuses it. Enrol again.
    Untrusted,
    /// The certificate is revoked: every peer refuses it. Enrol again, unless the operators meant to exclude this
    /// process.
    Revoked,
}

/// Trust in force, for callers that wait for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustState {
    /// Number of the bundle; 0 before the first bundle.
    pub number: u64,
    /// Standing of this process's certificate under that bundle.
    pub standing: CertificateStanding,
}

/// Reason to refuse a well-formed certificate.
#[derive(Debug)]
pub(crate) enum DistrustReason {
    /// The certificate was issued before `issued_before`.
    Revoked {
        identity: Identity,
        issued_before: UnixMillis,
    },
    /// Another reason, in words.
    Other(String),
}

impl std::fmt::Display for DistrustReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Revoked {
                identity,
                issued_before,
            } => write!(
                f,
                "the certificate of {identity} was revoked: certificates issued before \
                 {issued_before} are no longer valid"
            ),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

/// Identity and validity of a verified certificate.
#[derive(Debug, Clone)]
pub(crate) struct VerifiedPeer {
    pub(crate) identity: Identity,
    pub(crate) issued_at: UnixMillis,
    pub(crate) expires_at: UnixMillis,
}

impl Credentials {
    /// Returns the standing of this certificate under the bundle of these credentials; [`CertificateStanding::Good`]
    /// without a bundle. The validity period is not checked; see [`Credentials::expires_at`].
    pub fn standing(&self) -> Result<CertificateStanding, CredentialsError> {
        Trust::new(self.clone(), &provider()).map(|trust| trust.standing)
    }
}

/// Credentials in the form that rustls uses.
pub(crate) struct Trust {
    pub(crate) credentials: Credentials,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) clients: Arc<dyn ClientCertVerifier>,
    pub(crate) certified_key: Arc<CertifiedKey>,
    /// Own chain followed by the roots. A process without a certificate compares its pins with the roots.
    pub(crate) certified_key_with_roots: Arc<CertifiedKey>,
    pub(crate) standing: CertificateStanding,
    revoked: BTreeMap<Role, HashMap<String, UnixMillis>>,
}

/// Trust in force: read at every handshake, replaced by rotations and bundles.
pub(crate) struct TrustStore {
    in_force: ArcSwap<Trust>,
    /// Notified when a peer presented a certificate of an authority that is not trusted here. The peer is from another
    /// cluster, or the authority of this cluster has changed while this process was offline.
    pub(crate) unknown_authority: Notify,
    /// Limits the lines about handshakes with revoked certificates.
    pub(crate) revoked_peers: LogLimiter<Identity>,
}

impl TrustStore {
    pub(crate) fn new(first: Trust) -> Self {
        Self {
            in_force: ArcSwap::from_pointee(first),
            unknown_authority: Notify::new(),
            revoked_peers: LogLimiter::new(),
        }
    }
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Trust>> {
        self.in_force.load()
    }
    pub(crate) fn load_full(&self) -> Arc<Trust> {
        self.in_force.load_full()
    }
    pub(crate) fn swap(&self, next: Arc<Trust>) -> Arc<Trust> {
        self.in_force.swap(next)
    }
    /// Returns `judged` unchanged, and notifies `unknown_authority` when the chain leads to an untrusted authority.
    pub(crate) fn notify_unknown_authority<T>(
        &self,
        judged: Result<T, rustls::Error>,
    ) -> Result<T, rustls::Error> {
        if let Err(error) = &judged
            && is_unknown_authority(error)
        {
            self.unknown_authority.notify_one();
        }
        judged
    }
}

impl Trust {
    pub(crate) fn new(
        credentials: Credentials,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, CredentialsError> {
        let certificate = |reason: String| CredentialsError::Certificate { reason };
        let roots = root_store(credentials.roots())?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|e| certificate(e.to_string()))?;
        let certified = |chain| {
            CertifiedKey::from_der(chain, credentials.key().to_der(), provider)
                .map(Arc::new)
                .map_err(|e| CredentialsError::Key {
                    reason: e.to_string(),
                })
        };
        let own = credentials.chain().to_vec();
        let with_roots = own.iter().chain(credentials.roots()).cloned().collect();
        let (shown, shown_to_strangers) = (certified(own)?, certified(with_roots)?);
        let mut revoked: BTreeMap<Role, HashMap<String, UnixMillis>> = BTreeMap::new();
        for entry in credentials.trust().into_iter().flat_map(|t| &t.revoked) {
            let of_role = revoked.entry(entry.role).or_default();
            let before = of_role.entry(entry.name.clone()).or_default();
            *before = entry.issued_before.max(*before);
        }
        let mut trust = Self {
            credentials,
            roots,
            clients,
            certified_key: shown,
            certified_key_with_roots: shown_to_strangers,
            standing: CertificateStanding::Good,
            revoked,
        };
        trust.standing = trust.check_own_certificate(provider);
        Ok(trust)
    }

    fn check_own_certificate(&self, provider: &CryptoProvider) -> CertificateStanding {
        let Some(bundle) = self.credentials.trust() else {
            return CertificateStanding::Good;
        };
        let (identity, issued_at) = (self.credentials.identity(), self.credentials.issued_at());
        if self.check_revoked(identity, issued_at).is_err() {
            return CertificateStanding::Revoked;
        }
        let issued_by = |authority: &&TrustedAuthority| {
            let root = CertificateDer::from(authority.certificate.to_vec());
            let at = unix_time(issued_at);
            let Some((leaf, rest)) = self.credentials.chain().split_first() else {
                return false;
            };
            root_store(&[root]).is_ok_and(|root| chain_to(&root, leaf, rest, at, provider).is_ok())
        };
        match bundle.authorities.iter().find(issued_by) {
            Some(authority) if authority.issuing => CertificateStanding::Good,
            Some(_) => CertificateStanding::Superseded,
            None => CertificateStanding::Untrusted,
        }
    }

    /// Checks that a leaf certificate is from this cluster and not revoked. The caller verifies its chain and validity
    /// period.
    pub(crate) fn admit(
        &self,
        certificate: &CertificateDer<'_>,
    ) -> Result<VerifiedPeer, DistrustReason> {
        let leaf = CertificateFields::read(certificate).map_err(DistrustReason::Other)?;
        let (issued_at, expires_at) = (leaf.issued_at, leaf.not_after);
        let identity = leaf.identity().map_err(DistrustReason::Other)?;
        let cluster = self.credentials.identity().cluster();
        if identity.cluster() != cluster {
            let reason = format!("{identity} is not of cluster {cluster}");
            return Err(DistrustReason::Other(reason));
        }
        self.check_revoked(&identity, issued_at)?;
        Ok(VerifiedPeer {
            identity,
            issued_at,
            expires_at,
        })
    }

    pub(crate) fn check_revoked(
        &self,
        identity: &Identity,
        issued_at: UnixMillis,
    ) -> Result<(), DistrustReason> {
        let of_role = self.revoked.get(&identity.role());
        match of_role.and_then(|names| names.get(identity.id())) {
            Some(&issued_before) if issued_at < issued_before => Err(DistrustReason::Revoked {
                identity: identity.clone(),
                issued_before,
            }),
            _ => Ok(()),
        }
    }

    /// Checks like [`Trust::admit`], and verifies the complete chain at `now`.
    pub(crate) fn admit_chain(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixMillis,
        provider: &CryptoProvider,
    ) -> Result<VerifiedPeer, DistrustReason> {
        let (leaf, rest) = chain
            .split_first()
            .ok_or_else(|| DistrustReason::Other("there is no certificate".to_owned()))?;
        chain_to(&self.roots, leaf, rest, unix_time(now), provider)
            .map_err(|e| DistrustReason::Other(e.to_string()))?;
        self.admit(leaf)
    }
}

pub(crate) fn root_store(
    roots: &[CertificateDer<'static>],
) -> Result<Arc<RootCertStore>, CredentialsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store
            .add(root.clone())
            .map_err(|e| CredentialsError::Certificate {
                reason: e.to_string(),
            })?;
    }
    Ok(Arc::new(store))
}
