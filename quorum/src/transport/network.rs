//! Sending side of Raft over the mesh.

use crate::{
    member::{
        Addresses,
        contacts::{Contact, Contacts, ReachabilityChange},
        incarnation::MemberIncarnation,
    },
    raft::{
        rpc::{AppendEntries, RequestVote, SendSnapshot, SnapshotAnswer},
        types::{Snapshot, Types, Vote},
    },
};
use bytes::Bytes;
use lattice_mesh::{CallError, ExpectedIdentity, Mesh, Peer, Role, Rpc};
use lattice_quorum_types::VoterId;
use openraft::{
    BasicNode, RaftNetwork, RaftNetworkFactory,
    error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable},
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
    },
};
use std::{future::Future, io, sync::Arc, time::Duration};

/// Interval between two calls to an unreachable member. Short, because it determines how soon a returning member
/// receives the leader's heartbeat.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of a snapshot in one call; the mesh accepts requests of 8 MiB between members.
const PIECE_BYTES: usize = 1 << 20;
/// Timeout of one piece.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the last piece, which includes writing the snapshot to disk and reading it into memory.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of restarts of a snapshot transfer.
const MAX_RESTARTS: usize = 3;

/// Factory of connections to members.
#[derive(Clone)]
pub(crate) struct Network {
    mesh: Mesh,
    addresses: Addresses,
    contacts: Contacts,
    lineage: MemberIncarnation,
}

impl Network {
    pub(crate) fn new(
        mesh: Mesh,
        addresses: Addresses,
        contacts: Contacts,
        lineage: MemberIncarnation,
    ) -> Self {
        Self {
            mesh,
            addresses,
            contacts,
            lineage,
        }
    }
}

/// Connection to one member.
pub(crate) struct Link {
    target: VoterId,
    /// `None` if no address of the member is available.
    peer: Option<Peer>,
    /// Outcome of calls, shared by all connections to this member.
    contact: Arc<Contact>,
    contacts: Contacts,
    lineage: MemberIncarnation,
}

type RaftRpcError = RPCError<VoterId, BasicNode, RaftError<VoterId>>;

fn unreachable(error: &(impl std::error::Error + 'static)) -> Unreachable {
    Unreachable::new(error)
}

impl Link {
    async fn call<R: Rpc>(&self, request: &R, timeout: Duration) -> Result<R::Reply, Unreachable> {
        let Some(peer) = &self.peer else {
            let unknown = format!("no known address of member {}", self.target);
            return Err(unreachable(&io::Error::other(unknown)));
        };
        let reply = peer.call(request, timeout).await;
        self.note(reply.as_ref().err());
        reply.map_err(|error: CallError| unreachable(&error))
    }

    /// Logs once when a member stops answering or reports another failure, and once when it answers again.
    fn note(&self, error: Option<&CallError>) {
        match (self.contact.note(error), error) {
            (ReachabilityChange::Lost, Some(error)) => {
                tracing::warn!(member = self.target, %error, "member unreachable");
            }
            (ReachabilityChange::Restored, _) => {
                tracing::info!(member = self.target, "member reachable again")
            }
            _ => {}
        }
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: &Snapshot,
    ) -> Result<SnapshotResponse<VoterId>, Unreachable> {
        let bytes: &Bytes = &snapshot.snapshot;
        let digest = *blake3::hash(bytes).as_bytes();
        let (mut offset, mut anew) = (0, 0);
        loop {
            let end = (offset + PIECE_BYTES).min(bytes.len());
            let last = end == bytes.len();
            let request = SendSnapshot {
                incarnation: self.lineage.current(),
                vote,
                meta: snapshot.meta.clone(),
                offset: offset as u64,
                data: bytes.slice(offset..end),
                whole: last.then_some((bytes.len() as u64, digest)),
            };
            let timeout = if last { INSTALL_TIMEOUT } else { PIECE_TIMEOUT };
            match self.call(&request, timeout).await? {
                SnapshotAnswer::Done(response) => return Ok(response),
                SnapshotAnswer::More if !last => offset = end,
                // The receiver fetches missing segments meanwhile, and answers at least twice a minute.
                SnapshotAnswer::Fetching if last => {}
                SnapshotAnswer::More | SnapshotAnswer::Again | SnapshotAnswer::Fetching
                    if anew < MAX_RESTARTS =>
                {
                    anew += 1;
                    offset = 0;
                }
                SnapshotAnswer::More | SnapshotAnswer::Again | SnapshotAnswer::Fetching => {
                    let error = io::Error::other("the snapshot arrived damaged repeatedly");
                    return Err(unreachable(&error));
                }
            }
        }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: VoterId, node: &BasicNode) -> Link {
        let addr = self.addresses.of(target, Some(&node.addr));
        let expect = ExpectedIdentity::exactly(Role::Quorum, target.to_string());
        let peer = addr.map(|addr| self.mesh.peer(addr, expect));
        Link {
            target,
            peer,
            contact: self.contacts.of(target),
            contacts: self.contacts.clone(),
            lineage: self.lineage.clone(),
        }
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<VoterId>, RaftRpcError> {
        if !self.contacts.may_transmit() {
            let alone = io::Error::other("no majority reachable from this leader");
            return Err(unreachable(&alone).into());
        }
        let request = AppendEntries(self.lineage.current(), request);
        Ok(self.call(&request, option.hard_ttl()).await?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<VoterId>,
        option: RPCOption,
    ) -> Result<VoteResponse<VoterId>, RaftRpcError> {
        let request = RequestVote(self.lineage.current(), request);
        Ok(self.call(&request, option.hard_ttl()).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<VoterId>, StreamingError<Types, Fatal<VoterId>>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, &snapshot) => Ok(sent?),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY_INTERVAL))
    }
}
