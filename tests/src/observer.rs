//! Observer: reads the committed state from the quorum itself, so it works without a control.

use crate::wait::eventually;
use futures::Stream;
use lattice_mesh::{Credentials, Mesh, MeshConfig};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Allocation, AllocationId, Applied, Envelope, Refusal, Revision, VoterId,
    id::LeaseName,
    view::{Answer, LeaseView, LiveState, Query, WatchItem},
};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// Reader of the replicated state. Clones share connections.
#[derive(Debug, Clone)]
pub struct Observer {
    quorum: QuorumClient,
}

impl Observer {
    /// Connects as a control, with credentials from a folder.
    pub fn new(ip: IpAddr, credentials: &Path, members: Vec<SocketAddr>) -> Self {
        let credentials = Credentials::load(credentials).unwrap();
        let mesh = Mesh::bind((ip, 0).into(), credentials, MeshConfig::default()).unwrap();
        Self {
            quorum: QuorumClient::new(mesh, members),
        }
    }

    /// Linearizable read of projects, nodes and live allocations. `None`: no leader answers.
    pub async fn hot(&self) -> Option<LiveState> {
        match self.quorum.read(Query::Hot).await {
            Ok(Answer::Hot(hot)) => Some(*hot),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// Reads one allocation, live or ended.
    pub async fn allocation(&self, id: AllocationId) -> Option<Allocation> {
        match self.quorum.read(Query::Allocation { id }).await {
            Ok(Answer::Allocation(found)) => found.map(|found| *found),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// Reads a lease; `None` before its first acquisition, or when no leader answers.
    pub async fn lease(&self, name: &LeaseName) -> Option<LeaseView> {
        match self.quorum.read(Query::Leases).await {
            Ok(Answer::Leases(all)) => all.into_iter().find(|lease| lease.name == name.as_str()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// Largest applied log index of any member; `None`: no member answers.
    pub async fn log_index(&self) -> Option<u64> {
        let all = self.quorum.status().await;
        let said = all.into_iter().filter_map(|(_, status)| status.ok());
        said.map(|status| status.applied_index).max()
    }

    /// Stream of everything that is committed after `since`.
    pub fn watch(&self, since: Revision) -> impl Stream<Item = WatchItem> + Send + use<> {
        self.quorum.watch(since)
    }

    /// Proposes as an intruder with the identity of a control, until a member answers.
    pub async fn propose(&self, envelope: Envelope) -> Result<Applied, Refusal> {
        eventually("a proposal is answered", || async {
            self.quorum.propose(envelope.clone()).await.ok()
        })
        .await
    }

    /// Number of members that accept this client.
    pub async fn let_in_by(&self) -> usize {
        let all = self.quorum.status().await;
        all.iter().filter(|(_, status)| status.is_ok()).count()
    }

    /// Leader according to a majority of the members; `None` while they do not agree, or do not answer in time.
    pub async fn leader(&self) -> Option<VoterId> {
        let all = self.quorum.status().await;
        let mut said: Vec<VoterId> = Vec::new();
        for (_, status) in &all {
            said.extend(status.as_ref().ok().and_then(|status| status.leader));
        }
        let most = |id: &&VoterId| said.iter().filter(|said| said == id).count() * 2 > all.len();
        said.iter().find(most).copied()
    }
}
