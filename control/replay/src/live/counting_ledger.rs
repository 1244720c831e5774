//! Ledger that accepts every change and only counts usage, for thousands of replays of one trace. The solver applies
//! the same limits ([`lattice_quorum_types::limit_policy::Rules`]) to the same usage. The result equals that with the
//! quorum as long as the quorum refuses nothing. The quorum refuses a submit that exceeds a limit at once; with this
//! ledger, such a job waits. Use this ledger for exploration, and confirm results with the quorum.

use super::ledger::{Ledger, Power, VclusterChanges, delta_of};
use crate::cluster::Cluster;
use lattice_placement::{ClusterView, LevelView, NodeView, PendingView};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, Refusal, UnixMillis, VclusterName,
    command::ExpectedNode,
    limit::{Limits, Usage},
    spec::AllocationSpec,
};
use std::collections::BTreeMap;

/// Ledger that accepts every change.
pub(super) struct CountingLedger<'a> {
    cluster: &'a Cluster,
    last_id: u64,
    now: UnixMillis,
    /// Project of each waiting allocation.
    waiting: BTreeMap<AllocationId, ProjectPath>,
    running: BTreeMap<AllocationId, RunningJob>,
    levels: BTreeMap<ProjectPath, LevelView>,
    power: Power<'a>,
    changes: VclusterChanges,
}

struct RunningJob {
    project: ProjectPath,
    nodes: Vec<NodeId>,
}

impl<'a> CountingLedger<'a> {
    pub(super) fn new(cluster: &'a Cluster, more: Vec<ProjectPath>) -> Self {
        let level = |limits: Limits| LevelView {
            limits,
            own: Usage::default(),
            subtree: Usage::default(),
        };
        let known = cluster
            .projects
            .iter()
            .map(|(path, limits)| (path.clone(), level(*limits)));
        let open = Limits {
            max_nodes: None,
            max_concurrent_allocations: None,
        };
        let more = more.into_iter().map(|path| (path, level(open)));
        Self {
            cluster,
            last_id: 0,
            now: UnixMillis(0),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            levels: known.chain(more).collect(),
            power: Power::new(cluster),
            changes: VclusterChanges::new(),
        }
    }

    fn count(&mut self, project: &ProjectPath, of: impl Fn(Usage) -> Usage) {
        for path in project.ancestors() {
            let is_own = path == *project;
            let Some(level) = self.levels.get_mut(&path) else {
                continue;
            };
            let counted = if is_own {
                &mut level.own
            } else {
                &mut level.subtree
            };
            *counted = of(*counted);
            for vcluster in self.cluster.vclusters.keys() {
                let delta = delta_of(&mut self.changes, vcluster);
                delta.levels.insert(path.clone(), Some(*level));
            }
        }
    }

    fn node(&self, node: &NodeId, version: u64, holder: Option<AllocationId>) -> Option<NodeView> {
        let host = self.cluster.nodes.get(node)?;
        Some(NodeView {
            version,
            in_service: true,
            promised: false,
            holder,
            owner: None,
            borrowed: false,
            facts: host.facts.clone(),
        })
    }
}

impl Ledger for CountingLedger<'_> {
    const PLANNERS_FOLLOW: bool = true;

    fn submit(
        &mut self,
        user: &str,
        spec: AllocationSpec,
        at: UnixMillis,
    ) -> Result<AllocationId, Refusal> {
        self.last_id += 1;
        self.now = at;
        let id = AllocationId(self.last_id);
        let vcluster = spec.vcluster.clone();
        let waits = PendingView {
            user: user.to_owned(),
            project: spec.project,
            nodes: spec.nodes,
            walltime_ms: spec.walltime_ms,
            class: spec.class,
            sensitive: spec.sensitive,
            constraints: spec.constraints,
            submitted_at: at,
            eligible_at: at,
            data_ready: None,
            checkpoint_ms: None,
            storage_mb_s: BTreeMap::new(),
            reservation: None,
            home_only: false,
        };
        self.waiting.insert(id, waits.project.clone());
        delta_of(&mut self.changes, &vcluster)
            .pending
            .insert(id, Some(waits));
        Ok(id)
    }

    fn assign(
        &mut self,
        id: AllocationId,
        nodes: Vec<ExpectedNode>,
        _: &VclusterName,
        _: UnixMillis,
    ) -> Result<(), Refusal> {
        let project = self
            .waiting
            .remove(&id)
            .ok_or(Refusal::UnknownAllocation { id })?;
        let nodes: Vec<NodeId> = nodes.into_iter().map(|expected| expected.node).collect();
        for node in &nodes {
            self.power.draw(node, true, &mut self.changes);
        }
        let count = nodes.len() as u64;
        self.count(&project, |used| Usage {
            nodes: used.nodes + count,
            allocations: used.allocations + 1,
        });
        self.running.insert(id, RunningJob { project, nodes });
        Ok(())
    }

    fn end(&mut self, id: AllocationId, at: UnixMillis) -> Result<(), Refusal> {
        self.now = at;
        let held = self
            .running
            .remove(&id)
            .ok_or(Refusal::UnknownAllocation { id })?;
        for node in &held.nodes {
            self.power.draw(node, false, &mut self.changes);
        }
        let count = held.nodes.len() as u64;
        self.count(&held.project, |used| Usage {
            nodes: used.nodes - count,
            allocations: used.allocations - 1,
        });
        Ok(())
    }

    fn view(&self, vcluster: &VclusterName) -> ClusterView {
        let nodes = self.cluster.nodes.iter();
        let nodes = nodes.filter(|(_, host)| host.vcluster == *vcluster);
        ClusterView {
            nodes: nodes
                .filter_map(|(name, _)| Some((name.clone(), self.node(name, 1, None)?)))
                .collect(),
            levels: self.levels.clone(),
            limit_policy: self.cluster.limit_policy,
            power: self.power.domains().collect(),
            ..ClusterView::default()
        }
    }

    fn take_changes(&mut self) -> VclusterChanges {
        let mut news = std::mem::take(&mut self.changes);
        for delta in news.values_mut() {
            delta.limit_policy = self.cluster.limit_policy;
        }
        news
    }

    fn now(&self) -> UnixMillis {
        self.now
    }

    fn commands(&self) -> u64 {
        0
    }
}
