//! Calls to agents: address lookup for a node, deadlines and answer limits.

use crate::{error::AgentError, preimages::MOST_PREIMAGE_BYTES};
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use lattice_agent_rpc::{
    AttemptStatus, GetInventory, GetPreimage, ListAttempts, ReadLog, covered_bytes,
};
use lattice_conformance::{Digest, Inventory};
use lattice_mesh::{CallError, ExpectedIdentity, ItemStream, Mesh, Peer, Role, Rpc};
use lattice_quorum_types::NodeId;
use lattice_view::View;
use std::{net::SocketAddr, time::Duration};

#[cfg(test)]
mod wire;
#[cfg(test)]
pub(crate) use wire::FakeAgents;

/// Deadline for a new reading, which may have to wait for a slow driver's own timeout.
const FRESH_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline for the last reading, which the agent holds already.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest reply to a request that is sent to many agents, in bytes. Such a reply holds a few short values.
const MAX_ANSWER_BYTES: usize = 128 << 10;
/// Overhead of a reply frame beyond its payload, in bytes.
const FRAME_BYTES: usize = 64;
/// Largest list of attempts, in bytes. A node runs few attempts, and drops an attempt once its end is acknowledged.
const MAX_LIST_BYTES: usize = 1 << 20;
/// Maximum number of attempts in one agent's list.
pub(crate) const MAX_ATTEMPTS: usize = 10_000;
/// Deadline for an agent to list its attempts.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Reading of a node to request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadingKind {
    /// The last reading.
    Last,
    /// A new reading, made on request.
    Fresh {
        /// Principal that requested the reading. A change that the reading finds is attributed to this principal in the
        /// node's history. `None` for a check started by control.
        by: Option<String>,
    },
}

/// Output stream of a rank, chunk by chunk.
pub type LogChunks = BoxStream<'static, Result<Bytes, AgentError>>;

/// RPC client for the agents of all nodes.
#[derive(Debug, Clone)]
pub struct Agents {
    mesh: Mesh,
    #[cfg(test)]
    fake_agents: FakeAgents,
}

