//! Replicated state as control uses it. One implementation calls the quorum over the mesh; tests may use the state
//! machine directly. This layer checks no commands.

use futures::stream::BoxStream;
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision, VoterId,
    audit::AuditHead,
    view::{Answer, Query, WatchItem},
    wire::Unavailable,
};

/// Proposals, linearizable reads, and the watch.
#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// Proposes commands in order; each command gets its own answer. Commands that are safe to repeat are retried for a
    /// bounded time.
    ///
    /// # Errors
    /// Returns [`Unavailable`] when no command is known to be committed, or the outcome is unknown.
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable>;

    /// Performs a linearizable read.
    ///
    /// # Errors
    /// Returns [`Unavailable`] when no majority answers in time.
    async fn read(&self, query: Query) -> Result<Answer, Unavailable>;

    /// Watches everything after `since`. Reconnects by itself; ends only after [`WatchItem::Compacted`].
    fn watch(&self, since: Revision) -> BoxStream<'static, WatchItem>;

    /// Signs the audit up to its present end, unless that is signed already. Returns the signed head; the inner error
    /// is the reason why the audit is not signed.
    ///
    /// # Errors
    /// Returns [`Unavailable`] when no majority answers in time.
    async fn sign_audit(&self) -> Result<Result<AuditHead, String>, Unavailable> {
        Ok(Err("no quorum: the audit cannot be signed".to_owned()))
    }

    /// The client of the quorum, where there is one: for membership, membership changes and backups.
    fn quorum(&self) -> Option<&QuorumClient> {
        None
    }

    /// Members that replicate the state, as the most up-to-date answering member reports them. Empty when no member
    /// answers, or the store is not a quorum.
    async fn members(&self) -> Vec<VoterId> {
        Vec::new()
    }
}
