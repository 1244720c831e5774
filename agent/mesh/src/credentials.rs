//! What a process shows (chain and key) and what it trusts (roots).

use crate::{Identity, verify::Leaf};
use lattice_quorum_types::UnixMillis;
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustls_pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject,
};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

const CHAIN_FILE: &str = "identity.pem";
const KEY_FILE: &str = "identity.key";
const ROOTS_FILE: &str = "roots.pem";

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
    #[error("{} is readable by others (mode {mode:o}); run `chmod 600` on it", .path.display())]
    KeyExposed {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
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
    fn pair(&self) -> Result<KeyPair, CredentialsError> {
        KeyPair::try_from(self.0.expose_secret()).map_err(|e| CredentialsError::Key {
            reason: e.to_string(),
        })
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
    expires_at: UnixMillis,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKey,
    roots: Vec<CertificateDer<'static>>,
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
        if leaf.public_key != key.pair()?.der_bytes() {
            let reason = "it does not belong to the certificate".to_owned();
            return Err(CredentialsError::Key { reason });
        }
        let expires_at = leaf.not_after;
        let identity = leaf.identity().map_err(certificate)?;
        Ok(Self {
            identity,
            expires_at,
            chain,
            key,
            roots,
        })
    }

    /// A new P-256 key and its signing request.
    pub fn generate_key_and_csr() -> Result<KeyAndCsr, CredentialsError> {
        let failed = |e: rcgen::Error| CredentialsError::Key {
            reason: e.to_string(),
        };
        let pair = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let csr = params.serialize_request(&pair).map_err(failed)?;
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

    /// Who this is.
    pub fn identity(&self) -> &Identity {
        &self.identity
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

    /// Writes `identity.pem`, `identity.key` (mode 0600) and `roots.pem`, each replaced at once.
    pub fn save(&self, folder: &Path) -> Result<(), CredentialsError> {
        let failed = |path: &Path, e: io::Error| CredentialsError::File {
            path: path.to_owned(),
            reason: e.to_string(),
        };
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let key = SecretString::from(self.key.pair()?.serialize_pem());
        let key_path = folder.join(KEY_FILE);
        write_secret(&key_path, &key).map_err(|e| failed(&key_path, e))?;
        for (name, certificates) in [(CHAIN_FILE, &self.chain), (ROOTS_FILE, &self.roots)] {
            let path = folder.join(name);
            replace(&path, to_pem(certificates).as_bytes(), 0o644).map_err(|e| failed(&path, e))?;
        }
        Ok(())
    }

    /// Reads what [`Credentials::save`] wrote; refuses a key that others can read.
    pub fn load(folder: &Path) -> Result<Self, CredentialsError> {
        let failed = |path: &Path, reason: String| CredentialsError::File {
            path: path.to_owned(),
            reason,
        };
        let read_certificates = |name: &str| {
            let path = folder.join(name);
            CertificateDer::pem_file_iter(&path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|e| failed(&path, e.to_string()))
        };
        let key_path = folder.join(KEY_FILE);
        let metadata =
            std::fs::metadata(&key_path).map_err(|e| failed(&key_path, e.to_string()))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(CredentialsError::KeyExposed {
                path: key_path,
                mode,
            });
        }
        let key = PrivatePkcs8KeyDer::from_pem_file(&key_path)
            .map_err(|e| failed(&key_path, e.to_string()))?;
        let key = PrivateKey(key.secret_pkcs8_der().to_vec().into());
        Self::new(
            read_certificates(CHAIN_FILE)?,
            key,
            read_certificates(ROOTS_FILE)?,
        )
    }
}

/// Writes a secret text so that no other user can read it at any moment.
pub(crate) fn write_secret(path: &Path, text: &SecretString) -> io::Result<()> {
    replace(path, text.expose_secret().as_bytes(), 0o600)
}

/// A reader sees the old file or the new one, also after a crash.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    if let Err(e) = std::fs::remove_file(&temporary)
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

/// Certificates as PEM text.
pub(crate) fn to_pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in base64(certificate).as_bytes().chunks(64) {
            let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// RFC 4648 base64, which is all PEM needs.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4u32 {
            let index = (word >> (18 - 6 * i)) & 63;
            text.push(if i as usize <= chunk.len() {
                ALPHABET[index as usize] as char
            } else {
                '='
            });
        }
    }
    text
}
