//! Quorum client: proposals, reads, audit signatures, watches and member status.

use crate::{
    ClientConfig, ClientError, RunningWatch,
    attempt::{Attempt, Backoff, Pause, attempt},
    members::{Addresses, Members},
    propose::{self, MAX_COMMANDS, PendingProposal, ProposalReplies},
};
use lattice_mesh::{CallError, Mesh, Rpc};
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision,
    audit::AuditHead,
    membership::MemberStatus,
    size,
    view::{Answer, Query},
    wire::{Read, SignAudit, Unavailable},
};
use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// Timeout for the status of a member.
const STATUS_TIMEOUT: Duration = Duration::from_millis(1000);

/// Client of the quorum. Clones are cheap and share connections, the presumed leader, and the grouping of proposals.
///
/// The client holds a clone of the [`Mesh`]. A handler in that mesh's router which owns a client keeps the endpoint
/// open until [`Mesh::shutdown`].
#[derive(Clone)]
pub struct QuorumClient {
    pub(crate) members: Arc<Members>,
    pub(crate) config: Arc<ClientConfig>,
    jobs: mpsc::Sender<PendingProposal>,
}

impl fmt::Debug for QuorumClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuorumClient({:?})", self.members.addrs())
    }
}

impl QuorumClient {
    /// Creates a client of the members at `addrs`. It connects on first use. Must run inside a tokio runtime.
    pub fn new(mesh: Mesh, addrs: Vec<SocketAddr>) -> Self {
        Self::with_config(mesh, addrs, ClientConfig::default())
    }

    /// Creates a client as [`QuorumClient::new`] does, with other deadlines and bounds.
    pub fn with_config(mesh: Mesh, addrs: Vec<SocketAddr>, config: ClientConfig) -> Self {
        let (jobs, queue) = mpsc::channel(config.queue_capacity.max(1));
        let (members, config) = (Arc::new(Members::new(mesh, addrs)), Arc::new(config));
        tokio::spawn(propose::run(members.clone(), config.clone(), queue));
        tokio::spawn(Members::refresh(Arc::downgrade(&members)));
        Self {
            members,
            config,
            jobs,
        }
    }

    /// Proposes one command. A refusal is an answer, and is returned as the inner `Err`. `events` of the reply is
    /// empty: events are for watchers.
    ///
    /// # Errors
    /// If no answer arrived within [`ClientConfig::deadline`], or the outcome is not known and the command has no
    /// idempotency key. Also if no member is configured, a member rejected the request, or the client has shut down.
    pub async fn propose(
        &self,
        envelope: Envelope,
    ) -> Result<Result<Applied, Refusal>, ClientError> {
        let mut replies = self.submit(vec![envelope]).await?;
        let reason = "the member sent an empty answer".to_owned();
        replies.pop().ok_or(ClientError::OutcomeUnknown { reason })
    }

    /// Proposes commands in this order. Each has its own result, and a refusal does not stop the commands after it.
    ///
    /// # Errors
    /// As [`QuorumClient::propose`]. Some of the commands may then have been committed. If all have idempotency keys,
    /// the caller can repeat the call.
    pub async fn propose_all(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<ProposalReplies, ClientError> {
        let mut replies = Vec::with_capacity(envelopes.len());
        let mut rest = envelopes.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while let Some(next) = rest.peek() {
                bytes += size::encoded_bytes(next);
                if !part.is_empty() && (part.len() >= MAX_COMMANDS || bytes > propose::MAX_BYTES) {
                    break;
                }
                part.extend(rest.next());
            }
            replies.extend(self.submit(part).await?);
        }
        Ok(replies)
    }

    async fn submit(&self, envelopes: Vec<Envelope>) -> Result<ProposalReplies, ClientError> {
        let (done, answer) = oneshot::channel();
        let started = Instant::now();
        let job = PendingProposal {
            envelopes,
            done,
            started,
            until: started + self.config.deadline,
            uncertain_reason: None,
        };
        let queued = tokio::time::timeout(self.config.deadline, self.jobs.send(job)).await;
        match queued {
            Ok(Ok(())) => answer.await.unwrap_or(Err(ClientError::Closed)),
            Ok(Err(_)) => Err(ClientError::Closed),
            Err(_) => Err(ClientError::Unavailable {
                after: self.config.deadline,
                reason: "too many proposals are pending in this process".to_owned(),
            }),
        }
    }

    /// Reads the state with the effect of every command that was answered before this call.
    ///
    /// # Errors
    /// If no leader answered within [`ClientConfig::deadline`], no member is configured, or a member rejected the
    /// request.
    pub async fn read(&self, query: Query) -> Result<Answer, ClientError> {
        self.send_to_leader(Read { query }).await
    }

    /// Requests from the leader a signature of the audit up to its present end, unless the audit is signed already.
    /// Returns the audit head afterwards. The inner error is the reason why the head is not signed.
    ///
    /// # Errors
    /// As [`QuorumClient::read`].
    pub async fn sign_audit(&self) -> Result<Result<AuditHead, String>, ClientError> {
        self.send_to_leader(SignAudit).await
    }

    /// Sends a request to the present leader. The request must be safe to execute twice.
    pub(crate) async fn send_to_leader<R, T>(&self, request: R) -> Result<T, ClientError>
    where
        R: Rpc<Reply = Result<T, Unavailable>>,
    {
        let (members, config, request) = (&self.members, &self.config, &request);
        self.retry_at_leader(|addr, until| attempt(members, config, addr, request, until))
            .await
    }

    /// Attempts a request at the present leader until there is an answer or the deadline passes. A request that may
    /// have been executed is repeated, so it must be idempotent.
    pub(crate) async fn retry_at_leader<T, F>(
        &self,
        attempt: impl Fn(SocketAddr, Instant) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Attempt<T>>,
    {
        let started = Instant::now();
        let until = started + self.config.deadline;
        let mut waits = Backoff::new(&self.config);
        loop {
            let addr = self.members.target().await.ok_or(ClientError::NoMembers)?;
            let (reason, pause) = match attempt(addr, until).await {
                Attempt::Answer(answer) => return Ok(answer),
                Attempt::Rejected(error) => return Err(ClientError::Rejected(error)),
                Attempt::NotExecuted { reason, pause } => (reason, pause),
                Attempt::Unknown { reason } => (reason, Pause::Yes),
            };
            waits.wait(pause, until).await;
            if Instant::now() >= until {
                let after = started.elapsed();
                return Err(ClientError::Unavailable { after, reason });
            }
        }
    }

    /// Watches every event after revision `since`, as it is committed, for as long as the caller holds the stream.
    ///
    /// The stream continues over changes of leader and connection: each event arrives once, in order. It ends only
    /// after [`lattice_quorum_types::view::WatchItem::Compacted`], or if no member is configured. After `Compacted`,
    /// the caller reads [`Query::Hot`] and watches from its revision.
    pub fn watch(&self, since: Revision) -> RunningWatch {
        RunningWatch::start(self.members.clone(), self.config.clone(), since)
    }

    /// Status of each member, as the member itself reports it, in the order of the addresses.
    pub async fn status(&self) -> Vec<(SocketAddr, Result<MemberStatus, CallError>)> {
        self.members.status(STATUS_TIMEOUT).await
    }

    /// Addresses of the members, as the members report them, for callers that must not hold a mesh.
    pub fn addresses(&self) -> Addresses {
        self.members.reported_addresses()
    }

    /// Addresses of the members, as the members report them, followed by the other configured addresses.
    pub fn members(&self) -> Vec<SocketAddr> {
        self.members.addrs()
    }
}
