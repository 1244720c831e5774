//! Public calls of a member: proposals, reads, status and watches.

mod attestation_check;

use crate::{
    certificates::issuer,
    member::Member,
    platform::Workers,
    proposals::{CommandReplies, Proposals},
    reads::Reads,
    segments,
    state_machine::{feed::FeedRead, replica::QueryFault},
};
use lattice_mesh::{Caller, HandlerFailed, ItemSender, Role, Router, WeakMesh};
use lattice_quorum_state::SegmentFault;
use lattice_quorum_types::{
    Command, Envelope, Refusal, Revision,
    membership::GetMemberStatus,
    view::{Answer, Query, WatchItem},
    wire::{Propose, Read, Unavailable, Watch},
};
use std::{sync::Arc, time::Duration};

/// Interval of [`WatchItem::Idle`] on a watch without events. A client takes a longer silence for a lost leader.
const IDLE_INTERVAL: Duration = Duration::from_millis(400);

/// State shared by the handlers.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) member: Arc<Member>,
    pub(crate) proposals: Proposals,
    pub(crate) reads: Reads,
    /// Endpoint for verifying attestations and calling other members. Weak, because the endpoint holds the handlers
    /// that hold this service.
    pub(crate) mesh: WeakMesh,
    /// Executor of blocking work: verification of attestations, and encoding of backups.
    pub(crate) workers: Workers,
}

impl Service {
    /// Adds the public calls.
    pub(crate) fn serve(&self, router: Router) -> Router {
        let (propose, read, status, watch) =
            (self.clone(), self.clone(), self.clone(), self.clone());
        router
            .rpc(move |caller, request: Propose| {
                let service = propose.clone();
                async move {
                    check_origin(&caller, &request.envelopes)?;
                    Ok(service.propose(request.envelopes).await)
                }
            })
            .rpc(move |_, request: Read| {
                let service = read.clone();
                async move {
                    Ok(match service.reads.barrier().await {
                        Ok(()) => service.answer(&request.query).await,
                        Err(unavailable) => Err(unavailable),
                    })
                }
            })
            .rpc(move |_, _: GetMemberStatus| {
                let service = status.clone();
                async move { Ok(service.member.status()) }
            })
            .stream(move |_, request: Watch, items| {
                let service = watch.clone();
                async move { service.watch(request.since, items).await }
            })
    }

    /// Answers from the applied state. A damaged segment is replaced by another member's copy.
    async fn answer(&self, query: &Query) -> Result<Answer, Unavailable> {
        let mut last = None;
        loop {
            let fault = match self.member.replica.answer(query).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            tracing::error!(%fault, "records unreadable");
            let unreadable = |reason: String| Unavailable::Unreadable { reason };
            match &fault {
                QueryFault::Segment(SegmentFault { id, .. }) if last != Some(*id) => {
                    let mesh = self.mesh.upgrade().ok_or(Unavailable::NoMajority)?;
                    let repaired = segments::repair(&self.member, &mesh, id).await;
                    repaired.map_err(|error| unreadable(format!("{fault}; {error}")))?;
                    last = Some(*id);
                }
                fault => return Err(unreadable(fault.to_string())),
            }
        }
    }

