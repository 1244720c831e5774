//! What a process shows (chain and key) and what it trusts (roots).

use crate::{
    BundleRefused, Clock as _, Identity, Role, SignedBundle, SystemClock, TrustBundle,
    bundle::InForce, reset::ResetKey, verify::Leaf,
};
use lattice_host::private_file::ExposedFile;
use lattice_quorum_types::UnixMillis;
use rcgen::{CertificateParams, KeyPair, PublicKeyData, SigningKey};
use rustls_pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use secrecy::{ExposeSecret, SecretSlice};
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

/// Why credentials are not usable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialsError {
    /// A file could not be read or written.
    #[error("{}: {reason}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The key file is open to others.
    #[error(transparent)]
    KeyExposed(#[from] ExposedFile),
    /// The certificate is not an identity of ours.
    #[error("the certificate is not usable: {reason}")]
    Certificate {
        /// What is wrong.
        reason: String,
    },
    /// The key does not belong to the certificate, or cannot be read.
    #[error("the private key is not usable: {reason}")]
    Key {
        /// What is wrong.
        reason: String,
    },
    /// Nothing is trusted.
    #[error("there is no trusted root certificate")]
    NoRoots,
}

/// A private key (PKCS #8). Wiped on drop; never in `Debug`.
#[derive(Clone)]
pub struct PrivateKey(SecretSlice<u8>);

impl PrivateKey {
    pub(crate) fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.expose_secret().to_vec()).into()
    }
    pub(crate) fn secret_bytes(&self) -> &[u8] {
        self.0.expose_secret()
    }
    pub(crate) fn from_pkcs8(der: &[u8]) -> Self {
        Self(der.to_vec().into())
    }
    pub(crate) fn pair(&self) -> Result<KeyPair, CredentialsError> {
        KeyPair::try_from(self.0.expose_secret()).map_err(key_error)
    }
    /// The public half, as it stands in a certificate.
    pub(crate) fn public(&self) -> Result<Vec<u8>, CredentialsError> {
        Ok(self.pair()?.der_bytes().to_vec())
    }
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, CredentialsError> {
        self.pair()?.sign(message).map_err(key_error)
    }
}

fn key_error(error: impl fmt::Display) -> CredentialsError {
    CredentialsError::Key {
        reason: error.to_string(),
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// A new key with a request to certify it.
#[derive(Debug)]
pub struct KeyAndCsr {
    /// Stays with the process.
    pub key: PrivateKey,
    /// Goes to the authority. It names nothing.
    pub csr: CertificateSigningRequestDer<'static>,
}

/// What a process shows and what it trusts. Immutable; a new certificate is a new value, swapped
/// in by [`crate::Mesh::rotate`].
#[derive(Clone)]
pub struct Credentials {
    identity: Identity,
    issued_at: UnixMillis,
    expires_at: UnixMillis,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKey,
    roots: Vec<CertificateDer<'static>>,
    reset: ResetKey,
    /// Where `roots` come from, once a bundle is known.
    in_force: Option<Arc<InForce>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Credentials({}, until {})",
            self.identity, self.expires_at
        )
    }
}

