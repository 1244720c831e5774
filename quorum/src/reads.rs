//! Linearizable reads: the leader confirms that it still leads, and has applied every command that was committed before
//! the read arrived. Concurrent reads share one round.

use crate::{member::Member, raft::types::Raft};
use lattice_quorum_types::{
    planted::{self, Bug},
    wire::Unavailable,
};
use openraft::error::{CheckIsLeaderError, RaftError};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// Timeout of a round. Reads of a round that exceeds it fail with [`Unavailable::NoMajority`].
const BARRIER_TIMEOUT: Duration = Duration::from_secs(2);

type ReadReply = oneshot::Sender<Result<(), Unavailable>>;

/// Sending end of the read queue. Clones share one queue.
#[derive(Clone)]
pub(crate) struct Reads(mpsc::UnboundedSender<ReadReply>);

/// Receiving end of the read queue.
pub(crate) struct ReadQueue(mpsc::UnboundedReceiver<ReadReply>);

/// Creates both ends of the read queue.
pub(crate) fn channel() -> (Reads, ReadQueue) {
    let (queue, waiting) = mpsc::unbounded_channel();
    (Reads(queue), ReadQueue(waiting))
}

impl Reads {
    /// Returns when this member may answer from its applied state.
    pub(crate) async fn barrier(&self) -> Result<(), Unavailable> {
        let (done, waiting) = oneshot::channel();
        self.0.send(done).map_err(|_| Unavailable::NoMajority)?;
        waiting.await.unwrap_or(Err(Unavailable::NoMajority))
    }
}

/// Runs read barriers until the queue closes.
pub(crate) async fn run(member: Arc<Member>, mut queue: ReadQueue) {
    while let Some(first) = queue.0.recv().await {
        let mut waiting = vec![first];
        while let Ok(next) = queue.0.try_recv() {
            waiting.push(next);
        }
        let result = barrier(&member).await;
        for reader in waiting {
            let _ = reader.send(result.clone());
        }
    }
}

/// Runs one read barrier.
pub(crate) async fn barrier(member: &Member) -> Result<(), Unavailable> {
    if member.leading_term().is_none() {
        return Err(member.not_leader());
    }
    if planted::is_planted(Bug::ReadsUnchecked) {
        return Ok(());
    }
    let raft: &Raft = &member.raft;
    match timeout(BARRIER_TIMEOUT, raft.ensure_linearizable()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_)))) => {
            Err(member.not_leader())
        }
        Ok(Err(_)) | Err(_) => Err(Unavailable::NoMajority),
    }
}
