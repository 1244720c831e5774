//! Quorum: members, membership changes, backups.

use crate::{Client, ClientError, projects::with_key};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use lattice_api::quorum::{AddMemberRequest, QuorumStep, QuorumView, StepDownRequest};
use reqwest::Method;

impl Client {
    /// Returns the members, the leader, and the progress of each member. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn quorum(&self) -> Result<QuorumView, ClientError> {
        self.get(&["quorum"]).await
    }

    /// Performs one step of adding a member; repeat the call until it is done. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add_member(
        &self,
        id: u64,
        address: &str,
        key: Option<&str>,
    ) -> Result<QuorumStep, ClientError> {
        let address = address.to_owned();
        let post = self.request(Method::POST, &["quorum", "members"]);
        let post = post.json(&AddMemberRequest { id, address });
        self.answer(with_key(post, key)).await
    }

    /// Performs one step of removing a member; repeat the call until it is done. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`], without `force`, while a majority of the remaining members does
    /// not answer.
    pub async fn remove_member(
        &self,
        id: u64,
        reason: &str,
        force: bool,
        key: Option<&str>,
    ) -> Result<QuorumStep, ClientError> {
        let delete = self.request(Method::DELETE, &["quorum", "members", &id.to_string()]);
        let delete = delete
            .query(&[("reason", reason)])
            .query(&[("force", force)]);
        self.answer(with_key(delete, key)).await
    }

    /// Transfers leadership to another member. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn step_down(
        &self,
        to: Option<u64>,
        key: Option<&str>,
    ) -> Result<QuorumStep, ClientError> {
        let post = self.request(Method::POST, &["quorum", "step-down"]);
        self.answer(with_key(post.json(&StepDownRequest { to }), key))
            .await
    }

    /// Streams the bytes of a backup file. The file's own contents show whether it is complete. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn backup(
        &self,
        key: Option<&str>,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + Unpin + use<>, ClientError>
    {
        let post = self.request(Method::POST, &["quorum", "backup"]);
        let response = self.send(with_key(post, key)).await?;
        let client = self.clone();
        let pieces = response.bytes_stream();
        Ok(pieces.map_err(move |error| client.unreachable(error)))
    }
}
