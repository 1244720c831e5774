//! Proposal batching: all waiting proposals become one log entry, one entry at a time. The next batch gathers while an
//! entry is in flight, so the cost in disk writes per proposal falls under load.

mod speculative_state;

use crate::{
    member::{Member, leading_term_of},
    proposals::speculative_state::SpeculativeState,
    raft::types::{Batch, Results, Types},
    reads,
};
use lattice_quorum_types::{Applied, Envelope, Refusal, Revision, wire::Unavailable};
use openraft::raft::ClientWriteResult;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::yield_now,
};

/// Maximum number of commands in one log entry, unless a single proposal has more.
const MAX_COMMANDS: usize = 1024;
/// Maximum size of a log entry, bytes, unless a single proposal is larger.
const MAX_BYTES: usize = 512 << 10;
/// Maximum number of waiting commands; above it, proposers receive [`Unavailable::Busy`].
const MAX_WAITING: usize = 16 * MAX_COMMANDS;
/// Timeout of a proposal.
const REPLY_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for which a batch may stay undecided after this member lost leadership. The next leader may still commit the
/// entry of the batch.
const UNDECIDED_TIMEOUT: Duration = Duration::from_secs(1);

/// One result per command.
pub(crate) type CommandReplies = Vec<Result<Applied, Refusal>>;

/// Receiver for the replies to one proposal.
type ReplyReceiver = oneshot::Receiver<Result<CommandReplies, Unavailable>>;

/// Commands of one proposer, kept in one batch.
pub(crate) struct Proposal {
    envelopes: Vec<Envelope>,
    bytes: usize,
    done: oneshot::Sender<Result<CommandReplies, Unavailable>>,
    _permit: OwnedSemaphorePermit,
}

/// Sending end of the proposal queue. Clones share one queue.
#[derive(Clone)]
pub(crate) struct Proposals {
    queue: mpsc::UnboundedSender<Proposal>,
    permits: Arc<Semaphore>,
}

/// Receiving end of the proposal queue.
pub(crate) type ProposalQueue = mpsc::UnboundedReceiver<Proposal>;

/// Creates both ends of the proposal queue.
pub(crate) fn channel() -> (Proposals, ProposalQueue) {
    let (queue, waiting) = mpsc::unbounded_channel();
    let places = Arc::new(Semaphore::new(MAX_WAITING));
    (
        Proposals {
            queue,
            permits: places,
        },
        waiting,
    )
}

impl Proposals {
    /// Proposes commands and waits for the results.
    pub(crate) async fn submit(
        &self,
        member: &Member,
        envelopes: Vec<Envelope>,
    ) -> Result<CommandReplies, Unavailable> {
        if member.leading_term().is_none() {
            return Err(member.not_leader());
        }
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        let waiting = self.enqueue(envelopes)?;
        match tokio::time::timeout(REPLY_TIMEOUT, waiting).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(_)) | Err(_) => Err(Unavailable::OutcomeUnknown),
        }
    }

    /// Enqueues a proposal, or returns [`Unavailable::Busy`] if the queue is full.
    fn enqueue(&self, envelopes: Vec<Envelope>) -> Result<ReplyReceiver, Unavailable> {
        let count = u32::try_from(envelopes.len()).unwrap_or(u32::MAX);
        let place = self.permits.clone().try_acquire_many_owned(count);
        let place = place.map_err(|_| Unavailable::Busy)?;
        let bytes = envelopes.iter().map(encoded_bytes).sum();
        let (done, waiting) = oneshot::channel();
        let proposal = Proposal {
            envelopes,
            bytes,
            done,
            _permit: place,
        };
        self.queue
            .send(proposal)
            .map_err(|_| Unavailable::NoMajority)?;
        Ok(waiting)
    }
}

fn encoded_bytes(envelope: &Envelope) -> usize {
    postcard::experimental::serialized_size(envelope).unwrap_or(MAX_BYTES)
}

/// Proposes batches until the queue closes.
pub(crate) async fn run(member: Arc<Member>, mut queue: ProposalQueue) {
    let mut ahead = None;
    let mut held = None;
    while let Some(batch) = gather(&mut queue, &mut held).await {
        // Proposals that arrive during a handover wait, and then receive the new leader's address.
        let _turn = member.handover.lock().await;
        propose(&member, &mut ahead, batch).await;
    }
}

/// Takes waiting proposals, up to the limits of one entry.
async fn gather(queue: &mut ProposalQueue, held: &mut Option<Proposal>) -> Option<Vec<Proposal>> {
    let first = match held.take() {
        Some(proposal) => proposal,
        None => queue.recv().await?,
    };
    // Lets proposers with a fresh answer submit again before the batch closes.
    yield_now().await;
    let (mut commands, mut bytes) = (first.envelopes.len(), first.bytes);
    let mut batch = vec![first];
    while let Ok(next) = queue.try_recv() {
        commands += next.envelopes.len();
        bytes += next.bytes;
        if commands > MAX_COMMANDS || bytes > MAX_BYTES {
            *held = Some(next);
            break;
        }
        batch.push(next);
    }
    // Proposals without a waiting proposer are dropped.
    batch.retain(|proposal| !proposal.done.is_closed());
    Some(batch)
}

