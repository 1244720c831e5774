//! Substitute for control's reconcilers and for agents: a service under a lease, with the quorum's client API.

use lattice_quorum_types::{
    AllocationId, Command, NodeId, Refusal, VclusterName,
    allocation::{RankExit, RankPhase},
    command::{ExpectedNode, RankReport},
    node::Lifecycle,
};
use lattice_tests::{
    quota::{Kind, Refused, Violated},
    service::now,
    site::Site,
};
use std::ops::Deref;

/// Service with its lease, which also sends the reports of agents.
pub struct Service(lattice_tests::service::Service);

impl Deref for Service {
    type Target = lattice_tests::service::Service;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Service {
    /// Creates the service with a control's credentials, before there are nodes, so that the control has not started to
    /// schedule.
    pub async fn new(site: &Site) -> Self {
        let vcluster = VclusterName::new("default").unwrap();
        let service = lattice_tests::service::Service::scheduler(site, &vcluster);
        Self(service.await)
    }

    /// Proposes one command, which may be refused.
    pub async fn ask(&self, command: Command) -> Result<(), Refused> {
        self.try_one(command).await.map(drop).map_err(refused)
    }

    /// Adds ready nodes without agents: control assigns nothing to them.
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

    /// Up to `count` free nodes, without those in `had`.
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

    /// Reports all assigned ranks as running.
    pub async fn start(&self, id: AllocationId) {
        let record = self.allocation(id).await;
        let assigned = record.ranks.iter();
        let assigned = assigned.filter(|rank| rank.phase == RankPhase::Assigned);
        let nodes: Vec<NodeId> = assigned.map(|rank| rank.node.clone()).collect();
        self.report(id, &nodes, &RankReport::Started { at: now() })
            .await;
    }

    /// Reports the end of all processes on these nodes.
    pub async fn ended(&self, id: AllocationId, nodes: &[NodeId], exit: &RankExit) {
        let report = RankReport::Ended {
            at: now(),
            exit: exit.clone(),
            fault: None,
        };
        self.report(id, nodes, &report).await;
    }

    /// Reports the end of all processes of the allocation.
    pub async fn end(&self, id: AllocationId, exit: &RankExit) {
        let record = self.allocation(id).await;
        let nodes: Vec<NodeId> = record.kept_nodes().cloned().collect();
        self.ended(id, &nodes, exit).await;
    }
}

fn refused(refusal: Refusal) -> Refused {
    let text = refusal.to_string();
    let (kind, levels) = match refusal {
        Refusal::LimitExceeded { levels, .. } => (Kind::OverLimit, levels),
        Refusal::Invalid { .. } => (Kind::Invalid, Vec::new()),
        other => panic!("unexpected: {other}"),
    };
    let level = |level: lattice_quorum_types::refusal::ViolatedLevel| Violated {
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
