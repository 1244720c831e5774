//! Raft types of the quorum log: an entry is a batch of envelopes, and its response is one result per envelope.

use bytes::Bytes;
use lattice_quorum_types::{Applied, Envelope, Refusal, VoterId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Commands of one log entry. Shared, because replication, log and state machine all read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch(pub Arc<Vec<Envelope>>);

/// One result per envelope of the batch, in order and without events; empty for Raft's own entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results(pub Vec<Result<Applied, Refusal>>);

openraft::declare_raft_types!(
    /// Type configuration of openraft.
    pub Types:
        D = Batch,
        R = Results,
        NodeId = VoterId,
        Node = openraft::BasicNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Bytes,
        AsyncRuntime = openraft::TokioRuntime,
);

/// openraft with these types.
pub type Raft = openraft::Raft<Types>;
/// Entry of the log.
pub type Entry = openraft::Entry<Types>;
/// Position and term of a log entry.
pub type LogId = openraft::LogId<VoterId>;
/// Vote of a member.
pub type Vote = openraft::Vote<VoterId>;
/// Membership, with the id of the log entry that set it.
pub type Membership = openraft::StoredMembership<VoterId, openraft::BasicNode>;
/// Metadata of a snapshot.
pub type SnapshotMeta = openraft::SnapshotMeta<VoterId, openraft::BasicNode>;
/// Snapshot with its bytes.
pub type Snapshot = openraft::Snapshot<Types>;
/// Storage failure; the member stops.
pub type StorageError = openraft::StorageError<VoterId>;
/// Metrics that openraft publishes.
pub type RaftMetrics = openraft::RaftMetrics<VoterId, openraft::BasicNode>;
