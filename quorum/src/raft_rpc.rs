//! Raft's own calls between members. They carry entries, snapshots and segments as they are on disk, so the
//! method names carry the format of the data directory: members of two formats reject each other's calls and
//! never misread them. Each call carries the incarnation of the calling member: see `lineage.rs`.

use crate::types::{LogId, SnapshotMeta, Types, Vote};
use bytes::Bytes;
use lattice_mesh::{Role, Rpc};
use lattice_quorum_state::SegmentId;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

const MEMBERS: &[Role] = &[Role::Quorum];

/// Log entries, or a heartbeat.
#[derive(Serialize, Deserialize)]
pub(crate) struct Append(
    pub(crate) Incarnation,
    pub(crate) AppendEntriesRequest<Types>,
);
impl Rpc for Append {
    const METHOD: &'static str = "raft.append.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = AppendEntriesResponse<VoterId>;
}

/// A candidate asks for a vote.
#[derive(Serialize, Deserialize)]
pub(crate) struct RequestVote(pub(crate) Incarnation, pub(crate) VoteRequest<VoterId>);
impl Rpc for RequestVote {
    const METHOD: &'static str = "raft.vote.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = VoteResponse<VoterId>;
}

/// A piece of a snapshot, in order of offset.
#[derive(Serialize, Deserialize)]
pub(crate) struct SendSnapshot {
    /// The leader's.
    pub(crate) incarnation: Incarnation,
    /// The leader's.
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    /// Where `data` belongs. 0 begins anew.
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// Set on the last piece: its bytes in all and their blake3.
    pub(crate) whole: Option<(u64, [u8; 32])>,
}

/// What became of a piece.
#[derive(Serialize, Deserialize)]
pub(crate) enum SnapshotAnswer {
    /// Send the next one.
    More,
    /// It does not follow what is there: begin anew.
    Again,
    /// The last one came and the snapshot is in place, or the vote is an old one.
    Done(SnapshotResponse<VoterId>),
    /// The last one came; segments that the snapshot names are on their way. Ask with the last one
    /// again.
    Fetching,
}
impl Rpc for SendSnapshot {
    const METHOD: &'static str = "raft.snapshot.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = SnapshotAnswer;
}

/// A piece of a segment. Any member that has it gives it: its name says what it is.
#[derive(Serialize, Deserialize)]
pub(crate) struct GetSegment {
    /// The asker's.
    pub(crate) incarnation: Incarnation,
    /// Which.
    pub(crate) id: SegmentId,
    /// From which byte on.
    pub(crate) offset: u64,
}

/// Bytes of a segment.
#[derive(Serialize, Deserialize)]
pub(crate) struct SegmentPiece {
    /// From the byte on that was asked for; empty behind the end.
    pub(crate) data: Bytes,
    /// Bytes of the whole.
    pub(crate) bytes: u64,
}
impl Rpc for GetSegment {
    const METHOD: &'static str = "raft.segment.1";
    const CALLERS: &'static [Role] = MEMBERS;
    /// The error says why this member cannot give it.
    type Reply = Result<SegmentPiece, String>;
}

/// The gate's question: would you have me as the leader? Only who has heard no leader for a
/// while, and whose own log is no longer, says yes.
#[derive(Serialize, Deserialize)]
pub(crate) struct MayCampaign {
    /// The asker's.
    pub(crate) incarnation: Incarnation,
    /// The asker's last entry.
    pub(crate) last_log_id: Option<LogId>,
}
impl Rpc for MayCampaign {
    const METHOD: &'static str = "raft.campaign.1";
    const CALLERS: &'static [Role] = MEMBERS;
    type Reply = bool;
}

/// The leader asks another voter to lead: it proposes nothing any more until that was answered.
#[derive(Serialize, Deserialize)]
pub(crate) struct TakeOver {
    /// The leader's.
    pub(crate) incarnation: Incarnation,
    /// In which it leads.
    pub(crate) term: u64,
    /// Its last entry: nothing follows.
    pub(crate) last_log_id: Option<LogId>,
}
impl Rpc for TakeOver {
    const METHOD: &'static str = "raft.take_over.1";
    const CALLERS: &'static [Role] = MEMBERS;
    /// The new term, or why it does not lead.
    type Reply = Result<u64, String>;
}
