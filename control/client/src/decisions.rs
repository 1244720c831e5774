//! Decision log of the schedulers: inputs and decisions.

use crate::{Client, ClientError};
use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use reqwest::Method;

impl Client {
    /// Streams all inputs and decisions of the control's schedulers, one JSON object per line. The stream starts at
    /// `since` (a time, a date, or an age) with the complete inputs at that time, or at the oldest entry that is kept.
    /// For operators.
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
