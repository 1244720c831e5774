//! Mesh credentials: certificate chain and key of a process, and the roots that it trusts.

use super::{
    bundle::{BundleInForce, BundleRefused, SignedBundle, TrustBundle},
    reset::ResetKey,
};
use crate::{
    Authority, Clock as _, Identity, Role, SystemClock, Validity,
    pki::certificate::CertificateFields,
};
use lattice_host::private_file::ExposedFile;
use lattice_quorum_types::UnixMillis;
use rcgen::{CertificateParams, KeyPair, PublicKeyData, SigningKey};
use rustls_pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use secrecy::{ExposeSecret, SecretSlice};
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

/// Reason why credentials are not usable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialsError {
    /// A file could not be read or written.
    #[error("{}: {reason}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause in words.
        reason: String,
    },
    /// Other users can access the key file.
    #[error(transparent)]
    KeyExposed(#[from] ExposedFile),
    /// The certificate is not a mesh identity.
    #[error("the certificate is not usable: {reason}")]
    Certificate {
        /// Reason in words.
        reason: String,
    },
    /// The key does not belong to the certificate, or cannot be read.
    #[error("the private key is not usable: {reason}")]
    Key {
        /// Reason in words.
        reason: String,
    },
    /// The credentials contain no trusted root.
    #[error("there is no trusted root certificate")]
    NoRoots,
}

/// Private key (PKCS #8). Wiped on drop; never shown by `Debug`.
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
    /// Returns the public key, as in a certificate.
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

/// New key with a CSR for it.
#[derive(Debug)]
pub struct KeyAndCsr {
    /// Private key, which stays with the process.
    pub key: PrivateKey,
    /// CSR for the authority. It contains no names.
    pub csr: CertificateSigningRequestDer<'static>,
}

/// Credentials of a process: its certificate, key and trusted roots. Immutable; a new certificate is a new value, put
/// in force by [`crate::Mesh::rotate`].
#[derive(Clone)]
pub struct Credentials {
    identity: Identity,
    issued_at: UnixMillis,
    expires_at: UnixMillis,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKey,
    roots: Vec<CertificateDer<'static>>,
    reset: ResetKey,
    /// Bundle that `roots` come from, once the process has one.
    in_force: Option<Arc<BundleInForce>>,
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
    /// Checks that the leaf is a mesh identity and that the key belongs to the leaf.
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
        let leaf = CertificateFields::read(first).map_err(certificate)?;
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

    /// Generates a P-256 key and a CSR for it.
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

    /// Issues credentials directly from an authority in this process: for throw-away clusters and tests.
    pub fn issued_by(
        authority: &Authority,
        identity: &Identity,
        validity: Validity,
    ) -> Result<Self, CredentialsError> {
        let KeyAndCsr { key, csr } = Self::generate_key_and_csr()?;
        let chain = authority.issue(identity, &csr, validity).map_err(|e| {
            CredentialsError::Certificate {
                reason: e.to_string(),
            }
        })?;
        Self::new(chain, key, vec![authority.certificate().clone()])
    }

    /// Issues credentials of `role` and `id` directly from an authority in this process, valid for `lifetime` from the
    /// system clock's time: for single-process clusters and tests.
    ///
    /// # Errors
    /// The name cannot be part of a certificate, or signing failed.
    pub fn issued_now(
        authority: &Authority,
        cluster: &str,
        role: Role,
        id: &str,
        lifetime: Duration,
    ) -> Result<Self, CredentialsError> {
        let identity =
            Identity::new(cluster, role, id).map_err(|error| CredentialsError::Certificate {
                reason: error.to_string(),
            })?;
        let validity = Validity::from_now(SystemClock.now(), lifetime);
        Self::issued_by(authority, &identity, validity)
    }

    /// Identity in the certificate.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    /// Issue time of the certificate, in whole seconds. Revocation compares against this time.
    pub fn issued_at(&self) -> UnixMillis {
        self.issued_at
    }
    /// Last moment at which the certificate is valid.
    pub fn expires_at(&self) -> UnixMillis {
        self.expires_at
    }
    /// Certificate chain, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
    /// Trusted root certificates.
    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }
    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }
    /// Signed bundle that `roots` come from; `None` before the first bundle.
    pub fn bundle(&self) -> Option<&SignedBundle> {
        self.in_force.as_ref().map(|in_force| &in_force.signed)
    }
    /// Content of the trust bundle; `None` before the first bundle.
    pub fn trust(&self) -> Option<&TrustBundle> {
        self.in_force.as_ref().map(|in_force| &in_force.bundle)
    }
    /// Number of the trust bundle; 0 before the first bundle.
    pub fn trust_number(&self) -> u64 {
        self.trust().map_or(0, |bundle| bundle.number)
    }

    /// Returns the bundle in force, if its number is above `have`.
    pub(crate) fn bundle_above(&self, have: u64) -> Option<SignedBundle> {
        let newer = self.trust_number() > have;
        self.bundle().filter(|_| newer).cloned()
    }

    /// Returns the same certificate and key under another bundle. A trusted authority must have signed the bundle, and
    /// its number must be higher than the present one. The present bundle itself is accepted without a change.
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
        Ok(self
            .clone()
            .with_trust(Arc::new(BundleInForce { signed, bundle })))
    }

    /// Replaces the reset key by an earlier one, which a restarted process must still have.
    pub(crate) fn with_reset(mut self, reset: ResetKey) -> Self {
        self.reset = reset;
        self
    }

    pub(crate) fn reset(&self) -> &ResetKey {
        &self.reset
    }

    /// Trusts the content of `in_force`, which is verified already.
    pub(crate) fn with_trust(mut self, in_force: Arc<BundleInForce>) -> Self {
        self.roots = in_force.bundle.roots();
        self.in_force = Some(in_force);
        self
    }

    pub(crate) fn in_force(&self) -> Option<&Arc<BundleInForce>> {
        self.in_force.as_ref()
    }
}
