//! Certificate authority: in memory for a single-machine cluster, or stored in files on the quorum members. The
//! authority's key is never part of replicated state.

use super::{
    atomic_file::write_secret,
    ca_key_proof::{CaKeyProof, EnrolmentSession},
    certificate::CertificateFields,
    identity::Identity,
    pem::to_pem,
    pin::Pin,
    validity::Validity,
};
use lattice_host::private_file::{self, ExposedFile, PrivateFileError};
use lattice_quorum_types::UnixMillis;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
    SanType, SerialNumber, SigningKey,
};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// File name of the authority's certificate.
const CERT_FILE: &str = "ca.pem";
/// File name of the authority's key, mode 0600.
const KEY_FILE: &str = "ca.key";

/// Error of creating, reading or using an authority.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A file could not be read or written.
    #[error("{}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Other users can access the key file.
    #[error(transparent)]
    KeyExposed(ExposedFile),
    /// The content of a file is not usable.
    #[error("{} is not usable: {reason}", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Reason in words.
        reason: String,
    },
    /// The certificate request is malformed, or its signature is wrong.
    #[error("the certificate request is not usable: {reason}")]
    BadRequest {
        /// Reason in words.
        reason: String,
    },
    /// The certificate could not be created.
    #[error("the certificate could not be made: {reason}")]
    Signing {
        /// Error text of rcgen.
        reason: String,
    },
}

/// Certificate authority of one cluster.
pub struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.pin())
    }
}

fn signing(error: rcgen::Error) -> CaError {
    CaError::Signing {
        reason: error.to_string(),
    }
}

impl Authority {
    /// Creates an authority with a new key, in memory.
    pub fn create(cluster: &str, validity: Validity) -> Result<Self, CaError> {
        let key = KeyPair::generate().map_err(signing)?;
        let mut params = base_params(validity, &key, cluster);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Two authorities with the same cluster name have different common names. Verification of a certificate of the
        // other authority then fails with an unknown issuer, not with a bad signature.
        let mark = blake3::hash(key.der_bytes()).to_hex();
        let mark = mark.get(..8).unwrap_or_default();
        params.distinguished_name = common_name(&format!("lattice {mark} {cluster}"));
        let certificate = params.self_signed(&key).map_err(signing)?.der().clone();
        Ok(Self { certificate, key })
    }

