//! Proposals: grouping of concurrent commands into few requests.
//!
//! Callers that propose while a request is in progress share the next request. Each caller receives its own results.

use crate::{
    ClientConfig, ClientError,
    attempt::{Attempt, Backoff, Pause, attempt},
    members::Members,
};
use lattice_mesh::CallError;
use lattice_quorum_types::{Applied, Envelope, Refusal, size, wire::Propose};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::yield_now,
    time::{Instant, timeout},
};

/// Results of a proposal: one for each envelope, in order.
pub(crate) type ProposalReplies = Vec<Result<Applied, Refusal>>;

/// Largest number of commands in one request.
pub(crate) const MAX_COMMANDS: usize = 512;
/// Largest size of the commands in one request, bytes, unless a single caller proposes more. Members accept 8 MiB
/// (`wire::MAX_REQUEST_BYTES`).
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Longest time for which the next request collects proposals while another is in progress: several times the duration
/// of a write.
const GATHER_TIMEOUT: Duration = Duration::from_millis(50);

/// Envelopes of one caller.
pub(crate) struct PendingProposal {
    pub(crate) envelopes: Vec<Envelope>,
    pub(crate) done: oneshot::Sender<Result<ProposalReplies, ClientError>>,
    pub(crate) started: Instant,
    pub(crate) until: Instant,
    /// Error of the last attempt that may have committed the commands.
    pub(crate) uncertain_reason: Option<String>,
}

impl PendingProposal {
    fn encoded_bytes(&self) -> usize {
        self.envelopes.iter().map(size::encoded_bytes).sum()
    }
    fn has_keys(&self) -> bool {
        self.envelopes.iter().all(|envelope| envelope.key.is_some())
    }
    fn fail(self, error: ClientError) {
        let _ = self.done.send(Err(error));
    }
    fn expire(self, reason: &str) {
        let after = self.started.elapsed();
        let reason = reason.to_owned();
        match self.uncertain_reason.clone() {
            Some(maybe) => self.fail(ClientError::OutcomeUnknown { reason: maybe }),
            None => self.fail(ClientError::Unavailable { after, reason }),
        }
    }
}

/// Groups waiting jobs into requests until all senders are gone.
pub(crate) async fn run(
    members: Arc<Members>,
    config: Arc<ClientConfig>,
    mut queue: mpsc::Receiver<PendingProposal>,
) {
    let in_flight = Arc::new(Semaphore::new(config.in_flight.max(1)));
    let mut held: Option<PendingProposal> = None;
    let mut under_way: Option<oneshot::Receiver<()>> = None;
    loop {
        let Ok(permit) = in_flight.clone().acquire_owned().await else {
            return;
        };
        let first = match held.take() {
            Some(job) => job,
            None => match queue.recv().await {
                Some(job) => job,
                None => return,
            },
        };
        // One large request costs all members less than two requests of half the size. The timeout bounds the delay by
        // a slow request.
        if let Some(answered) = under_way.take() {
            let _ = timeout(GATHER_TIMEOUT, answered).await;
        }
        gather(&queue).await;
        let mut commands = first.envelopes.len();
        let mut bytes = first.encoded_bytes();
        let mut group = vec![first];
        while let Ok(job) = queue.try_recv() {
            commands += job.envelopes.len();
            bytes = bytes.saturating_add(job.encoded_bytes());
            if commands > MAX_COMMANDS || bytes > MAX_BYTES {
                held = Some(job);
                break;
            }
            group.push(job);
        }
        let (members, config) = (members.clone(), config.clone());
        let (answered, waiting) = oneshot::channel();
        under_way = Some(waiting);
        tokio::spawn(async move {
            deliver(&members, &config, group).await;
            drop((permit, answered));
        });
    }
}

/// Collects further jobs before the request is closed: callers that were just answered may propose again. Continues
/// while more jobs arrive.
async fn gather(queue: &mpsc::Receiver<PendingProposal>) {
    let mut waiting = usize::MAX;
    while waiting != queue.len() && queue.len() < MAX_COMMANDS {
        waiting = queue.len();
        yield_now().await;
    }
}

