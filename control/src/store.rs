//! The replicated state as control uses it. One implementation speaks to the quorum over the
//! mesh; tests may put the state machine itself behind it. Nothing here judges.

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
    /// Proposes commands in order; each gets its own answer. Repeats what is safe to repeat within
    /// a bound of its own.
    ///
    /// # Errors
    /// [`Unavailable`] when nothing is known to have been committed, or the outcome is not known.
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable>;

    /// A linearizable read.
    ///
    /// # Errors
    /// [`Unavailable`] when no majority answers in time.
    async fn read(&self, query: Query) -> Result<Answer, Unavailable>;

    /// Everything after `since`. Reconnects by itself; ends only after
    /// [`WatchItem::Compacted`].
    fn watch(&self, since: Revision) -> BoxStream<'static, WatchItem>;

    /// Has the audit signed as far as it reaches, where that is not done yet. Returns where it ends
    /// then; the inner error says why it is not signed.
    ///
    /// # Errors
    /// [`Unavailable`] when no majority answers in time.
    async fn sign_audit(&self) -> Result<Result<AuditHead, String>, Unavailable> {
        Ok(Err(
            "there is no quorum whose members could sign it".to_owned()
        ))
    }

    /// The quorum itself, where there is one: its members, changes of them, backups.
    fn quorum(&self) -> Option<&QuorumClient> {
        None
    }

    /// Who replicates it, as whoever of them answers says; empty when nobody does, or it is no
    /// quorum at all.
    async fn members(&self) -> Vec<VoterId> {
        Vec::new()
    }
}
