//! Segment transfer between members: fetches segments that a snapshot names and this member lacks, and replaces damaged
//! ones. The name contains the digest, so the segment can come from any member.

pub(crate) mod scrub;

use crate::{
    member::Member,
    platform::Workers,
    raft::rpc::{GetSegment, SegmentPiece},
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use lattice_mesh::{ExpectedIdentity, HandlerFailed, Mesh, Peer, Role, Router};
use lattice_quorum_state::{SegmentId, Segments, State};
use lattice_quorum_types::VoterId;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum number of bytes of a segment in one answer.
const PIECE_BYTES: usize = 2 << 20;
/// Timeout of one piece.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of segments fetched at the same time.
const MAX_CONCURRENT_FETCHES: usize = 4;
/// Time after which no further segment of a snapshot is requested, and the sender receives `SnapshotAnswer::Fetching`.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of a received segment, bytes. One large row may exceed the usual size of a segment: a row is at most as
/// large as a command, plus a few bytes per rank.
const MAX_SEGMENT_BYTES: u64 = 64 << 20;

/// Adds the call that serves segments.
pub(crate) fn serve(router: Router, member: &Arc<Member>) -> Router {
    let member = member.clone();
    router.rpc(move |caller, request: GetSegment| {
        let member = member.clone();
        async move {
            let asker = caller.identity.id();
            member
                .incarnation
                .check_caller(asker, request.incarnation)?;
            Ok(read_piece(&member, request).await)
        }
    })
}

async fn read_piece(member: &Member, request: GetSegment) -> Result<SegmentPiece, String> {
    let GetSegment { id, offset, .. } = request;
    let whole = read(member, id).await?;
    let from = usize::try_from(offset).map_or(whole.len(), |from| from.min(whole.len()));
    let to = (from + PIECE_BYTES).min(whole.len());
    Ok(SegmentPiece {
        data: whole.slice(from..to),
        bytes: whole.len() as u64,
    })
}

/// Reads and verifies a segment of this member.
pub(crate) async fn read(member: &Member, id: SegmentId) -> Result<Bytes, String> {
    let segments = member.replica.segments().clone();
    let read = move || match segments.read(&id) {
        Ok(bytes) if id.names(&bytes) => Ok(bytes),
        Ok(_) => Err(format!(
            "segment {id} is damaged: its digest does not match"
        )),
        Err(fault) => Err(fault.to_string()),
    };
    let found = workers(member).run(read).await;
    found.map_err(|error| error.to_string()).flatten()
}

fn workers(member: &Member) -> &Workers {
    member.replica.workers()
}

/// Fetches a segment from `peer`.
async fn fetch(member: &Member, peer: &Peer, id: SegmentId) -> Result<Bytes, String> {
    let mut got = BytesMut::new();
    loop {
        let request = GetSegment {
            incarnation: member.incarnation.current(),
            id,
            offset: got.len() as u64,
        };
        let reply = peer.call(&request, PIECE_TIMEOUT).await;
        let SegmentPiece { data, bytes } = reply.map_err(|error| error.to_string()).flatten()?;
        got.extend_from_slice(&data);
        let length = got.len() as u64;
        if length >= bytes || data.is_empty() || length > MAX_SEGMENT_BYTES {
            let got = got.freeze();
            return match id.names(&got) {
                true => Ok(got),
                false => Err(format!(
                    "received segment {id} is damaged: its digest does not match"
                )),
            };
        }
    }
}

/// Fetches a segment from `peer` and writes it to disk.
async fn fetch_to_disk(member: &Member, peer: &Peer, id: SegmentId) -> Result<(), String> {
    let bytes = fetch(member, peer, id).await?;
    let segments = member.replica.segments().clone();
    let written = workers(member).run(move || segments.put(&id, &bytes)).await;
    written.flatten().map_err(|error| error.to_string())
}

fn peer(member: &Member, mesh: &Mesh, id: VoterId) -> Option<Peer> {
    let addr = member.voters().get(&id).copied().flatten();
    let addr = addr.or_else(|| member.addresses.of(id, None))?;
    Some(mesh.peer(
        addr,
        ExpectedIdentity::exactly(Role::Quorum, id.to_string()),
    ))
}

/// Fetches from the snapshot's sender the segments that the snapshot names and this member lacks. Returns whether all
/// are present now. Fetched segments stay, so that the next try fetches only the remaining ones.
pub(crate) async fn fetch_missing(
    member: &Member,
    mesh: &Mesh,
    sender: &str,
    snapshot: &Bytes,
) -> Result<bool, HandlerFailed> {
    let (segments, bytes) = (member.replica.segments().clone(), snapshot.clone());
    let lacking = workers(member).run(move || {
        let state = State::restore(&bytes).map_err(HandlerFailed::new)?;
        let lacking = state
            .segments()
            .filter(|segment| !segments.is_present(segment));
        Ok::<_, HandlerFailed>(lacking.map(|segment| segment.id).collect::<Vec<_>>())
    });
    let lacking = lacking.await.map_err(HandlerFailed::new)??;
    if lacking.is_empty() {
        return Ok(true);
    }
    let sender = sender.parse().ok();
    let sender = sender.and_then(|id| peer(member, mesh, id));
    let sender = sender.ok_or_else(|| HandlerFailed::new("no known address of the sender"))?;
    tracing::info!(
        segments = lacking.len(),
        "requesting segments of a snapshot"
    );
    let until = Instant::now() + FETCH_TIMEOUT;
    let count = lacking.len();
    let in_time = lacking.into_iter().take_while(|_| Instant::now() < until);
    let mut taken = stream::iter(in_time)
        .map(|id| fetch_to_disk(member, &sender, id))
        .buffer_unordered(MAX_CONCURRENT_FETCHES);
    let mut here = 0;
    while let Some(result) = taken.next().await {
        result.map_err(HandlerFailed::new)?;
        here += 1;
    }
    Ok(here == count)
}

/// Replaces a missing or damaged segment with a copy from another member.
///
/// # Errors
/// No other member could send an intact copy of the segment, or the copy could not be written.
pub(crate) async fn repair(member: &Member, mesh: &Mesh, id: &SegmentId) -> Result<(), String> {
    let mut reasons = Vec::new();
    for other in member.voters().into_keys().filter(|id| *id != member.id) {
        let Some(peer) = peer(member, mesh, other) else {
            continue;
        };
        match fetch_to_disk(member, &peer, *id).await {
            Ok(()) => {
                member.replica.segments().note_replaced();
                tracing::warn!(
                    segment = %id, from = other,
                    "segment replaced from another member"
                );
                return Ok(());
            }
            Err(reason) => reasons.push(format!("member {other}: {reason}")),
        }
    }
    match reasons.is_empty() {
        true => Err("this is the only member, so no other member can send it".to_owned()),
        false => Err(reasons.join("; ")),
    }
}