/// Repeats attempts until every job of the group is answered, has failed or is past its deadline.
async fn deliver(members: &Members, config: &ClientConfig, mut jobs: Vec<PendingProposal>) {
    let mut waits = Backoff::new(config);
    let mut reason = "no request was sent yet".to_owned();
    loop {
        let now = Instant::now();
        let (live, late): (Vec<PendingProposal>, Vec<PendingProposal>) = jobs
            .into_iter()
            .filter(|job| !job.done.is_closed())
            .partition(|job| job.until > now);
        late.into_iter().for_each(|job| job.expire(&reason));
        jobs = live;
        let Some(until) = jobs.iter().map(|job| job.until).max() else {
            return;
        };
        let Some(addr) = members.target().await else {
            return jobs
                .into_iter()
                .for_each(|job| job.fail(ClientError::NoMembers));
        };
        let envelopes = jobs
            .iter()
            .flat_map(|job| &job.envelopes)
            .cloned()
            .collect();
        let request = Propose { envelopes };
        match attempt(members, config, addr, &request, until).await {
            Attempt::Answer(replies) => return answer(jobs, replies),
            Attempt::Rejected(CallError::TooLarge { bytes, .. }) if jobs.len() > 1 => {
                // A length other than the request's is that of the reply, so the request was executed.
                let was_done = bytes != size::encoded_bytes(&request) as u64;
                return deliver_singly(members, config, jobs, was_done).await;
            }
            Attempt::Rejected(error) => {
                return jobs
                    .into_iter()
                    .for_each(|job| job.fail(ClientError::Rejected(error.clone())));
            }
            Attempt::NotExecuted { reason: why, pause } => {
                reason = why;
                waits.wait(pause, until).await;
            }
            Attempt::Unknown { reason: why } => {
                tracing::debug!(%addr, reason = %why, "proposal repeated under its key");
                let (keyed, bare): (Vec<PendingProposal>, Vec<PendingProposal>) =
                    jobs.into_iter().partition(PendingProposal::has_keys);
                for job in bare {
                    let reason = why.clone();
                    job.fail(ClientError::OutcomeUnknownWithoutKey { reason });
                }
                jobs = keyed;
                jobs.iter_mut()
                    .for_each(|job| job.uncertain_reason = Some(why.clone()));
                reason = why;
                waits.wait(Pause::Yes, until).await;
            }
        }
    }
}

/// Sends each job in a separate request, so that only a job that is too large fails.
async fn deliver_singly(
    members: &Members,
    config: &ClientConfig,
    jobs: Vec<PendingProposal>,
    was_done: bool,
) {
    tracing::warn!(
        jobs = jobs.len(),
        "proposal batch too large; sending commands one by one"
    );
    let each = jobs.into_iter().filter_map(|job| {
        if was_done && !job.has_keys() {
            let reason = "the reply is too large".to_owned();
            job.fail(ClientError::OutcomeUnknownWithoutKey { reason });
            return None;
        }
        Some(Box::pin(deliver(members, config, vec![job])))
    });
    futures::future::join_all(each.collect::<Vec<_>>()).await;
}

/// Sends each job its part of the replies.
fn answer(jobs: Vec<PendingProposal>, replies: ProposalReplies) {
    let mut replies = replies.into_iter();
    for job in jobs {
        let part: ProposalReplies = replies.by_ref().take(job.envelopes.len()).collect();
        let answer = if part.len() == job.envelopes.len() {
            Ok(part)
        } else {
            let reason = "the member returned fewer results than commands".to_owned();
            Err(match job.has_keys() {
                true => ClientError::OutcomeUnknown { reason },
                false => ClientError::OutcomeUnknownWithoutKey { reason },
            })
        };
        let _ = job.done.send(answer);
    }
}
