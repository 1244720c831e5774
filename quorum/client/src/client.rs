//! The client itself.

use crate::{
    ClientConfig, ClientError, Watching,
    attempt::{Attempt, Pause, Waits, attempt},
    members::{Addresses, Members},
    propose::{self, Job, MAX_COMMANDS, Replies},
};
use lattice_mesh::{CallError, Mesh, Rpc};
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision,
    audit::AuditHead,
    view::{Answer, MemberStatus, Query},
    weight,
    wire::{Read, SignAudit, Unavailable},
};
use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// How long a member may take to tell its status.
const STATUS_TIMEOUT: Duration = Duration::from_millis(1000);

/// Talks to the quorum. Clones are cheap and share connections, the presumed leader, and the
/// grouping of proposals.
///
/// It holds a clone of the [`Mesh`]; a handler in that mesh's router which owns a client keeps
/// the endpoint open until [`Mesh::shutdown`].
#[derive(Clone)]
pub struct QuorumClient {
    pub(crate) members: Arc<Members>,
    pub(crate) config: Arc<ClientConfig>,
    jobs: mpsc::Sender<Job>,
}

impl fmt::Debug for QuorumClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuorumClient({:?})", self.members.addrs())
    }
}

impl QuorumClient {
    /// A client of the members at `addrs`. Nothing is dialled before it is used. Must run inside
    /// a tokio runtime.
    pub fn new(mesh: Mesh, addrs: Vec<SocketAddr>) -> Self {
        Self::with_config(mesh, addrs, ClientConfig::default())
    }

    /// [`QuorumClient::new`] with other deadlines and bounds.
    pub fn with_config(mesh: Mesh, addrs: Vec<SocketAddr>, config: ClientConfig) -> Self {
        let (jobs, queue) = mpsc::channel(config.queue.max(1));
        let (members, config) = (Arc::new(Members::new(mesh, addrs)), Arc::new(config));
        tokio::spawn(propose::run(members.clone(), config.clone(), queue));
        tokio::spawn(Members::refresh(Arc::downgrade(&members)));
        Self {
            members,
            config,
            jobs,
        }
    }

    /// Proposes one command. A refusal is an answer, and comes as the inner `Err`. `events` of the
    /// reply is empty: they are for watchers.
    ///
    /// # Errors
    /// When no answer came within [`ClientConfig::deadline`], or the outcome is not known and the
    /// command has no idempotency key.
    pub async fn propose(
        &self,
        envelope: Envelope,
    ) -> Result<Result<Applied, Refusal>, ClientError> {
        let mut replies = self.submit(vec![envelope]).await?;
        let reason = "the member answered nothing".to_owned();
        replies.pop().ok_or(ClientError::OutcomeUnknown { reason })
    }

    /// Proposes commands in this order; each gets its own answer. A refused one does not stop
    /// those behind it.
    ///
    /// # Errors
    /// As [`QuorumClient::propose`]; then some of the commands may have been committed. With
    /// idempotency keys on all of them the same call can be repeated.
    pub async fn propose_all(&self, envelopes: Vec<Envelope>) -> Result<Replies, ClientError> {
        let mut replies = Vec::with_capacity(envelopes.len());
        let mut rest = envelopes.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while let Some(next) = rest.peek() {
                bytes += weight::on_wire(next);
                if !part.is_empty() && (part.len() >= MAX_COMMANDS || bytes > propose::MAX_BYTES) {
                    break;
                }
                part.extend(rest.next());
            }
            replies.extend(self.submit(part).await?);
        }
        Ok(replies)
    }

    async fn submit(&self, envelopes: Vec<Envelope>) -> Result<Replies, ClientError> {
        let (done, answer) = oneshot::channel();
        let started = Instant::now();
        let job = Job {
            envelopes,
            done,
            started,
            until: started + self.config.deadline,
            maybe: None,
        };
        let queued = tokio::time::timeout(self.config.deadline, self.jobs.send(job)).await;
        match queued {
            Ok(Ok(())) => answer.await.unwrap_or(Err(ClientError::Closed)),
            Ok(Err(_)) => Err(ClientError::Closed),
            Err(_) => Err(ClientError::Unavailable {
                after: self.config.deadline,
                reason: "too many proposals wait in this process".to_owned(),
            }),
        }
    }

    /// Reads what every command answered before this call has made so.
    ///
    /// # Errors
    /// When no leader answered within [`ClientConfig::deadline`].
    pub async fn read(&self, query: Query) -> Result<Answer, ClientError> {
        self.ask(Read { query }).await
    }

    /// Has the leader sign the audit as far as it reaches, where that is not done yet. Returns where
    /// it ends then; the inner error says why it is not signed.
    ///
    /// # Errors
    /// As [`QuorumClient::read`].
    pub async fn sign_audit(&self) -> Result<Result<AuditHead, String>, ClientError> {
        self.ask(SignAudit).await
    }

    /// Asks the leader, whoever that is, what may be asked twice.
    pub(crate) async fn ask<R, T>(&self, request: R) -> Result<T, ClientError>
    where
        R: Rpc<Reply = Result<T, Unavailable>>,
    {
        let (members, config, request) = (&self.members, &self.config, &request);
        self.at_leader(|addr, until| attempt(members, config, addr, request, until))
            .await
    }

    /// Tries at whoever leads, until there is an answer or the time is up. What may have been done is
    /// tried again: doing it twice is doing it once.
    pub(crate) async fn at_leader<T, F>(
        &self,
        attempt: impl Fn(SocketAddr, Instant) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Attempt<T>>,
    {
        let started = Instant::now();
        let until = started + self.config.deadline;
        let mut waits = Waits::new(&self.config);
        loop {
            let addr = self.members.target().await.ok_or(ClientError::NoMembers)?;
            let (reason, pause) = match attempt(addr, until).await {
                Attempt::Answer(answer) => return Ok(answer),
                Attempt::Rejected(error) => return Err(ClientError::Rejected(error)),
                Attempt::NotDone { reason, pause } => (reason, pause),
                Attempt::Unknown { reason } => (reason, Pause::Yes),
            };
            waits.wait(pause, until).await;
            if Instant::now() >= until {
                let after = started.elapsed();
                return Err(ClientError::Unavailable { after, reason });
            }
        }
    }

    /// Everything after revision `since`, as it is committed, for as long as the stream is held.
    ///
    /// It outlives leaders and connections: each event comes once, in order. It ends only after
    /// [`lattice_quorum_types::view::WatchItem::Compacted`]: then read
    /// [`Query::Hot`] and watch from its revision.
    pub fn watch(&self, since: Revision) -> Watching {
        Watching::start(self.members.clone(), self.config.clone(), since)
    }

    /// Each member's own account of itself, in the order of the addresses.
    pub async fn status(&self) -> Vec<(SocketAddr, Result<MemberStatus, CallError>)> {
        self.members.status(STATUS_TIMEOUT).await
    }

    /// Where the members are, as they say: for whoever else asks them, and must hold no mesh.
    pub fn addresses(&self) -> Addresses {
        self.members.told()
    }

    /// Where the members are, as they say, and the other addresses it was made with.
    pub fn members(&self) -> Vec<SocketAddr> {
        self.members.addrs()
    }
}
