//! The quorum itself: its members, changes of them, backups.

use crate::{
    ClientError, QuorumClient,
    attempt::{Attempt, Pause, Waits, attempt},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use lattice_mesh::CallError;
use lattice_quorum_types::{
    command::Principal,
    membership::{Change, ChangeQuorum, ChangeRefused, GetBackup, GetQuorum, Progress, QuorumView},
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a member may take to ask the others.
const VIEW_TIMEOUT: Duration = Duration::from_millis(2500);
/// How long a member may take to make a backup before its first byte comes.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(60);

impl QuorumClient {
    /// All members in one table, as the leader sees them, or any member when there is none.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn quorum(&self) -> Result<QuorumView, ClientError> {
        let started = Instant::now();
        let leader = self.members.target().await;
        let mut whom = self.members.addrs();
        // The leader knows when it heard from whom; the others are asked where it is silent.
        whom.sort_by_key(|addr| Some(*addr) != leader);
        let mut reason = "no member is known".to_owned();
        for addr in whom {
            match self.members.peer(addr).call(&GetQuorum, VIEW_TIMEOUT).await {
                Ok(view) => return Ok(view),
                Err(error) => reason = format!("{addr}: {error}"),
            }
        }
        let after = started.elapsed();
        Err(ClientError::Unavailable { after, reason })
    }

    /// One step of a change of the members, or of who leads. Repeat it until it is done: what was
    /// done already is not done twice.
    ///
    /// # Errors
    /// When no leader answered within [`crate::ClientConfig::deadline`].
    pub async fn change_quorum(
        &self,
        by: Principal,
        key: String,
        change: Change,
    ) -> Result<Result<Progress, ChangeRefused>, ClientError> {
        let started = Instant::now();
        let until = started + self.config.deadline;
        let request = ChangeQuorum { by, key, change };
        let mut waits = Waits::new(&self.config);
        loop {
            let addr = self.members.target().await.ok_or(ClientError::NoMembers)?;
            let (reason, pause) =
                match attempt(&self.members, &self.config, addr, &request, until).await {
                    Attempt::Answer(answer) => return Ok(answer),
                    Attempt::Rejected(error) => return Err(ClientError::Rejected(error)),
                    Attempt::NotDone { reason, pause } => (reason, pause),
                    // A step that was done is found done.
                    Attempt::Unknown { reason } => (reason, Pause::Yes),
                };
            waits.wait(pause, until).await;
            if Instant::now() >= until {
                let after = started.elapsed();
                return Err(ClientError::Unavailable { after, reason });
            }
        }
    }

    /// A backup, as the bytes of a file come. It holds everything that was acknowledged before the
    /// call. Where the stream ends early, the file is not whole, and says so itself.
    ///
    /// # Errors
    /// When no leader makes one within [`crate::ClientConfig::deadline`].
    pub async fn backup(
        &self,
        by: Principal,
        key: String,
    ) -> Result<BoxStream<'static, Result<Bytes, CallError>>, ClientError> {
        let started = Instant::now();
        let until = started + self.config.deadline;
        let request = GetBackup { by, key };
        let mut waits = Waits::new(&self.config);
        loop {
            let addr = self.members.target().await.ok_or(ClientError::NoMembers)?;
            let peer = self.members.peer(addr);
            // Whether it makes one shows with the first bytes.
            let begin = async {
                let mut items = peer.open(&request).await?;
                let first = items.next().await.transpose()?;
                Ok::<_, CallError>(first.map(|first| (first, items)))
            };
            let reason = match timeout(BACKUP_TIMEOUT, begin).await {
                Ok(Ok(Some((first, rest)))) => {
                    let first = futures::stream::once(async { Ok(first) });
                    return Ok(first.chain(rest).boxed());
                }
                Ok(Ok(None)) => "it sent nothing".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it does not answer".to_owned(),
            };
            self.members.doubt(addr);
            waits.wait(Pause::Yes, until).await;
            if Instant::now() >= until {
                let after = started.elapsed();
                let reason = format!("{addr}: {reason}");
                return Err(ClientError::Unavailable { after, reason });
            }
        }
    }
}
