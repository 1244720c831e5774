//! Builders of clusters of vClusters.

use super::super::*;
use crate::{
    movement::preempt::tests::build::{HOUR, NOW, job, node, work},
    view::RunningView,
};

/// Some vClusters, with all inputs of a decision.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    pub(super) view: ClusterView,
    pub(super) places: BTreeMap<NodeId, NodeOwnership>,
    pub(super) vclusters: BTreeMap<VclusterName, VclusterLending>,
    pub(super) work: BTreeMap<AllocationId, HolderFacts>,
    pub(super) timing: Timing,
    pub(super) now: UnixMillis,
}

pub(super) fn name(text: &str) -> VclusterName {
    VclusterName::new(text).unwrap()
}

pub(super) fn id(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

impl Cluster {
    /// vClusters with this many idle nodes of their own: `a000`, `a001`, ….
    pub(super) fn new(sizes: &[(&str, usize)]) -> Self {
        let mut cluster = Self {
            now: NOW,
            ..Self::default()
        };
        for (vcluster, size) in sizes {
            cluster
                .vclusters
                .insert(name(vcluster), VclusterLending::default());
            for n in 0..*size {
                cluster.add(&format!("{vcluster}{n:03}"), vcluster, vcluster);
            }
        }
        cluster
    }

    pub(super) fn add(&mut self, node_name: &str, home: &str, current: &str) -> &mut Self {
        let place = NodeOwnership {
            home: name(home),
            current: name(current),
            planned_for: None,
            is_promised: false,
            moved_at: UnixMillis(0),
            reclaimed_at: None,
        };
        self.view
            .nodes
            .insert(id(node_name), node(&format!("g{home}"), Some(4)));
        self.places.insert(id(node_name), place);
        self
    }

    /// Lends nodes, long ago.
    pub(super) fn lend(&mut self, nodes: &[&str], to: &str) -> &mut Self {
        for node in nodes {
            self.places.get_mut(&id(node)).unwrap().current = name(to);
        }
        self
    }

    /// Gives the nodes to an allocation of class 3 that began an hour ago and has ten of its twenty hours left. Its
    /// checkpoint takes `write_s` seconds.
    pub(super) fn run(&mut self, number: u64, nodes: &[&str], write_s: u64) -> &mut Self {
        use crate::movement::preempt::CheckpointAbility;
        let number = AllocationId(number);
        for node in nodes {
            self.view.nodes.get_mut(&id(node)).unwrap().holder = Some(number);
        }
        let running = RunningView {
            ends_at: Some(NOW.after(10 * HOUR)),
            walltime_ms: Some(20 * HOUR),
            ..RunningView::default()
        };
        self.view.running.insert(number, running);
        let write_ms = write_s * 1000;
        let work = HolderFacts {
            saves: CheckpointAbility::In { write_ms },
            ..work(3)
        };
        self.work.insert(number, work);
        self
    }

    pub(super) fn member(&mut self, vcluster: &str) -> &mut VclusterLending {
        self.vclusters.get_mut(&name(vcluster)).unwrap()
    }

    /// A job of class 5 that waits for nodes, at the end of the vCluster's queue.
    pub(super) fn want(&mut self, vcluster: &str, number: u64, nodes: u32) -> &mut WaitingJob {
        self.want_job(vcluster, number, job(nodes, 5))
    }

    pub(super) fn want_job(
        &mut self,
        vcluster: &str,
        number: u64,
        job: PendingView,
    ) -> &mut WaitingJob {
        self.view.pending.insert(AllocationId(number), job);
        let wanting = WaitingJob {
            id: AllocationId(number),
            saves: true,
            home_only: false,
        };
        let member = self.member(vcluster);
        member.wanting.push(wanting);
        member.wanting.last_mut().unwrap()
    }

    pub(super) fn decide(&self) -> LendingMoves {
        decide(Input {
            view: &self.view,
            solver: &Solver::default(),
            places: &self.places,
            vclusters: &self.vclusters,
            work: &self.work,
            timing: &self.timing,
            now: self.now,
        })
    }

    /// Applies all moves at once; reclaimed nodes are recalled.
    pub(super) fn apply(&mut self, moves: &LendingMoves) {
        let now = self.now;
        let mut put = |node: &NodeId, current: &VclusterName| {
            let place = self.places.get_mut(node).unwrap();
            (place.current, place.moved_at) = (current.clone(), now);
            place.reclaimed_at = None;
            // A plan that used the node is replaced.
            place.planned_for = None;
        };
        moves.returns.iter().for_each(|r| put(&r.node, &r.owner));
        moves.loans.iter().for_each(|l| put(&l.node, &l.borrower));
        for node in &moves.withdrawn {
            self.places.get_mut(node).unwrap().reclaimed_at = None;
        }
        for node in moves.reclaims.iter().flat_map(|r| &r.nodes) {
            self.places.get_mut(node).unwrap().reclaimed_at = Some(now);
        }
    }
}

/// (node, borrower) of each loan.
pub(super) fn loans(moves: &LendingMoves) -> Vec<(&str, &str)> {
    let loans = moves.loans.iter();
    loans
        .map(|l| (l.node.as_str(), l.borrower.as_str()))
        .collect()
}

/// Nodes that are returned.
pub(super) fn returns(moves: &LendingMoves) -> Vec<&str> {
    moves.returns.iter().map(|r| r.node.as_str()).collect()
}

/// (allocation, nodes) of each reclaim.
pub(super) fn reclaims(moves: &LendingMoves) -> Vec<(u64, Vec<&str>)> {
    let reclaims = moves.reclaims.iter();
    reclaims
        .map(|r| (r.from.0, r.nodes.iter().map(NodeId::as_str).collect()))
        .collect()
}
