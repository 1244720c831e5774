//! Discovery: a client for the cluster of a context file.

use crate::{
    Client, ClientError, Endpoint,
    context::{ContextError, ContextFile, find},
};
use std::path::Path;

impl From<ContextFile> for Endpoint {
    fn from(context: ContextFile) -> Self {
        Self {
            url: context.server,
            ca_pem: context.ca_pem,
            token: context.token.into(),
        }
    }
}

impl Client {
    /// Creates a client for the cluster that the `lattice` command would use: that of the context file, or of the
    /// search order of [`context`](crate::context).
    ///
    /// # Errors
    /// [`ClientError::Context`] if there is no usable context, and the errors of [`Client::new`].
    pub fn discover(context: Option<&Path>) -> Result<Self, ClientError> {
        let found = find(context)?.ok_or(ContextError::None)?;
        Self::new(found.into())
    }
}
