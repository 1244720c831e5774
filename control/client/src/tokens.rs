//! Join tokens.

use crate::{Client, ClientError, Page, projects::with_key};
use lattice_api::{
    project::ChangeResult,
    token::{TokenCreated, TokenRequest, TokenView},
};
use reqwest::Method;

impl Client {
    /// Creates a join token. Only this answer contains its text. For administrators.
    ///
    /// A repeated call creates another token: the server does not keep the text of the first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_token(&self, request: &TokenRequest) -> Result<TokenCreated, ClientError> {
        self.post(&["tokens"], request).await
    }

    /// Returns the join tokens that can still be used. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tokens(&self) -> Result<Vec<TokenView>, ClientError> {
        let page: Page<TokenView> = self.get(&["tokens"]).await?;
        Ok(page.items)
    }

    /// Revokes a token; `id` is the prefix of its hash, as lists show it. Daemons that enrolled with the token stay
    /// enrolled.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_token(
        &self,
        id: &str,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let delete = self.request(Method::DELETE, &["tokens", id]);
        self.answer(with_key(delete, key)).await
    }
}
