//! What schedulers were told and what they decided.

use crate::{Client, ClientError};
use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use reqwest::Method;

impl Client {
    /// Everything that the control's schedulers were told and what they decided, a line of JSON each, from the
    /// moment `since` on (a time, a date, or how long ago) or from as long ago as is kept. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn decisions(
        &self,
        since: Option<&str>,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + Unpin + use<>, ClientError>
    {
        let mut get = self.request(Method::GET, &["decisions"]);
        if let Some(since) = since {
            get = get.query(&[("since", since)]);
        }
        let response = self.send(get).await?;
        let client = self.clone();
        let pieces = response.bytes_stream();
        Ok(pieces.map_err(move |error| client.unreachable(error)))
    }
}
