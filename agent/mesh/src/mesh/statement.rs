//! Statements of an endpoint: signatures with its key, and verification under its trust.

use crate::{CredentialsError, Identity, Mesh, StatementRefused, StatementSignature};
use lattice_quorum_types::UnixMillis;

impl Mesh {
    /// Signs a statement with this process's key; see [`Credentials::sign`].
    pub fn sign(
        &self,
        context: &str,
        bytes: &[u8],
    ) -> Result<StatementSignature, CredentialsError> {
        self.core().trust().credentials.sign(context, bytes)
    }

    /// Returns the signer of `bytes` for `context`, if the signer's certificate is trusted here now and valid at `at`.
    /// The caller checks whether the signer may make the statement.
    ///
    /// # Errors
    /// A defect of the certificate or the signature.
    pub fn verify_signed(
        &self,
        context: &str,
        bytes: &[u8],
        signed: &StatementSignature,
        at: UnixMillis,
    ) -> Result<Identity, StatementRefused> {
        self.core().trust().signer_of(context, bytes, signed, at)
    }
}
