//! Operations on the quorum itself: status of the members, membership changes, backups.

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
    membership::{
        ChangeProgress, ChangeQuorum, ChangeRefusal, GetBackup, GetQuorum, MembershipChange,
        QuorumView,
    },
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::{Instant, timeout};

/// Timeout for a member to collect the status of all members.
const VIEW_TIMEOUT: Duration = Duration::from_millis(2500);
/// Timeout for the first byte of a backup.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a backup as they arrive.
type Backup = BoxStream<'static, Result<Bytes, CallError>>;

impl QuorumClient {
    /// Status of all members in one table, as collected by the leader, or by another member if no leader answers.
    ///
    /// # Errors
    /// If no member answers.
    pub async fn quorum(&self) -> Result<QuorumView, ClientError> {
        let started = Instant::now();
        let leader = self.members.target().await;
        let mut addrs = self.members.addrs();
        // The leader comes first: it holds the contact times of all members. The others follow in case the leader does
        // not answer.
        addrs.sort_by_key(|addr| Some(*addr) != leader);
        let mut reason = "no member is known".to_owned();
        for addr in addrs {
            match self.members.peer(addr).call(&GetQuorum, VIEW_TIMEOUT).await {
                Ok(view) => return Ok(view),
                Err(error) => reason = format!("{addr}: {error}"),
            }
        }
        let after = started.elapsed();
        Err(ClientError::Unavailable { after, reason })
    }

    /// Executes one step of a change of the members or the leader. The caller repeats the call until the change is
    /// done; completed steps are not repeated.
    ///
    /// # Errors
    /// As [`QuorumClient::read`].
    pub async fn change_quorum(
        &self,
        by: Principal,
        key: String,
        change: MembershipChange,
    ) -> Result<Result<ChangeProgress, ChangeRefusal>, ClientError> {
        self.send_to_leader(ChangeQuorum { by, key, change }).await
    }

    /// Requests a backup, and returns the bytes of its file as they arrive. The backup holds everything that was
    /// acknowledged before the call. If the stream ends early, verification of the file reports it as truncated.
    ///
    /// # Errors
    /// If no attempt that starts within [`crate::ClientConfig::deadline`] receives the first bytes, or no member is
    /// configured.
    pub async fn backup(&self, by: Principal, key: String) -> Result<Backup, ClientError> {
        let (members, request) = (&self.members, &GetBackup { by, key });
        self.retry_at_leader(|addr, _| begin_backup(members, addr, request))
            .await
    }
}

/// Begins a backup. The first bytes prove that the member makes one.
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
        Ok(Ok(None)) => "the member sent no data".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer before the timeout".to_owned(),
    };
    members.clear_leader(addr);
    let reason = format!("{addr}: {reason}");
    let pause = Pause::Yes;
    Attempt::NotExecuted { reason, pause }
}
