//! The trust bundle: which authorities a cluster trusts and which certificates it does not any
//! more, numbered and signed, so that every member can hand it on and nobody can change it.

use crate::{
    Authority, CaError, Identity, Pin, Role,
    signature::{Kind, MAX_SIGNATURE_BYTES, is_signed, message},
    tls::provider,
    verify::Leaf,
    wire::{decode, encode},
};
use bytes::Bytes;
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Longest encoded bundle, bytes.
pub const MAX_BUNDLE_BYTES: usize = 2 << 20;
/// Authorities in a bundle: one, two during a rotation, and room.
pub const MAX_AUTHORITIES: usize = 16;
/// Revocations in a bundle.
pub const MAX_REVOKED: usize = 65_536;
/// Signatures of a bundle: one per authority.
const MAX_SIGNATURES: usize = MAX_AUTHORITIES;
/// First byte of the encoded body.
const BODY_VERSION: u8 = 1;

/// An authority that the cluster trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedAuthority {
    /// Its certificate, DER.
    pub certificate: Bytes,
    /// Whether it issues at present. Members whose certificate is of one that does not, renew.
    pub issuing: bool,
}

/// All certificates of one identity that were issued before a moment are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Role of the identity.
    pub role: Role,
    /// Its name within the role.
    pub name: String,
    /// Certificates issued before this are refused; one issued at this very moment is good.
    pub issued_before: UnixMillis,
    /// When the last certificate that this refuses has expired by itself, and the entry may be
    /// left out. Judges go by the entry as long as it is there.
    pub forget_at: UnixMillis,
}

/// What a cluster trusts, at one revision of its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustBundle {
    /// The trust domain.
    pub cluster: String,
    /// Rises with every change. A member never goes back to a lower one.
    pub number: u64,
    /// Exactly these are trusted.
    pub authorities: Vec<TrustedAuthority>,
    /// What they have issued and is refused nevertheless.
    pub revoked: Vec<Revoked>,
}

/// One authority's signature of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSignature {
    /// Pin of the authority that signed.
    pub pin: Pin,
    /// ECDSA P-256 with SHA-256, ASN.1.
    pub signature: Bytes,
}

/// A bundle as it travels and lies on disk: the very bytes that were signed, and the signatures.
///
/// Signed is `"lattice mesh 1 trust bundle" 0x00 H`, `H` being blake3 (key derivation mode, the
/// same text as its context) of the body with its length in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedBundle {
    /// Version byte, then the [`TrustBundle`] in postcard.
    pub body: Bytes,
    /// By one or several authorities.
    pub signatures: Vec<BundleSignature>,
}

/// Why a bundle was not accepted. What was in force stays in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BundleRefused {
    /// Larger than any bundle may be.
    #[error("the trust bundle has {found} {what}; at most {limit} are allowed")]
    TooLarge {
        /// Bytes, authorities, revocations or signatures.
        what: String,
        /// How many there are.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// It cannot be read, or says what no bundle may say.
    #[error("the trust bundle is not valid: {reason}")]
    Invalid {
        /// What is wrong.
        reason: String,
    },
    /// Nobody trusted has signed it.
    #[error("the trust bundle is not signed by an authority that is trusted here")]
    NotSigned,
    /// It is of another cluster.
    #[error("the trust bundle is of cluster {found}; this is {cluster}")]
    ForeignCluster {
        /// Our cluster.
        cluster: String,
        /// The bundle's.
        found: String,
    },
    /// A later one is in force: taking this one would take revocations back.
    #[error("the trust bundle is number {number}; {in_force} is in force")]
    Older {
        /// The number offered.
        number: u64,
        /// The number in force.
        in_force: u64,
    },
    /// Two bundles have one number: one of the signers does not follow the cluster's state.
    #[error("another trust bundle with number {number} is in force")]
    Conflict {
        /// The number of both.
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

/// Why a bundle could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignBundleError {
    /// Nobody would accept it.
    #[error(transparent)]
    Bundle(#[from] BundleRefused),
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] CaError),
}

impl TrustBundle {
    /// Encodes and signs it with each of `authorities`. Equal bundles have equal bodies. Refuses
    /// what a peer would refuse: a bundle out of bounds, or one that none of the authorities it
    /// names has signed.
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

    /// The certificates of the authorities, in the bundle's order.
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
            if !Leaf::read(&root).map_err(invalid)?.is_ca {
                return Err(invalid("one of the authorities is no CA certificate"));
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
    /// What it says, unverified: for showing it to people. Bounds are checked.
    pub fn peek(&self) -> Result<TrustBundle, BundleRefused> {
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

    /// Reads it, if one of `trusted` has signed it and it is of `cluster`, and one of the
    /// authorities it names has signed it too (most often the same one): only so can it be
    /// verified again from a disk, when `trusted` is forgotten.
    pub fn verify(
        &self,
        trusted: &[CertificateDer<'_>],
        cluster: &str,
    ) -> Result<TrustBundle, BundleRefused> {
        // Nothing of what a stranger sent is decoded before the signature is known.
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

    /// Whole and signed by one of the authorities it names. That finds damage, not deceit.
    pub(crate) fn verify_by_itself(&self) -> Result<TrustBundle, BundleRefused> {
        let bundle = self.peek()?;
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
                .filter_map(|root| Leaf::read(root).ok())
                .any(|root| {
                    root.is_ca
                        && is_signed(&provider, &root.public_key, &message, &signed.signature)
                })
        })
    }

    /// The file `trust.bundle`.
    pub(crate) fn to_file(&self) -> Result<Vec<u8>, String> {
        encode(self)
    }

    /// Reads the file `trust.bundle`.
    pub(crate) fn from_file(bytes: &[u8]) -> Result<Self, String> {
        decode(bytes)
    }
}

/// A verified bundle in both forms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InForce {
    pub(crate) signed: SignedBundle,
    pub(crate) bundle: TrustBundle,
}
