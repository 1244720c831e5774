//! What openraft is told about our log: an entry is a batch of envelopes, its answer one result
//! per envelope.

use bytes::Bytes;
use lattice_quorum_types::{Applied, Envelope, Refusal, VoterId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The commands of one log entry. Shared, since replication, log and state machine all read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch(pub Arc<Vec<Envelope>>);

/// One result per envelope of the batch, in its order and without its events; empty for entries
/// of Raft's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results(pub Vec<Result<Applied, Refusal>>);

openraft::declare_raft_types!(
    /// The types of our Raft.
    pub Types:
        D = Batch,
        R = Results,
        NodeId = VoterId,
        Node = openraft::BasicNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Bytes,
        AsyncRuntime = openraft::TokioRuntime,
);

/// Raft over our types.
pub type Raft = openraft::Raft<Types>;
/// A log entry.
pub type Entry = openraft::Entry<Types>;
/// Position and term of a log entry.
pub type LogId = openraft::LogId<VoterId>;
/// What a member voted for.
pub type Vote = openraft::Vote<VoterId>;
/// Who the members are, as committed.
pub type Membership = openraft::StoredMembership<VoterId, openraft::BasicNode>;
/// What a snapshot holds.
pub type SnapshotMeta = openraft::SnapshotMeta<VoterId, openraft::BasicNode>;
/// A snapshot with its bytes.
pub type Snapshot = openraft::Snapshot<Types>;
/// The storage failed; the member stops.
pub type StorageError = openraft::StorageError<VoterId>;
/// What Raft says of itself.
pub type RaftMetrics = openraft::RaftMetrics<VoterId, openraft::BasicNode>;
