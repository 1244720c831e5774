//! What control's reconcilers and agents would do, done by the test: over the quorum's client API, as
//! a service, under a lease.

use lattice_mesh::{Credentials, Mesh, MeshConfig};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, NodeId, Outcome, Refusal, UnixMillis,
    VclusterName,
    allocation::{RankExit, RankPhase},
    command::{ExpectedNode, Fence, Power, Principal, RankReport, SCHEMA},
    id::LeaseName,
    node::Lifecycle,
    view::{Answer, Hot, Query},
};
use lattice_tests::{
    quota::{Kind, Refused, Violated},
    site::Site,
    wait::eventually,
};
use std::{
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

/// Longer than the cases take.
const LEASE_MS: u64 = 600_000;

/// A service with its lease.
pub struct Service {
    quorum: QuorumClient,
    fence: Mutex<Option<Fence>>,
}

fn lease() -> LeaseName {
    LeaseName::new("tests.place").unwrap()
}

fn now() -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMillis(u64::try_from(now.as_millis()).unwrap())
}

impl Service {
    /// With the credentials of a control that is none.
    pub async fn new(site: &Site) -> Self {
        let credentials = Credentials::load(&site.observer_credentials()).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mesh = Mesh::bind(any, credentials, MeshConfig::default()).unwrap();
        let service = Self {
            quorum: QuorumClient::new(mesh, site.members().to_vec()),
            fence: Mutex::new(None),
        };
        service.lease().await;
        service
    }

    /// Takes the lease, or renews it.
    pub async fn lease(&self) {
        let acquire = Command::AcquireLease {
            lease: lease(),
            holder: "tests".to_owned(),
            ttl_ms: LEASE_MS,
        };
        let outcome = self.propose(vec![acquire]).await.remove(0).unwrap();
        let Outcome::Leased { epoch, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let lease = lease();
        *self.fence.lock().unwrap() = Some(Fence { lease, epoch });
    }

    /// Until it is answered: each has a key of its own, so that a repeat is none.
    async fn propose(&self, commands: Vec<Command>) -> Vec<Result<Outcome, Refusal>> {
        let envelope = |command| Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "service:control/tests".to_owned(),
                power: Power::Service,
            },
            key: Some(format!("{:032x}", rand::random::<u128>())),
            at: now(),
            fence: self.fence.lock().unwrap().clone(),
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

    async fn done(&self, commands: Vec<Command>) {
        for reply in self.propose(commands).await {
            reply.unwrap();
        }
    }

    /// One command, which may be refused.
    pub async fn ask(&self, command: Command) -> Result<(), Refused> {
        let reply = self.propose(vec![command]).await.remove(0);
        reply.map(drop).map_err(refused)
    }

    /// Tree, nodes and allocations as they are committed.
    pub async fn hot(&self) -> Hot {
        eventually("the members answer", || async {
            match self.quorum.read(Query::Hot).await {
                Ok(Answer::Hot(hot)) => Some(*hot),
                _ => None,
            }
        })
        .await
    }

    /// One allocation.
    pub async fn allocation(&self, id: AllocationId) -> Allocation {
        eventually("the allocation is known", || async {
            match self.quorum.read(Query::Allocation { id }).await {
                Ok(Answer::Allocation(found)) => found.map(|found| *found),
                _ => None,
            }
        })
        .await
    }

    /// Ready nodes that no agent stands for: control gives them nothing.
    pub async fn add_nodes(&self, count: u64) {
        let node = |n: u64| NodeId::new(format!("m{n:05}")).unwrap();
        let vcluster = VclusterName::new("default").unwrap();
        let register = |n| Command::RegisterNode {
            node: node(n),
            vcluster: vcluster.clone(),
        };
        let ready = |n| Command::SetLifecycle {
            node: node(n),
            lifecycle: Lifecycle::Ready,
        };
        let commands = (0..count).flat_map(|n| [register(n), ready(n)]);
        self.done(commands.collect()).await;
    }

    /// So many free nodes, at most, none of `had`.
    pub async fn free(&self, count: usize, had: &[String]) -> Vec<ExpectedNode> {
        let hot = self.hot().await;
        let is_new = |node: &&lattice_quorum_types::node::Node| {
            node.is_assignable() && !had.iter().any(|had| had == node.id.as_str())
        };
        let free = hot.nodes.iter().filter(is_new).take(count);
        let expected = free.map(|node| ExpectedNode {
            node: node.id.clone(),
            version: node.version,
            boot: None,
        });
        expected.collect()
    }

    async fn report(&self, id: AllocationId, nodes: &[NodeId], report: &RankReport) {
        let attempt = self.allocation(id).await.attempt;
        let of_node = |node: &NodeId| Command::Report {
            id,
            attempt,
            node: node.clone(),
            report: report.clone(),
        };
        self.done(nodes.iter().map(of_node).collect()).await;
    }

    /// Every rank that is only assigned runs.
    pub async fn start(&self, id: AllocationId) {
        let record = self.allocation(id).await;
        let assigned = record.ranks.iter();
        let assigned = assigned.filter(|rank| rank.phase == RankPhase::Assigned);
        let nodes: Vec<NodeId> = assigned.map(|rank| rank.node.clone()).collect();
        self.report(id, &nodes, &RankReport::Started { at: now() })
            .await;
    }

    /// Every process on these nodes is gone.
    pub async fn ended(&self, id: AllocationId, nodes: &[NodeId], exit: &RankExit) {
        let report = RankReport::Ended {
            at: now(),
            exit: exit.clone(),
            fault: None,
        };
        self.report(id, nodes, &report).await;
    }

    /// Every process of it is gone.
    pub async fn end(&self, id: AllocationId, exit: &RankExit) {
        let record = self.allocation(id).await;
        let nodes: Vec<NodeId> = record.kept_nodes().cloned().collect();
        self.ended(id, &nodes, exit).await;
    }
}

fn refused(refusal: Refusal) -> Refused {
    let text = refusal.to_string();
    let (kind, levels) = match refusal {
        Refusal::LimitExceeded { levels } => (Kind::OverLimit, levels),
        Refusal::Invalid { .. } => (Kind::Invalid, Vec::new()),
        other => panic!("unexpected: {other}"),
    };
    let level = |level: lattice_quorum_types::refusal::Level| Violated {
        project: level.path.to_string(),
        quota: level.resource.limit_name().to_owned(),
        current: Some(level.current),
        requested: Some(level.requested),
        limit: Some(level.limit),
    };
    Refused {
        kind,
        text,
        levels: levels.into_iter().map(level).collect(),
    }
}
