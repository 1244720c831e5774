//! Signed statements: a member signs with the key of its certificate; other members forward and verify them later. One
//! example is an agent's attestation of its node.

use super::{
    credentials::{Credentials, CredentialsError},
    in_force::{DistrustReason, Trust, root_store},
};
use crate::{
    Identity,
    pki::{
        certificate::CertificateFields,
        chain::{chain_to, unix_time},
        crypto::provider,
        signature::{Kind, is_signed, message},
    },
};
use bytes::Bytes;
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Maximum number of certificates in the chain of a statement.
const MAX_CHAIN: usize = 4;
/// Longest certificate in the chain, bytes; mesh certificates have about 500.
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;

/// Signature of a statement, with the signer's certificates. The statement itself travels separately.
///
/// The signed message is `"lattice mesh 1 statement" 0x00 H`. `H` is the blake3 digest (key derivation mode, the same
/// text as its context) of context and bytes, each with its length in front. The signature is ECDSA P-256 with SHA-256,
/// ASN.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementSignature {
    /// The signer's certificates (DER), leaf first.
    pub chain: Vec<Bytes>,
    /// Signature by the leaf's key.
    pub signature: Bytes,
}

/// Reason to reject a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StatementRefused {
    /// The signer is not a trusted member.
    #[error("the statement's signer is not trusted: {reason}")]
    NotTrusted {
        /// Defect of the certificate, in words.
        reason: String,
    },
    /// The signature is not the signer's, or is for another statement or context.
    #[error("the signature of the statement is not valid")]
    WrongSignature,
}

impl From<DistrustReason> for StatementRefused {
    fn from(distrust: DistrustReason) -> Self {
        Self::NotTrusted {
            reason: distrust.to_string(),
        }
    }
}

impl Credentials {
    /// Signs `bytes` for one purpose, `context`; the signature is not valid for another context. The result includes
    /// the certificate chain.
    pub fn sign(
        &self,
        context: &str,
        bytes: &[u8],
    ) -> Result<StatementSignature, CredentialsError> {
        let message = message(Kind::Statement, &[context.as_bytes(), bytes]);
        Ok(StatementSignature {
            chain: self.chain().iter().map(|c| c.to_vec().into()).collect(),
            signature: self.key().sign(&message)?.into(),
        })
    }
}

impl StatementSignature {
    fn chain(&self) -> Result<Vec<CertificateDer<'_>>, StatementRefused> {
        let longest = self.chain.iter().map(Bytes::len).max().unwrap_or(0);
        if self.chain.len() > MAX_CHAIN || longest > MAX_CERTIFICATE_BYTES {
            let reason = "its certificates are too many or too long".to_owned();
            return Err(StatementRefused::NotTrusted { reason });
        }
        Ok(self.chain.iter().map(|c| (&c[..]).into()).collect())
    }

    fn check_signature(
        &self,
        leaf: Option<&CertificateDer<'_>>,
        context: &str,
        bytes: &[u8],
    ) -> Result<(), StatementRefused> {
        let message = message(Kind::Statement, &[context.as_bytes(), bytes]);
        let leaf = leaf.and_then(|leaf| CertificateFields::read(leaf).ok());
        match leaf {
            Some(leaf) if is_signed(&provider(), &leaf.public_key, &message, &self.signature) => {
                Ok(())
            }
            _ => Err(StatementRefused::WrongSignature),
        }
    }
}

/// Signer of a statement, according to its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Identity of the signer.
    pub identity: Identity,
    /// Issue time of the signer's certificate.
    pub issued_at: UnixMillis,
}

impl StatementSignature {
    /// Returns the signer of `bytes` for `context`, if the certificate is from `authority` and was valid at `at`. For
    /// verification without an endpoint, even years later. The caller checks revocations, the cluster and the signer's
    /// permissions.
    ///
    /// # Errors
    /// A defect of the certificate or the signature.
    pub fn verify_by(
        &self,
        authority: &CertificateDer<'_>,
        context: &str,
        bytes: &[u8],
        at: UnixMillis,
    ) -> Result<Signer, StatementRefused> {
        let not_trusted = |reason: String| StatementRefused::NotTrusted { reason };
        let chain = self.chain()?;
        let (leaf, rest) = chain
            .split_first()
            .ok_or_else(|| not_trusted("there is no certificate".to_owned()))?;
        let roots = root_store(&[authority.clone().into_owned()]);
        let roots = roots.map_err(|error| not_trusted(error.to_string()))?;
        chain_to(&roots, leaf, rest, unix_time(at), &provider())
            .map_err(|error| not_trusted(error.to_string()))?;
        self.check_signature(chain.first(), context, bytes)?;
        let leaf = CertificateFields::read(leaf).map_err(not_trusted)?;
        let issued_at = leaf.issued_at;
        let identity = leaf.identity().map_err(not_trusted)?;
        Ok(Signer {
            identity,
            issued_at,
        })
    }
}

impl Trust {
    /// Returns the signer of `bytes` for `context`, if the signer's certificate is trusted now and valid at `at`.
    pub(crate) fn signer_of(
        &self,
        context: &str,
        bytes: &[u8],
        signed: &StatementSignature,
        at: UnixMillis,
    ) -> Result<Identity, StatementRefused> {
        let chain = signed.chain()?;
        let member = self.admit_chain(&chain, at, &provider())?;
        signed.check_signature(chain.first(), context, bytes)?;
        Ok(member.identity)
    }
}