    /// Proposes the commands that have no attestations or only valid ones, and refuses the others.
    async fn propose(&self, envelopes: Vec<Envelope>) -> Result<CommandReplies, Unavailable> {
        let (member, proposals) = (&self.member, &self.proposals);
        if !envelopes.iter().any(attestation_check::has_attestations) {
            return proposals.submit(member, envelopes).await;
        }
        // Only the leader verifies, and only verified commands continue.
        if member.leading_term().is_none() {
            return Err(member.not_leader());
        }
        let mesh = self.mesh.upgrade().ok_or(Unavailable::NoMajority)?;
        let clock = member.clock.now();
        // Two signatures per node: a thousand nodes take a tenth of a second, which must not delay heartbeats.
        let verify = move |mut envelope: Envelope| {
            attestation_check::verify(&mesh, &mut envelope, clock).map(|()| envelope)
        };
        let verified = self.workers.run(move || {
            let verified = envelopes.into_iter().map(verify);
            verified.collect::<Vec<Result<Envelope, Refusal>>>()
        });
        let verified = verified.await.map_err(|_| Unavailable::NoMajority)?;
        let mut good = Vec::new();
        let refused: Vec<Option<Refusal>> = verified
            .into_iter()
            .map(|verified| verified.map(|envelope| good.push(envelope)).err())
            .collect();
        let replies = match good.is_empty() {
            // A refusal is an answer: only a confirmed leader may give it. Another member may have an older trust
            // bundle.
            true => self.reads.barrier().await.map(|()| Vec::new()),
            false => proposals.submit(member, good).await,
        };
        let mut replies = replies?.into_iter();
        let answers = refused.into_iter().map(|refused| match refused {
            Some(refusal) => Ok(Err(refusal)),
            None => replies.next().ok_or(Unavailable::OutcomeUnknown),
        });
        answers.collect()
    }

    /// Sends the events after `since` for as long as this member leads. A follower would be late: it receives a commit
    /// only with the leader's next message.
    async fn watch(
        &self,
        since: Revision,
        items: ItemSender<WatchItem>,
    ) -> Result<(), HandlerFailed> {
        let member = &self.member;
        self.reads.barrier().await.map_err(HandlerFailed::new)?;
        let (feed, mut at) = (member.replica.feed(), since);
        if at > member.replica.revision() {
            // The revision is from another or a lost history: start over.
            let oldest = member.replica.revision();
            return items.send(&WatchItem::Compacted { oldest }).await;
        }
        let mut newest = feed.newest();
        loop {
            if !member.is_confirmed_leader() {
                return Err(HandlerFailed::new(member.not_leader()));
            }
            let published = *newest.borrow_and_update();
            match feed.after(at) {
                FeedRead::Events(events, upto) => {
                    items.send(&WatchItem::Events(events)).await?;
                    at = upto;
                }
                FeedRead::Compacted(oldest) => {
                    return items.send(&WatchItem::Compacted { oldest }).await;
                }
                FeedRead::Nothing => {
                    at = at.max(published);
                    let changed = tokio::time::timeout(IDLE_INTERVAL, newest.changed()).await;
                    if changed.is_err() {
                        items.send(&WatchItem::Idle(at)).await?;
                    }
                }
            }
        }
    }
}

/// Checks that the caller may propose these commands. A quorum member may propose only enrolments, renewals and
/// authorities, and only as principal [`issuer::MEMBERS_PRINCIPAL`], because the member that signs a certificate sets
/// its issue time. Other callers may propose all commands except enrolments and renewals, and only as other principals.
/// No caller may propose quorum notes or signed audit heads.
fn check_origin(caller: &Caller, envelopes: &[Envelope]) -> Result<(), HandlerFailed> {
    let is_member = caller.identity.role() == Role::Quorum;
    let may = |envelope: &Envelope| match envelope.command {
        Command::ConsumeToken { .. } | Command::RenewCertificate { .. } => is_member,
        Command::AddAuthority { .. } => true,
        // The leader records these itself when it performs the action.
        Command::NoteQuorum { .. } | Command::SignAudit { .. } => false,
        _ => !is_member,
    };
    let in_own_name =
        |envelope: &Envelope| (envelope.principal.name == issuer::MEMBERS_PRINCIPAL) == is_member;
    if envelopes.iter().all(|e| may(e) && in_own_name(e)) {
        return Ok(());
    }
    tracing::warn!(peer = %caller.identity, "refused: proposal not permitted to this service");
    Err(HandlerFailed::new(
        "proposal not permitted: quorum members may propose only enrolments, renewals and \
         authorities, as principal service:quorum; other services may not propose enrolments or \
         renewals, and may not use this principal",
    ))
}
