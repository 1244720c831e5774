//! Receiving side of Raft over the mesh.

use crate::{
    leadership::{election_gate, handover, vote_guard},
    member::Member,
    raft::{
        rpc::{
            AppendEntries, MayCampaign, RequestVote, SendSnapshot, SnapshotAnswer, TakeLeadership,
        },
        types::{Snapshot, SnapshotMeta, Vote},
    },
    segments,
};
use bytes::{Bytes, BytesMut};
use lattice_mesh::{Caller, HandlerFailed, Router, WeakMesh};
use openraft::raft::AppendEntriesResponse;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Snapshot that is being received.
struct IncomingSnapshot {
    vote: Vote,
    meta: SnapshotMeta,
    bytes: BytesMut,
    /// Complete bytes, and the length and digest that the sender reported; set once the last piece has arrived.
    complete: Option<(Bytes, (u64, [u8; 32]))>,
}

/// Outcome of a received piece.
enum PieceOutcome {
    More,
    Restart,
    Complete(Bytes),
}

/// Adds the Raft calls.
pub(crate) fn serve(router: Router, member: &Arc<Member>, mesh: &WeakMesh) -> Router {
    let incoming: Arc<Mutex<Option<IncomingSnapshot>>> = Arc::default();
    let (mesh, sent) = (mesh.clone(), mesh.clone());
    let (appends, votes, snapshots, silence, successor) = (
        member.clone(),
        member.clone(),
        member.clone(),
        member.clone(),
        member.clone(),
    );
    segments::serve(router, member)
        .rpc(move |caller, request: AppendEntries| {
            let (member, mesh) = (appends.clone(), sent.clone());
            async move {
                let AppendEntries(incarnation, request) = request;
                check_own_vote(&caller, &request.vote)?;
                member
                    .incarnation
                    .admit(caller.identity.id(), incarnation)?;
                let (term, committed) = (request.vote.leader_id().term, request.leader_commit);
                vote_guard::check(&member, &mesh, term, committed).await?;
                let reply = member.raft.append_entries(request).await;
                let reply = reply.map_err(HandlerFailed::new)?;
                if !matches!(reply, AppendEntriesResponse::HigherVote(_)) {
                    member.leader_contact.record();
                }
                if reply.is_success() {
                    member.caught_up_to(committed);
                }
                Ok(reply)
            }
        })
        .rpc(move |caller, request: RequestVote| {
            let member = votes.clone();
            async move {
                let RequestVote(incarnation, request) = request;
                check_own_vote(&caller, &request.vote)?;
                if member.must_abstain(request.last_log_id) {
                    return Err(HandlerFailed::new(
                        "this member started without a log and abstains",
                    ));
                }
                member
                    .incarnation
                    .admit(caller.identity.id(), incarnation)?;
                member.raft.vote(request).await.map_err(HandlerFailed::new)
            }
        })
        .rpc(move |caller, request: SendSnapshot| {
            let (member, incoming) = (snapshots.clone(), incoming.clone());
            let mesh = mesh.clone();
            async move {
                check_own_vote(&caller, &request.vote)?;
                let incarnation = request.incarnation;
                member
                    .incarnation
                    .admit(caller.identity.id(), incarnation)?;
                let (term, covers) = (request.vote.leader_id().term, request.meta.last_log_id);
                vote_guard::check(&member, &mesh, term, covers).await?;
                take_piece(&member, &mesh, caller.identity.id(), &incoming, request).await
            }
        })
        .rpc(move |caller, request: MayCampaign| {
            let member = silence.clone();
            async move {
                member.contacts.restart_transmit_interval();
                let asker = caller.identity.id();
                member
                    .incarnation
                    .check_caller(asker, request.incarnation)?;
                Ok(election_gate::may_campaign(&member, request.last_log_id))
            }
        })
        .rpc(move |caller, request: TakeLeadership| {
            let member = successor.clone();
            async move {
                let leader = caller.identity.id();
                member
                    .incarnation
                    .check_caller(leader, request.incarnation)?;
                Ok(handover::take_over(&member, leader, &request).await)
            }
        })
}

