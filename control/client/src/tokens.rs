//! Join tokens.

use crate::{Client, ClientError};
use lattice_api::token::{TokenCreated, TokenRequest};

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
}