/// Outcome of the validation of one command before it enters the log.
enum ValidatedCommand {
    /// The command enters the log and should create this revision.
    Admitted(Revision),
    Refused(Refusal),
}

async fn propose(member: &Member, ahead: &mut Option<SpeculativeState>, batch: Vec<Proposal>) {
    let Some(term) = member.leading_term() else {
        *ahead = None;
        return fail(batch, &member.not_leader());
    };
    if ahead.as_ref().is_none_or(|a| a.term() != term) {
        *ahead = None;
        match SpeculativeState::prepare(member, term).await {
            Ok(prepared) => *ahead = Some(prepared),
            Err(unavailable) => return fail(batch, &unavailable),
        }
    }
    let Some(foresight) = ahead.as_mut() else {
        return fail(batch, &Unavailable::NoMajority);
    };
    let clock = member.clock.now();
    let mut commands = Vec::new();
    let mut judged = Vec::with_capacity(batch.len());
    let mut waiting = Vec::with_capacity(batch.len());
    for proposal in batch {
        let mut of_proposal = Vec::with_capacity(proposal.envelopes.len());
        for mut envelope in proposal.envelopes {
            foresight.bound_time(&mut envelope, clock);
            of_proposal.push(match foresight.admit(&envelope) {
                Ok(revision) => {
                    commands.push(envelope);
                    ValidatedCommand::Admitted(revision)
                }
                Err(refusal) => ValidatedCommand::Refused(refusal),
            });
        }
        judged.push(of_proposal);
        waiting.push(proposal.done);
    }
    let results = if commands.is_empty() {
        // A refusal is an answer too: only a confirmed leader may give it.
        reads::barrier(member).await.map(|()| Vec::new())
    } else {
        write(member, term, commands).await
    };
    match results {
        Ok(results) => {
            if !answer(waiting, judged, results) {
                tracing::error!("leader's predicted state was wrong; rebuilding it");
                *ahead = None;
            }
        }
        Err(unavailable) => {
            *ahead = None;
            for done in waiting {
                let _ = done.send(Err(unavailable.clone()));
            }
        }
    }
}

fn fail(batch: Vec<Proposal>, unavailable: &Unavailable) {
    for proposal in batch {
        let _ = proposal.done.send(Err(unavailable.clone()));
    }
}

/// Writes one entry and waits until it is applied. Any failure after Raft received the entry leaves the outcome
/// unknown, as the entry may still be committed.
async fn write(
    member: &Member,
    term: u64,
    commands: Vec<Envelope>,
) -> Result<CommandReplies, Unavailable> {
    let expected = commands.len();
    let batch = Batch(Arc::new(commands));
    let writing = member.raft.client_write_ff(batch).await;
    let written = writing.map_err(|_| Unavailable::NoMajority)?;
    match outcome_of_write(member, term, written).await {
        Some(Ok(response)) => {
            let Results(results) = response.data;
            let same_term = response.log_id.leader_id.term == term;
            if same_term && results.len() == expected {
                Ok(results)
            } else {
                // Written in a later term, and thus validated on an outdated state.
                Err(Unavailable::OutcomeUnknown)
            }
        }
        Some(Err(_)) | None => Err(Unavailable::OutcomeUnknown),
    }
}

async fn outcome_of_write<E>(
    member: &Member,
    term: u64,
    written: impl Future<Output = Result<ClientWriteResult<Types>, E>>,
) -> Option<ClientWriteResult<Types>> {
    let lost = async {
        let mut metrics = member.metrics();
        let _ = metrics.wait_for(|m| leading_term_of(m) != Some(term)).await;
        tokio::time::sleep(UNDECIDED_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        result = written => result.ok(),
        () = lost => None,
    }
}

/// Returns the results to the proposers. Returns whether all results match the speculative state.
fn answer(
    waiting: Vec<oneshot::Sender<Result<CommandReplies, Unavailable>>>,
    judged: Vec<Vec<ValidatedCommand>>,
    results: CommandReplies,
) -> bool {
    let mut results = results.into_iter();
    let mut as_foreseen = true;
    for (done, of_proposal) in waiting.into_iter().zip(judged) {
        let replies: Option<CommandReplies> = of_proposal
            .into_iter()
            .map(|judged| match judged {
                ValidatedCommand::Refused(refusal) => Some(Err(refusal)),
                ValidatedCommand::Admitted(revision) => {
                    let result = results.next()?;
                    as_foreseen &= result.as_ref().is_ok_and(|a| a.revision == revision);
                    Some(result)
                }
            })
            .collect();
        let _ = done.send(replies.ok_or(Unavailable::OutcomeUnknown));
    }
    as_foreseen
}

#[cfg(test)]
mod tests;
