//! What the quorum holds, read from itself: control may be dead meanwhile.

use crate::wait::eventually;
use futures::Stream;
use lattice_mesh::{Credentials, Mesh, MeshConfig};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Allocation, AllocationId, Applied, Envelope, Refusal, Revision, VoterId,
    id::LeaseName,
    view::{Answer, Hot, LeaseView, Query, WatchItem},
};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// Reads of the replicated state. Clones share connections.
#[derive(Debug, Clone)]
pub struct Observer {
    quorum: QuorumClient,
}

impl Observer {
    /// With credentials from a folder, as a control.
    pub fn new(ip: IpAddr, credentials: &Path, members: Vec<SocketAddr>) -> Self {
        let credentials = Credentials::load(credentials).unwrap();
        let mesh = Mesh::bind((ip, 0).into(), credentials, MeshConfig::default()).unwrap();
        Self {
            quorum: QuorumClient::new(mesh, members),
        }
    }

    /// Tree, nodes, allocations that have not ended; linearizable. `None`: no leader answers.
    pub async fn hot(&self) -> Option<Hot> {
        match self.quorum.read(Query::Hot).await {
            Ok(Answer::Hot(hot)) => Some(*hot),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// One allocation, ended ones too.
    pub async fn allocation(&self, id: AllocationId) -> Option<Allocation> {
        match self.quorum.read(Query::Allocation { id }).await {
            Ok(Answer::Allocation(found)) => found.map(|found| *found),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// A lease; `None` before it was ever taken, or when no leader answers.
    pub async fn lease(&self, name: &LeaseName) -> Option<LeaseView> {
        match self.quorum.read(Query::Leases).await {
            Ok(Answer::Leases(all)) => all.into_iter().find(|lease| lease.name == name.as_str()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// How far the log was applied by whoever is furthest; `None`: no member answers.
    pub async fn log_index(&self) -> Option<u64> {
        let all = self.quorum.status().await;
        let said = all.into_iter().filter_map(|(_, status)| status.ok());
        said.map(|status| status.applied_index).max()
    }

    /// Everything that was committed after `since`, as it comes.
    pub fn watch(&self, since: Revision) -> impl Stream<Item = WatchItem> + Send + use<> {
        self.quorum.watch(since)
    }

    /// What somebody would do who says that it is a control.
    pub async fn propose(&self, envelope: Envelope) -> Result<Applied, Refusal> {
        eventually("a proposal is answered", || async {
            self.quorum.propose(envelope.clone()).await.ok()
        })
        .await
    }

    /// How many members let us in.
    pub async fn let_in_by(&self) -> usize {
        let all = self.quorum.status().await;
        all.iter().filter(|(_, status)| status.is_ok()).count()
    }

    /// Who leads, as most members say; `None` while they do not agree, or do not answer in time.
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
