//! Certificates of agents, controls and quorum members, and the CAs that issue them.

use crate::{Client, ClientError, Page, projects::with_key};
use lattice_api::{
    authority::{AuthorityRequest, AuthorityView},
    certificate::{CertificateView, RevokeRequest},
    project::ChangeResult,
};
use reqwest::Method;

impl Client {
    /// Returns the certificates of all agents, controls and quorum members, sorted by role and name. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn certificates(&self) -> Result<Vec<CertificateView>, ClientError> {
        self.all(&["certificates"], &[]).await
    }

    /// Revokes all certificates of one name in a role (`agent`, `control` or `quorum`) that were issued until now. For
    /// administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_certificates(
        &self,
        role: &str,
        name: &str,
        reason: &str,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let reason = reason.to_owned();
        let post = self.request(Method::POST, &["certificates", role, name, "revoke"]);
        self.answer(with_key(post.json(&RevokeRequest { reason }), key))
            .await
    }

    /// Returns the trusted CAs. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn authorities(&self) -> Result<Vec<AuthorityView>, ClientError> {
        let page: Page<AuthorityView> = self.get(&["authorities"]).await?;
        Ok(page.items)
    }

    /// Adds a trusted CA; `certificate` is PEM. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add_authority(
        &self,
        certificate: &str,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let certificate = certificate.to_owned();
        let post = self.request(Method::POST, &["authorities"]);
        self.answer(with_key(post.json(&AuthorityRequest { certificate }), key))
            .await
    }

    /// Makes a trusted CA the issuing one; `pin` is the blake3 digest of the CA certificate in hex, or a prefix of that
    /// digest.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn promote_authority(
        &self,
        pin: &str,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let post = self.request(Method::POST, &["authorities", pin, "promote"]);
        self.answer(with_key(post, key)).await
    }

    /// Removes a CA from the trusted ones; with `force` even while certificates that it issued are in use.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] while the CA issues certificates, or, without `force`, while its
    /// certificates are in use.
    pub async fn retire_authority(
        &self,
        pin: &str,
        force: bool,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let delete = self.request(Method::DELETE, &["authorities", pin]);
        let delete = delete.query(&[("force", force)]);
        self.answer(with_key(delete, key)).await
    }
}
