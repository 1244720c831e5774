//! Implementation of [`Store`] on the quorum, over the mesh.

use crate::store::Store;
use futures::{StreamExt, stream::BoxStream};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision, VoterId,
    audit::AuditHead,
    view::{Answer, Query, WatchItem},
    wire::Unavailable,
};

#[async_trait::async_trait]
impl Store for QuorumClient {
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        self.propose_all(envelopes)
            .await
            .map_err(|e| unavailable(&e))
    }

    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        QuorumClient::read(self, query)
            .await
            .map_err(|e| unavailable(&e))
    }

    async fn sign_audit(&self) -> Result<Result<AuditHead, String>, Unavailable> {
        QuorumClient::sign_audit(self)
            .await
            .map_err(|e| unavailable(&e))
    }

    fn watch(&self, since: Revision) -> BoxStream<'static, WatchItem> {
        QuorumClient::watch(self, since).boxed()
    }

    fn quorum(&self) -> Option<&QuorumClient> {
        Some(self)
    }

    async fn members(&self) -> Vec<VoterId> {
        let statuses = self.status().await.into_iter();
        let statuses = statuses.filter_map(|(_, status)| status.ok());
        let newest = statuses.max_by_key(|status| status.applied_index);
        let members = newest.map(|status| status.members).unwrap_or_default();
        members.into_iter().map(|(id, _)| id).collect()
    }
}

/// Maps a client error to the cases that callers distinguish. The error text goes to the log.
fn unavailable(error: &ClientError) -> Unavailable {
    tracing::warn!(%error, "quorum request failed");
    match error {
        ClientError::OutcomeUnknown { .. } | ClientError::OutcomeUnknownWithoutKey { .. } => {
            Unavailable::OutcomeUnknown
        }
        ClientError::Rejected(error) => Unavailable::Rejected {
            reason: error.to_string(),
        },
        ClientError::NoMembers | ClientError::Unavailable { .. } | ClientError::Closed => {
            Unavailable::NoMajority
        }
    }
}
