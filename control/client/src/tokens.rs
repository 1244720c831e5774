//! Join tokens.

use crate::{Client, ClientError, Page, projects::with_key};
use lattice_api::{
    project::Changed,
    token::{TokenCreated, TokenRequest, TokenView},
};
use reqwest::Method;

impl Client {
    /// A join token, whose text is told this once. For administrators.
    ///
    /// A repeat makes another token: nobody keeps the text of the first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_token(&self, request: &TokenRequest) -> Result<TokenCreated, ClientError> {
        self.post(&["tokens"], request).await
    }

    /// Join tokens that can still be used. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tokens(&self) -> Result<Vec<TokenView>, ClientError> {
        let page: Page<TokenView> = self.get(&["tokens"]).await?;
        Ok(page.items)
    }

    /// Withdraws a token; `id` is the beginning of its hash, as lists show it. Who enrolled with it
    /// stays.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_token(&self, id: &str, key: Option<&str>) -> Result<Changed, ClientError> {
        let delete = self.request(Method::DELETE, &["tokens", id]);
        self.answer(with_key(delete, key)).await
    }
}
