//! The replicated state as control uses it. One implementation speaks to the quorum over the
//! mesh; tests may put the state machine itself behind it. Nothing here judges.

use futures::stream::BoxStream;
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision, VoterId,
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

    /// Who replicates it, as whoever of them answers says; empty when nobody does, or it is no
    /// quorum at all.
    async fn members(&self) -> Vec<VoterId> {
        Vec::new()
    }
}