impl Credentials {
    /// Checks that the leaf is an identity and the key its own.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKey,
        roots: Vec<CertificateDer<'static>>,
    ) -> Result<Self, CredentialsError> {
        let certificate = |reason| CredentialsError::Certificate { reason };
        let first = chain
            .first()
            .ok_or_else(|| certificate("the chain is empty".to_owned()))?;
        if roots.is_empty() {
            return Err(CredentialsError::NoRoots);
        }
        let leaf = Leaf::read(first).map_err(certificate)?;
        if leaf.public_key != key.public()? {
            return Err(key_error("it does not belong to the certificate"));
        }
        let (issued_at, expires_at) = (leaf.issued_at, leaf.not_after);
        let identity = leaf.identity().map_err(certificate)?;
        let reset = ResetKey::derive(key.secret_bytes());
        Ok(Self {
            reset,
            identity,
            issued_at,
            expires_at,
            chain,
            key,
            roots,
            in_force: None,
        })
    }

    /// A new P-256 key and its signing request.
    pub fn generate_key_and_csr() -> Result<KeyAndCsr, CredentialsError> {
        let pair = KeyPair::generate().map_err(key_error)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let csr = params.serialize_request(&pair).map_err(key_error)?;
        let key = PrivateKey(pair.serialize_der().into());
        Ok(KeyAndCsr {
            key,
            csr: csr.into(),
        })
    }

    /// A certificate straight from an authority at hand: for a throw-away cluster, and tests.
    pub fn issued_by(
        authority: &crate::Authority,
        identity: &Identity,
        validity: crate::Validity,
    ) -> Result<Self, CredentialsError> {
        let KeyAndCsr { key, csr } = Self::generate_key_and_csr()?;
        let chain = authority.issue(identity, &csr, validity).map_err(|e| {
            CredentialsError::Certificate {
                reason: e.to_string(),
            }
        })?;
        Self::new(chain, key, vec![authority.certificate().clone()])
    }

    /// Credentials of `role` and `id` that an authority in this process issues directly, valid for `lifetime` from the
    /// system clock's time: for a cluster in one process, and tests.
    ///
    /// # Errors
    /// A name that no certificate can carry, or a failed signature.
    pub fn issued_now(
        authority: &crate::Authority,
        cluster: &str,
        role: Role,
        id: &str,
        lifetime: Duration,
    ) -> Result<Self, CredentialsError> {
        let identity =
            Identity::new(cluster, role, id).map_err(|error| CredentialsError::Certificate {
                reason: error.to_string(),
            })?;
        let validity = crate::Validity::from_now(SystemClock.now(), lifetime);
        Self::issued_by(authority, &identity, validity)
    }

    /// Who this is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    /// When the certificate was issued, whole seconds: revocation goes by it.
    pub fn issued_at(&self) -> UnixMillis {
        self.issued_at
    }
    /// Last moment the certificate holds.
    pub fn expires_at(&self) -> UnixMillis {
        self.expires_at
    }
    /// Leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
    /// What is trusted.
    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }
    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }
    /// The bundle that `roots` come from, as it was signed; `None` before the first.
    pub fn bundle(&self) -> Option<&SignedBundle> {
        self.in_force.as_ref().map(|in_force| &in_force.signed)
    }
    /// What the bundle says.
    pub fn trust(&self) -> Option<&TrustBundle> {
        self.in_force.as_ref().map(|in_force| &in_force.bundle)
    }
    /// The number of the bundle; 0 before the first.
    pub fn trust_number(&self) -> u64 {
        self.trust().map_or(0, |bundle| bundle.number)
    }

    /// The same certificate and key under another bundle, if an authority trusted so far has
    /// signed it and its number is higher. The one it has is taken again without a change.
    pub fn with_bundle(&self, signed: &SignedBundle) -> Result<Self, BundleRefused> {
        if self.bundle().is_some_and(|own| own.body == signed.body) {
            return Ok(self.clone());
        }
        let bundle = signed.verify(&self.roots, self.identity.cluster())?;
        if let Some(in_force) = self.trust().map(|own| own.number) {
            let number = bundle.number;
            if number < in_force {
                return Err(BundleRefused::Older { number, in_force });
            }
            if number == in_force {
                return Err(BundleRefused::Conflict { number });
            }
        }
        let signed = signed.clone();
        Ok(self.clone().under(Arc::new(InForce { signed, bundle })))
    }

    /// With the reset key of before, which a restarted process must still have.
    pub(crate) fn with_reset(mut self, reset: ResetKey) -> Self {
        self.reset = reset;
        self
    }

    pub(crate) fn reset(&self) -> &ResetKey {
        &self.reset
    }

    /// Trusts what `in_force` says, which is verified already.
    pub(crate) fn under(mut self, in_force: Arc<InForce>) -> Self {
        self.roots = in_force.bundle.roots();
        self.in_force = Some(in_force);
        self
    }

    pub(crate) fn in_force(&self) -> Option<&Arc<InForce>> {
        self.in_force.as_ref()
    }
}