    /// Names of the files of an authority that are missing in `folder`.
    pub fn missing_in(folder: &Path) -> Vec<&'static str> {
        let needed = [CERT_FILE, KEY_FILE];
        needed
            .into_iter()
            .filter(|name| !folder.join(name).exists())
            .collect()
    }

    /// Reads `ca.pem` and `ca.key` from a folder. Rejects a key that other users can read.
    pub fn load(folder: &Path) -> Result<Self, CaError> {
        let (cert_path, key_path) = (folder.join(CERT_FILE), folder.join(KEY_FILE));
        let unreadable = |path: &Path, reason: String| CaError::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| CaError::File {
                path: path.to_owned(),
                source,
            })
        };
        let pem = private_file::read(&key_path).map_err(|error| match error {
            PrivateFileError::Exposed(exposed) => CaError::KeyExposed(exposed),
            PrivateFileError::Unreadable { path, source } => CaError::File { path, source },
        })?;
        let certificate = CertificateDer::from_pem_slice(&read(&cert_path)?)
            .map_err(|e| unreadable(&cert_path, e.to_string()))?;
        let key = KeyPair::from_pem(secrecy::ExposeSecret::expose_secret(&pem))
            .map_err(|e| unreadable(&key_path, e.to_string()))?;
        let leaf = CertificateFields::read(&certificate)
            .map_err(|reason| unreadable(&cert_path, reason))?;
        if !leaf.is_ca {
            return Err(unreadable(
                &cert_path,
                "it is not a CA certificate".to_owned(),
            ));
        }
        if leaf.public_key != key.public_key_raw() {
            return Err(unreadable(
                &key_path,
                "it does not belong to ca.pem".to_owned(),
            ));
        }
        Ok(Self { certificate, key })
    }

    /// Writes `ca.pem` and, mode 0600, `ca.key`. Fails when one of the files exists.
    pub fn save(&self, folder: &Path) -> Result<(), CaError> {
        let (cert_path, key_path) = (folder.join(CERT_FILE), folder.join(KEY_FILE));
        let file = |path: &Path, source| CaError::File {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(|e| file(folder, e))?;
        for path in [&cert_path, &key_path] {
            if path.exists() {
                return Err(file(path, io::ErrorKind::AlreadyExists.into()));
            }
        }
        let pem = secrecy::SecretString::from(self.key.serialize_pem());
        write_secret(&key_path, &pem).map_err(|e| file(&key_path, e))?;
        std::fs::write(&cert_path, to_pem(std::slice::from_ref(&self.certificate)))
            .map_err(|e| file(&cert_path, e))
    }

    /// Certificate of the authority itself: the root that members trust.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// blake3 digest of [`Authority::certificate`], as in join tokens.
    pub fn pin(&self) -> Pin {
        Pin::of(&self.certificate)
    }

    /// Signs `message` with the authority's key, ECDSA P-256 with SHA-256. Callers prepend a prefix that no certificate
    /// starts with (see [`super::signature`]).
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, CaError> {
        if !self.key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
            return Err(CaError::Signing {
                reason: "the authority's key is not an ECDSA P-256 key".to_owned(),
            });
        }
        self.key.sign(message).map_err(signing)
    }

    /// Proves to an unenrolled process that the server of its session holds the key of this authority.
    pub fn prove(&self, session: &EnrolmentSession) -> Result<CaKeyProof, CaError> {
        Ok(CaKeyProof {
            certificate: self.certificate.to_vec(),
            signature: self.sign(&session.message())?,
        })
    }

    /// Issues a certificate for `identity` over the public key in `csr`. The CSR provides only the key; the names come
    /// from `identity`.
    pub fn issue(
        &self,
        identity: &Identity,
        csr: &CertificateSigningRequestDer<'_>,
        validity: Validity,
    ) -> Result<Vec<CertificateDer<'static>>, CaError> {
        let request =
            CertificateSigningRequestParams::from_der(csr).map_err(|e| CaError::BadRequest {
                reason: e.to_string(),
            })?;
        let mut params = base_params(validity, &request.public_key, &identity.uri());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.distinguished_name = common_name(identity.id());
        params.subject_alt_names = vec![SanType::URI(identity.uri().try_into().map_err(signing)?)];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::from_ca_cert_der(&self.certificate, &self.key).map_err(signing)?;
        let certificate = params
            .signed_by(&request.public_key, &issuer)
            .map_err(signing)?;
        Ok(vec![certificate.der().clone()])
    }
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // A common name holds at most 64 characters. It is informational; the SAN is authoritative.
    name.push(
        DnType::CommonName,
        text.chars().take(64).collect::<String>(),
    );
    name
}

/// Sets validity and serial number. The serial is a digest of key, name and validity, so it needs no randomness, and
/// certificates of one name have different serials.
fn base_params(validity: Validity, key: &impl PublicKeyData, name: &str) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // Years beyond 9999 cannot be encoded.
    let at = |t: UnixMillis| epoch + Duration::from_secs((t.0 / 1000).min(253_402_300_799));
    let mut digest = blake3::Hasher::new();
    digest.update(key.der_bytes());
    digest.update(name.as_bytes());
    digest.update(&validity.not_before.0.to_be_bytes());
    digest.update(&validity.not_after.0.to_be_bytes());
    let mut serial = [0u8; 16];
    digest.finalize_xof().fill(&mut serial);
    // Positive and of constant length for every digest.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    let mut params = CertificateParams::default();
    params.not_before = at(validity.not_before);
    params.not_after = at(validity.not_after);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}