impl Agents {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self {
            mesh,
            #[cfg(test)]
            fake_agents: FakeAgents::default(),
        }
    }

    /// Test double that answers requests with short replies instead of the network, once a test has set its answers.
    #[cfg(test)]
    pub(crate) fn wire(&self) -> &FakeAgents {
        &self.fake_agents
    }

    /// Mesh endpoint that all calls use.
    pub(crate) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the agent of a node, at its last known address. The peer's certificate must carry exactly the node's
    /// name, so a forged address reaches no other node.
    pub(crate) fn peer(&self, view: &View, node: &NodeId) -> Result<Peer, AgentError> {
        let entry = view
            .node(node)
            .ok_or_else(|| AgentError::UnknownNode { node: node.clone() })?;
        let not_seen = || AgentError::NotSeen { node: node.clone() };
        Ok(self.peer_at(entry.addr().ok_or_else(not_seen)?, node))
    }

    fn peer_at(&self, addr: SocketAddr, node: &NodeId) -> Peer {
        let expect = ExpectedIdentity::exactly(Role::Agent, node.as_str());
        self.mesh.peer(addr, expect)
    }

    /// Same as [`Agents::call`], at an address that the caller gives.
    pub(crate) async fn call_at<R: Rpc>(
        &self,
        addr: SocketAddr,
        node: &NodeId,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, AgentError> {
        let peer = self.peer_at(addr, node).with_max_reply(MAX_ANSWER_BYTES);
        with_node(node, peer.call(request, deadline).await)
    }

    /// Sends a request with a short reply.
    pub(crate) async fn call<R: Rpc>(
        &self,
        view: &View,
        node: &NodeId,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, AgentError> {
        #[cfg(test)]
        if let Some(answer) = self.fake_agents.reply_to::<R>(node, request) {
            return answer;
        }
        let peer = self.peer(view, node)?.with_max_reply(MAX_ANSWER_BYTES);
        with_node(node, peer.call(request, deadline).await)
    }

    /// Sends a request with a reply of any size that an agent may send.
    pub(crate) async fn fetch<R: Rpc>(
        &self,
        view: &View,
        node: &NodeId,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, AgentError> {
        with_node(node, self.peer(view, node)?.call(request, deadline).await)
    }

    /// Fetches the bytes that a node holds for a digest, if it holds any. The bytes are not verified.
    pub(crate) async fn preimage(
        &self,
        view: &View,
        node: &NodeId,
        digest: Digest,
        deadline: Duration,
    ) -> Result<Option<Bytes>, AgentError> {
        let most = MOST_PREIMAGE_BYTES + FRAME_BYTES;
        let peer = self.peer(view, node)?.with_max_reply(most);
        let request = GetPreimage { digest: digest.0 };
        with_node(node, peer.call(&request, deadline).await)
    }

    /// Fetches all attempts that an agent holds; it drops an attempt once its end is acknowledged.
    pub(crate) async fn attempts(
        &self,
        view: &View,
        node: &NodeId,
    ) -> Result<Vec<AttemptStatus>, AgentError> {
        let peer = self.peer(view, node)?.with_max_reply(MAX_LIST_BYTES);
        let statuses = with_node(node, peer.call(&ListAttempts, LIST_TIMEOUT).await)?;
        if statuses.len() > MAX_ATTEMPTS {
            let (node, count) = (node.clone(), statuses.len());
            let reason = format!(
                "agent reports {count} attempts; the limit is {MAX_ATTEMPTS}; \
                 check the agent"
            );
            return Err(AgentError::Refused { node, reason });
        }
        Ok(statuses)
    }

    pub async fn inventory(
        &self,
        view: &View,
        node: &NodeId,
        look: ReadingKind,
    ) -> Result<Inventory, AgentError> {
        let refused = |reason: String| AgentError::Refused {
            node: node.clone(),
            reason,
        };
        let (deadline, request) = match look {
            ReadingKind::Last => (
                LAST_TIMEOUT,
                GetInventory {
                    fresh: false,
                    by: None,
                },
            ),
            ReadingKind::Fresh { by } => (FRESH_TIMEOUT, GetInventory { fresh: true, by }),
        };
        let answer = self.fetch(view, node, &request, deadline).await?;
        let bytes = answer.map_err(refused)?;
        serde_json::from_slice(&bytes)
            .map_err(|e| refused(format!("its inventory cannot be read: {e}")))
    }

    pub(crate) async fn read_log(
        &self,
        view: &View,
        node: &NodeId,
        request: &ReadLog,
    ) -> Result<LogChunks, AgentError> {
        let peer = self.peer(view, node)?;
        let opened = peer.open(request).await;
        let items = opened.map_err(|source| AgentError::Call {
            node: node.clone(),
            source,
        })?;
        let reading = LogReading {
            peer,
            node: node.clone(),
            request: request.clone(),
            items: Some(items),
        };
        Ok(futures::stream::unfold(reading, LogReading::next).boxed())
    }
}

pub(crate) fn with_node<T>(node: &NodeId, called: Result<T, CallError>) -> Result<T, AgentError> {
    called.map_err(|source| AgentError::Call {
        node: node.clone(),
        source,
    })
}

/// Pause before an output is requested again on a new connection.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// Log output of a rank, read over successive connections. A connection ends when a certificate under which it was
/// opened expires, so following an output may need several.
struct LogReading {
    peer: Peer,
    node: NodeId,
    /// What remains to be read; the offset advances with each chunk.
    request: ReadLog,
    /// `None` after an error, which ends the output.
    items: Option<ItemStream<Result<Bytes, String>>>,
}

impl LogReading {
    async fn next(mut self) -> Option<(Result<Bytes, AgentError>, Self)> {
        loop {
            let node = self.node.clone();
            let error = match self.items.as_mut()?.next().await? {
                Ok(Ok(bytes)) => {
                    self.request.offset += covered_bytes(&bytes);
                    return Some((Ok(bytes), self));
                }
                Ok(Err(reason)) => AgentError::Refused { node, reason },
                Err(CallError::Transport { .. }) if self.request.follow => {
                    tokio::time::sleep(REOPEN_PAUSE).await;
                    match self.peer.open(&self.request).await {
                        Ok(items) => {
                            self.items = Some(items);
                            continue;
                        }
                        Err(source) => AgentError::Call { node, source },
                    }
                }
                Err(source) => AgentError::Call { node, source },
            };
            self.items = None;
            return Some((Err(error), self));
        }
    }
}
