//! Members' certificates, and the authorities that issue them.

use crate::{Client, ClientError, Page, projects::with_key};
use lattice_api::{
    authority::{AuthorityRequest, AuthorityView},
    certificate::{CertificateView, RevokeRequest},
    project::Changed,
};
use reqwest::Method;

impl Client {
    /// Every member that has a certificate, by role and name. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn certificates(&self) -> Result<Vec<CertificateView>, ClientError> {
        self.all(&["certificates"], &[]).await
    }

    /// A member's certificates issued until now hold no more. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_certificates(
        &self,
        role: &str,
        name: &str,
        reason: &str,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let reason = reason.to_owned();
        let post = self.request(Method::POST, &["certificates", role, name, "revoke"]);
        self.answer(with_key(post.json(&RevokeRequest { reason }), key))
            .await
    }

    /// Who vouches for the members. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn authorities(&self) -> Result<Vec<AuthorityView>, ClientError> {
        let page: Page<AuthorityView> = self.get(&["authorities"]).await?;
        Ok(page.items)
    }

    /// Trusts one more authority; `certificate` is PEM. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add_authority(
        &self,
        certificate: &str,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let certificate = certificate.to_owned();
        let post = self.request(Method::POST, &["authorities"]);
        self.answer(with_key(post.json(&AuthorityRequest { certificate }), key))
            .await
    }

    /// Lets a trusted authority issue; `pin` is its pin or the beginning of it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn promote_authority(
        &self,
        pin: &str,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let post = self.request(Method::POST, &["authorities", pin, "promote"]);
        self.answer(with_key(post, key)).await
    }

    /// Trusts an authority no more; with `force` even while certificates it issued are in use.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] while it issues or its certificates are in
    /// use.
    pub async fn retire_authority(
        &self,
        pin: &str,
        force: bool,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let delete = self.request(Method::DELETE, &["authorities", pin]);
        let delete = delete.query(&[("force", force)]);
        self.answer(with_key(delete, key)).await
    }
}
