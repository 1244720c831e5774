//! Linearizable reads: the leader makes sure it still leads and has applied what was committed
//! before the read came. Reads that wait at the same time share one round.

use crate::{member::Member, types::Raft};
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

/// A round that takes longer has no majority.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(2);

type Waiting = oneshot::Sender<Result<(), Unavailable>>;

/// Where readers wait. Clones share it.
#[derive(Clone)]
pub(crate) struct Reads(mpsc::UnboundedSender<Waiting>);

/// The readers that wait.
pub(crate) struct ReadQueue(mpsc::UnboundedReceiver<Waiting>);

/// Both ends.
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

/// Makes rounds for as long as there are readers.
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

/// One round.
pub(crate) async fn barrier(member: &Member) -> Result<(), Unavailable> {
    if member.leads().is_none() {
        return Err(member.not_leader());
    }
    if planted::is(Bug::ReadsUnchecked) {
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
