//! Raft RPCs between members. They carry entries, snapshots and segments in their on-disk form, so the method names
//! contain the format of the data directory. Members of two formats reject each other's calls and never misread them.
//! Each call carries the incarnation of the calling member: see `member/incarnation.rs`.

use crate::raft::types::{LogId, SnapshotMeta, Types, Vote};
use bytes::Bytes;
use lattice_mesh::{Role, Rpc};
use lattice_quorum_state::SegmentId;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

const MEMBERS: &[Role] = &[Role::Quorum];

/// Appends log entries, or sends a heartbeat.
#[derive(Serialize, Deserialize)]
pub(crate) struct AppendEntries(
    pub(crate) Incarnation,
    pub(crate) AppendEntriesRequest<Types>,
);
impl Rpc for AppendEntries {
    const METHOD: &'static str = "raft.append.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = AppendEntriesResponse<VoterId>;
}

/// Requests a vote for a candidate.
#[derive(Serialize, Deserialize)]
pub(crate) struct RequestVote(pub(crate) Incarnation, pub(crate) VoteRequest<VoterId>);
impl Rpc for RequestVote {
    const METHOD: &'static str = "raft.vote.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = VoteResponse<VoterId>;
}

/// Sends a piece of a snapshot, in order of offset.
#[derive(Serialize, Deserialize)]
pub(crate) struct SendSnapshot {
    /// Incarnation of the leader.
    pub(crate) incarnation: Incarnation,
    /// Vote of the leader.
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    /// Offset of `data`, bytes. 0 starts a new transfer.
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// Set on the last piece: total length in bytes, and blake3 digest.
    pub(crate) whole: Option<(u64, [u8; 32])>,
}

/// Outcome of a piece.
#[derive(Serialize, Deserialize)]
pub(crate) enum SnapshotAnswer {
    /// The receiver expects the next piece.
    More,
    /// The piece does not follow the received ones, or the complete snapshot does not match its digest: start again.
    Again,
    /// The snapshot is installed, or the vote is outdated.
    Done(SnapshotResponse<VoterId>),
    /// The last piece has arrived, and the receiver fetches segments that the snapshot names. Send the last piece
    /// again.
    Fetching,
}
impl Rpc for SendSnapshot {
    const METHOD: &'static str = "raft.snapshot.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = SnapshotAnswer;
}

/// Requests a piece of a segment. Any member that has the segment serves it: the name contains the digest.
#[derive(Serialize, Deserialize)]
pub(crate) struct GetSegment {
    /// Incarnation of the caller.
    pub(crate) incarnation: Incarnation,
    /// Requested segment.
    pub(crate) id: SegmentId,
    /// Offset, bytes.
    pub(crate) offset: u64,
}

/// Piece of a segment.
#[derive(Serialize, Deserialize)]
pub(crate) struct SegmentPiece {
    /// Bytes from the requested offset; empty after the end.
    pub(crate) data: Bytes,
    /// Length of the whole segment, bytes.
    pub(crate) bytes: u64,
}
impl Rpc for GetSegment {
    const METHOD: &'static str = "raft.segment.1";
    const CALLERS: &'static [Role] = MEMBERS;
    /// The error states why the member cannot serve the segment.
    type Reply = Result<SegmentPiece, String>;
}

/// Pre-vote request of the election gate. A member agrees only if it receives no heartbeats, or leads without a
/// majority, and the caller's log is at least as up to date as its own.
#[derive(Serialize, Deserialize)]
pub(crate) struct MayCampaign {
    /// Incarnation of the caller.
    pub(crate) incarnation: Incarnation,
    /// Last log entry of the caller.
    pub(crate) last_log_id: Option<LogId>,
}
impl Rpc for MayCampaign {
    const METHOD: &'static str = "raft.campaign.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = bool;
}

/// Requests that another voter takes over leadership. The leader proposes nothing until the answer arrives.
#[derive(Serialize, Deserialize)]
pub(crate) struct TakeLeadership {
    /// Incarnation of the leader.
    pub(crate) incarnation: Incarnation,
    /// Term of the leader.
    pub(crate) term: u64,
    /// Last log entry of the leader; no entry follows it.
    pub(crate) last_log_id: Option<LogId>,
}
impl Rpc for TakeLeadership {
    const METHOD: &'static str = "raft.take_over.1";
    const CALLERS: &'static [Role] = MEMBERS;
    /// The new term, or the reason why the member does not lead.
    type Reply = Result<u64, String>;
}
