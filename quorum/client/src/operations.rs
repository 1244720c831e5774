//! The quorum itself: its members, changes of them, backups.

use crate::{
    ClientError, QuorumClient,
    attempt::{Attempt, Pause},
    members::Members,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use lattice_mesh::CallError;
use lattice_quorum_types::{
    command::Principal,
    membership::{Change, ChangeQuorum, ChangeRefused, GetBackup, GetQuorum, Progress, QuorumView},
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::{Instant, timeout};

/// How long a member may take to ask the others.
const VIEW_TIMEOUT: Duration = Duration::from_millis(2500);
/// How long a member may take to make a backup before its first byte comes.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a backup as they come.
type Backup = BoxStream<'static, Result<Bytes, CallError>>;

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
        self.ask(ChangeQuorum { by, key, change }).await
    }

    /// A backup, as the bytes of a file come. It holds everything that was acknowledged before the
    /// call. Where the stream ends early, the file is not whole, and says so itself.
    ///
    /// # Errors
    /// When no leader makes one within [`crate::ClientConfig::deadline`].
    pub async fn backup(&self, by: Principal, key: String) -> Result<Backup, ClientError> {
        let (members, request) = (&self.members, &GetBackup { by, key });
        self.at_leader(|addr, _| begin_backup(members, addr, request))
            .await
    }
}

/// Whether a member makes a backup shows with the first bytes.
async fn begin_backup(members: &Members, addr: SocketAddr, request: &GetBackup) -> Attempt<Backup> {
    let peer = members.peer(addr);
    let begin = async {
        let mut items = peer.open(request).await?;
        let first = items.next().await.transpose()?;
        Ok::<_, CallError>(first.map(|first| (first, items)))
    };
    let reason = match timeout(BACKUP_TIMEOUT, begin).await {
        Ok(Ok(Some((first, rest)))) => {
            let first = futures::stream::once(async { Ok(first) });
            return Attempt::Answer(first.chain(rest).boxed());
        }
        Ok(Ok(None)) => "it sent nothing".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it does not answer".to_owned(),
    };
    members.doubt(addr);
    let reason = format!("{addr}: {reason}");
    let pause = Pause::Yes;
    Attempt::NotDone { reason, pause }
}