/// Checks that the vote is the caller's own: the certificate must be that of the leader or candidate.
fn check_own_vote(caller: &Caller, vote: &Vote) -> Result<(), HandlerFailed> {
    let voter = vote.leader_id().voted_for().map(|id| id.to_string());
    if voter.as_deref() == Some(caller.identity.id()) {
        return Ok(());
    }
    tracing::warn!(peer = %caller.identity, %vote, "refused: request in another member's name");
    Err(HandlerFailed::new(
        "the vote in the request belongs to another member than the caller",
    ))
}

/// Appends a piece to the received ones.
fn gather(slot: &mut Option<IncomingSnapshot>, piece: &SendSnapshot) -> PieceOutcome {
    let (vote, meta) = (piece.vote, &piece.meta);
    let same = slot.as_mut().filter(|i| i.vote == vote && i.meta == *meta);
    // The sender repeats the last piece while this member fetches missing segments.
    if let Some((bytes, said)) = same.and_then(|i| i.complete.clone())
        && piece.whole == Some(said)
    {
        return PieceOutcome::Complete(bytes);
    }
    if piece.offset == 0 {
        *slot = Some(IncomingSnapshot {
            vote,
            meta: meta.clone(),
            bytes: BytesMut::new(),
            complete: None,
        });
    }
    let follows = |i: &&mut IncomingSnapshot| {
        i.vote == vote && i.meta == *meta && i.bytes.len() as u64 == piece.offset
    };
    let Some(open) = slot.as_mut().filter(follows) else {
        return PieceOutcome::Restart;
    };
    open.bytes.extend_from_slice(&piece.data);
    let Some((length, digest)) = piece.whole else {
        return PieceOutcome::More;
    };
    let bytes = std::mem::take(&mut open.bytes).freeze();
    if bytes.len() as u64 != length || *blake3::hash(&bytes).as_bytes() != digest {
        *slot = None;
        return PieceOutcome::Restart;
    }
    open.complete = Some((bytes.clone(), (length, digest)));
    PieceOutcome::Complete(bytes)
}

async fn take_piece(
    member: &Member,
    mesh: &WeakMesh,
    sender: &str,
    incoming: &Mutex<Option<IncomingSnapshot>>,
    piece: SendSnapshot,
) -> Result<SnapshotAnswer, HandlerFailed> {
    let taken = {
        let mut slot = incoming.lock().await;
        gather(&mut slot, &piece)
    };
    let bytes = match taken {
        PieceOutcome::More => return Ok(SnapshotAnswer::More),
        PieceOutcome::Restart => return Ok(SnapshotAnswer::Again),
        PieceOutcome::Complete(bytes) => bytes,
    };
    let (vote, meta) = (piece.vote, piece.meta);
    // A snapshot is installed only when every segment that it names is present.
    let mesh = mesh
        .upgrade()
        .ok_or_else(|| HandlerFailed::new("this member is stopping"))?;
    if !segments::fetch_missing(member, &mesh, sender, &bytes).await? {
        member.leader_contact.record();
        return Ok(SnapshotAnswer::Fetching);
    }
    *incoming.lock().await = None;
    tracing::info!(bytes = bytes.len(), snapshot = %meta.snapshot_id, "snapshot received");
    let kept = member.replica.store_received_snapshot(&meta, &bytes).await;
    kept.map_err(HandlerFailed::new)?;
    let snapshot = Snapshot {
        meta,
        snapshot: Box::new(bytes),
    };
    // A task of its own: if the caller gives up, the installation must still complete.
    let raft = member.raft.clone();
    let installed =
        tokio::spawn(async move { raft.install_full_snapshot(vote, snapshot).await }).await;
    let response = installed
        .map_err(HandlerFailed::new)?
        .map_err(HandlerFailed::new)?;
    member.leader_contact.record();
    Ok(SnapshotAnswer::Done(response))
}
