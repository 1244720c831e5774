//! Trust bundle: the authorities that a cluster trusts, and the revoked certificates. A bundle is numbered and signed,
//! so that every member can forward it and none can change it.

use crate::{
    Authority, CaError, Identity, Pin, Role,
    encoding::{decode, encode},
    pki::{
        certificate::CertificateFields,
        crypto::provider,
        signature::{Kind, MAX_SIGNATURE_BYTES, is_signed, message},
    },
};
use bytes::Bytes;
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Longest encoded bundle, bytes.
pub const MAX_BUNDLE_BYTES: usize = 2 << 20;
/// Maximum number of authorities in a bundle: one, or two during a rotation, and a reserve.
pub const MAX_AUTHORITIES: usize = 16;
/// Maximum number of revocations in a bundle.
pub const MAX_REVOKED: usize = 65_536;
/// Maximum number of signatures of a bundle: one per authority.
const MAX_SIGNATURES: usize = MAX_AUTHORITIES;
/// First byte of the encoded body.
const BODY_VERSION: u8 = 1;

/// Authority that the cluster trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedAuthority {
    /// Certificate of the authority, DER.
    pub certificate: Bytes,
    /// Whether the authority issues certificates at present. Members with a certificate of an authority that no longer
    /// issues renew.
    pub issuing: bool,
}

/// Revocation of all certificates of one identity issued before a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Role of the identity.
    pub role: Role,
    /// Name of the identity within its role.
    pub name: String,
    /// Certificates issued before this moment are refused; one issued at exactly this moment is valid.
    pub issued_before: UnixMillis,
    /// Expiry time of the last certificate that this entry refuses, after which the entry may be removed. The entry
    /// applies as long as the bundle contains it.
    pub forget_at: UnixMillis,
}

/// Content of a trust bundle: what a cluster trusts, at one revision of its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustBundle {
    /// Trust domain: the name of the cluster.
    pub cluster: String,
    /// Number of the bundle, increased with every change. A member never returns to a lower number.
    pub number: u64,
    /// Complete list of trusted authorities.
    pub authorities: Vec<TrustedAuthority>,
    /// Revoked certificates of these authorities.
    pub revoked: Vec<Revocation>,
}

/// Signature of a bundle by one authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSignature {
    /// Pin of the authority that signed.
    pub pin: Pin,
    /// ECDSA P-256 with SHA-256, ASN.1.
    pub signature: Bytes,
}

/// Trust bundle as sent and stored: the exact bytes that were signed, and the signatures.
///
/// The signed message is `"lattice mesh 1 trust bundle" 0x00 H`. `H` is the blake3 digest (key derivation mode, the
/// same text as its context) of the body with its length in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedBundle {
    /// Version byte, followed by the [`TrustBundle`] in postcard.
    pub body: Bytes,
    /// Signatures by one or several authorities.
    pub signatures: Vec<BundleSignature>,
}

/// Reason why a bundle was rejected. The bundle in force stays in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BundleRefused {
    /// The bundle exceeds a limit.
    #[error("the trust bundle has {found} {what}; at most {limit} are allowed")]
    TooLarge {
        /// Exceeded quantity: bytes, authorities, revocations, signatures or bytes in a signature.
        what: String,
        /// Actual amount.
        found: u64,
        /// Maximum amount.
        limit: u64,
    },
    /// The bundle cannot be decoded, or its content is not valid.
    #[error("the trust bundle is not valid: {reason}")]
    Invalid {
        /// Reason in words.
        reason: String,
    },
    /// No trusted authority has signed the bundle.
    #[error("the trust bundle is not signed by an authority that is trusted here")]
    NotSigned,
    /// The bundle is from another cluster.
    #[error("the trust bundle belongs to cluster {found}, this process to cluster {cluster}")]
    ForeignCluster {
        /// Cluster of this process.
        cluster: String,
        /// Cluster of the bundle.
        found: String,
    },
    /// A later bundle is in force: accepting this one would undo revocations.
    #[error("trust bundle {number} is older than bundle {in_force}, which is in force")]
    Older {
        /// Number of the rejected bundle.
        number: u64,
        /// Number of the bundle in force.
        in_force: u64,
    },
    /// Two different bundles have the same number: one of the signers does not follow the cluster's state.
    #[error("another trust bundle with number {number} is in force")]
    Conflict {
        /// Number of both bundles.
        number: u64,
    },
}

