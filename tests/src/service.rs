//! A service of the site without a daemon: it proposes commands with the quorum's client API under a lease of its own.
//! It serves for commands that control's reconcilers do not propose yet.

use crate::{site::Site, wait::eventually};
use lattice_mesh::{Credentials, Mesh, MeshConfig};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, NodeId, Outcome, Refusal, UnixMillis,
    VclusterName,
    command::{ExpectedNode, Fence, Principal, Privilege, SCHEMA},
    id::LeaseName,
    view::{Answer, LiveState, Query},
};
use std::{
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

/// Longer than any test, milliseconds.
const LEASE_MS: u64 = 600_000;

/// Service with its lease.
#[derive(Debug)]
pub struct Service {
    quorum: QuorumClient,
    lease: LeaseName,
    fence: Mutex<Option<Fence>>,
}

/// Current time of this machine, as in proposals.
pub fn now() -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMillis(u64::try_from(now.as_millis()).unwrap())
}

impl Service {
    /// Creates a service with a control's credentials and a lease of its own; no such control runs.
    pub async fn new(site: &Site) -> Self {
        Self::under(site, LeaseName::new("tests.place").unwrap()).await
    }

    /// Creates a service in place of a vCluster's scheduler, which assigns its allocations; there must be no other
    /// scheduler.
    pub async fn scheduler(site: &Site, vcluster: &VclusterName) -> Self {
        Self::under(site, LeaseName::of_scheduler(vcluster)).await
    }

    async fn under(site: &Site, lease: LeaseName) -> Self {
        let credentials = Credentials::load(&site.observer_credentials()).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mesh = Mesh::bind(any, credentials, MeshConfig::default()).unwrap();
        let service = Self {
            quorum: QuorumClient::new(mesh, site.members().to_vec()),
            lease,
            fence: Mutex::new(None),
        };
        service.lease().await;
        service
    }

    /// Acquires or renews the lease.
    pub async fn lease(&self) {
        let acquire = Command::AcquireLease {
            lease: self.lease.clone(),
            holder: "tests".to_owned(),
            ttl_ms: LEASE_MS,
        };
        let outcome = self.propose(vec![acquire]).await.remove(0).unwrap();
        let Outcome::Leased { epoch, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let lease = self.lease.clone();
        *self.fence.lock().unwrap() = Some(Fence { lease, epoch });
    }

    /// Proposes commands until they are answered. Each has a key of its own, so repetition is harmless.
    pub async fn propose(&self, commands: Vec<Command>) -> Vec<Result<Outcome, Refusal>> {
        let service = Principal {
            name: "service:control/tests".to_owned(),
            privilege: Privilege::Service,
        };
        let fence = self.fence.lock().unwrap().clone();
        self.propose_as(service, fence, commands).await
    }

    /// Proposes one command of an operator, without a lease; it may be refused.
    pub async fn as_operator(&self, command: Command) -> Result<Outcome, Refusal> {
        let operator = Principal {
            name: "olga".to_owned(),
            privilege: Privilege::Operator,
        };
        self.propose_as(operator, None, vec![command])
            .await
            .remove(0)
    }

    async fn propose_as(
        &self,
        principal: Principal,
        fence: Option<Fence>,
        commands: Vec<Command>,
    ) -> Vec<Result<Outcome, Refusal>> {
        let envelope = |command| Envelope {
            schema: SCHEMA,
            principal: principal.clone(),
            key: Some(format!("{:032x}", rand::random::<u128>())),
            at: now(),
            fence: fence.clone(),
            command,
        };
        let envelopes: Vec<Envelope> = commands.into_iter().map(envelope).collect();
        let replies = eventually("proposals are answered", || async {
            self.quorum.propose_all(envelopes.clone()).await.ok()
        });
        let replies = replies.await.into_iter();
        replies
            .map(|reply| reply.map(|applied| applied.outcome))
            .collect()
    }

    /// Proposes commands that must all be accepted.
    ///
    /// # Panics
    /// When a command is refused.
    pub async fn done(&self, commands: Vec<Command>) {
        for reply in self.propose(commands).await {
            reply.unwrap();
        }
    }

    /// Proposes one command, which may be refused.
    pub async fn try_one(&self, command: Command) -> Result<Outcome, Refusal> {
        self.propose(vec![command]).await.remove(0)
    }

    /// Committed projects, nodes and allocations.
    pub async fn hot(&self) -> LiveState {
        eventually("the members answer", || async {
            match self.quorum.read(Query::Hot).await {
                Ok(Answer::Hot(hot)) => Some(*hot),
                _ => None,
            }
        })
        .await
    }

    /// Reads one allocation.
    pub async fn allocation(&self, id: AllocationId) -> Allocation {
        eventually("the allocation is known", || async {
            match self.quorum.read(Query::Allocation { id }).await {
                Ok(Answer::Allocation(found)) => found.map(|found| *found),
                _ => None,
            }
        })
        .await
    }

    /// Current versions of these nodes, each with the boot id that control has for it.
    pub async fn expected(&self, site: &Site, names: &[&str]) -> Vec<ExpectedNode> {
        let hot = self.hot().await;
        let mut expected = Vec::new();
        for name in names {
            let node = NodeId::new(*name).unwrap();
            let record = hot.nodes.iter().find(|known| known.id == node).unwrap();
            let boot = eventually("the node has named its boot", || async {
                site.api().node(name).await.ok()?.boot_id
            });
            expected.push(ExpectedNode {
                version: record.version,
                boot: Some(boot.await),
                node,
            });
        }
        expected
    }
}