fn invalid(reason: impl ToString) -> BundleRefused {
    BundleRefused::Invalid {
        reason: reason.to_string(),
    }
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<(), BundleRefused> {
    if found <= limit {
        return Ok(());
    }
    Err(BundleRefused::TooLarge {
        what: what.to_owned(),
        found: found as u64,
        limit: limit as u64,
    })
}

/// Reason why a bundle could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignBundleError {
    /// Every peer would reject the bundle.
    #[error(transparent)]
    Bundle(#[from] BundleRefused),
    /// Signing with the authority's key failed.
    #[error(transparent)]
    Key(#[from] CaError),
}

impl TrustBundle {
    /// Encodes the bundle and signs it with each of `authorities`. Equal bundles have equal bodies.
    ///
    /// # Errors
    /// A bundle that a peer would reject, because it exceeds a limit or none of its own authorities has signed it; or a
    /// failure to sign.
    pub fn sign<'a>(
        &self,
        authorities: impl IntoIterator<Item = &'a Authority>,
    ) -> Result<SignedBundle, SignBundleError> {
        let mut body = vec![BODY_VERSION];
        body.extend(encode(self).map_err(invalid)?);
        let message = message(Kind::TrustBundle, &[&body]);
        let signatures = authorities
            .into_iter()
            .map(|authority| {
                Ok(BundleSignature {
                    pin: authority.pin(),
                    signature: authority.sign(&message)?.into(),
                })
            })
            .collect::<Result<_, CaError>>()?;
        let signed = SignedBundle {
            body: body.into(),
            signatures,
        };
        signed.verify_by_itself()?;
        Ok(signed)
    }

    /// Certificates of the authorities, in the bundle's order.
    pub fn roots(&self) -> Vec<CertificateDer<'static>> {
        let der = |a: &TrustedAuthority| CertificateDer::from(a.certificate.to_vec());
        self.authorities.iter().map(der).collect()
    }

    fn check(&self) -> Result<(), BundleRefused> {
        at_most("authorities", self.authorities.len(), MAX_AUTHORITIES)?;
        at_most("revocations", self.revoked.len(), MAX_REVOKED)?;
        if !self.authorities.iter().any(|a| a.issuing) {
            return Err(invalid("it names no issuing authority"));
        }
        for root in self.roots() {
            if !CertificateFields::read(&root).map_err(invalid)?.is_ca {
                return Err(invalid("one of the authorities is not a CA certificate"));
            }
        }
        for revoked in &self.revoked {
            Identity::new(self.cluster.as_str(), revoked.role, revoked.name.as_str())
                .map_err(invalid)?;
        }
        Ok(())
    }
}

impl SignedBundle {
    /// Decodes the bundle without verifying its signatures, for display. Checks limits.
    pub fn decode_unverified(&self) -> Result<TrustBundle, BundleRefused> {
        at_most("bytes", self.body.len(), MAX_BUNDLE_BYTES)?;
        at_most("signatures", self.signatures.len(), MAX_SIGNATURES)?;
        let longest = self.signatures.iter().map(|s| s.signature.len()).max();
        at_most(
            "bytes in a signature",
            longest.unwrap_or(0),
            MAX_SIGNATURE_BYTES,
        )?;
        let bundle: TrustBundle = match self.body.split_first() {
            Some((&BODY_VERSION, rest)) => decode(rest).map_err(invalid)?,
            Some((version, _)) => {
                return Err(invalid(format!(
                    "it has version {version}; this process reads {BODY_VERSION}"
                )));
            }
            None => return Err(invalid("it is empty")),
        };
        bundle.check()?;
        Ok(bundle)
    }

    /// Verifies and decodes the bundle. One of `trusted` must have signed it, and it must be of `cluster`. One of the
    /// bundle's own authorities, most often the same one, must have signed it too. Otherwise the bundle could not be
    /// verified again after a load from disk, when `trusted` is no longer available.
    pub fn verify(
        &self,
        trusted: &[CertificateDer<'_>],
        cluster: &str,
    ) -> Result<TrustBundle, BundleRefused> {
        // No content from an unverified peer is decoded before its signature is verified.
        at_most("bytes", self.body.len(), MAX_BUNDLE_BYTES)?;
        at_most("signatures", self.signatures.len(), MAX_SIGNATURES)?;
        if !self.is_signed_by_any(trusted) {
            return Err(BundleRefused::NotSigned);
        }
        let bundle = self.verify_by_itself()?;
        if bundle.cluster != cluster {
            return Err(BundleRefused::ForeignCluster {
                cluster: cluster.to_owned(),
                found: bundle.cluster,
            });
        }
        Ok(bundle)
    }

    /// Checks that the bundle is complete and signed by one of its own authorities. The check detects damage, not
    /// forgery.
    pub(crate) fn verify_by_itself(&self) -> Result<TrustBundle, BundleRefused> {
        let bundle = self.decode_unverified()?;
        if self.is_signed_by_any(&bundle.roots()) {
            Ok(bundle)
        } else {
            Err(BundleRefused::NotSigned)
        }
    }

    fn is_signed_by_any(&self, trusted: &[CertificateDer<'_>]) -> bool {
        let provider = provider();
        let message = message(Kind::TrustBundle, &[&self.body]);
        self.signatures.iter().any(|signed| {
            trusted
                .iter()
                .filter(|root| Pin::of(root) == signed.pin)
                .filter_map(|root| CertificateFields::read(root).ok())
                .any(|root| {
                    root.is_ca
                        && is_signed(&provider, &root.public_key, &message, &signed.signature)
                })
        })
    }

    /// Encodes the file `trust.bundle`.
    pub(crate) fn to_file(&self) -> Result<Vec<u8>, String> {
        encode(self)
    }

    /// Decodes the file `trust.bundle`.
    pub(crate) fn from_file(bytes: &[u8]) -> Result<Self, String> {
        decode(bytes)
    }
}

/// Verified bundle in signed and decoded form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BundleInForce {
    pub(crate) signed: SignedBundle,
    pub(crate) bundle: TrustBundle,
}
