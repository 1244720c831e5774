//! Builders of small machines with running allocations.

use super::super::*;
use crate::view::{ConformanceKey, Health, LevelView, Liveness, NodeFacts, NodeView};
use lattice_quorum_types::{
    ProjectPath,
    limit::{Limits, Usage},
    spec::Constraints,
};

pub(in crate::movement) const NOW: UnixMillis = UnixMillis(100_000_000_000);
pub(in crate::movement) const MINUTE: u64 = 60_000;
pub(in crate::movement) const HOUR: u64 = 60 * MINUTE;

pub(in crate::movement) fn id(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

pub(in crate::movement) fn node(group: &str, gpus: Option<u32>) -> NodeView {
    NodeView {
        version: 1,
        in_service: true,
        promised: false,
        holder: None,
        owner: None,
        borrowed: false,
        facts: NodeFacts {
            liveness: Liveness::Alive,
            health: Health::Healthy,
            group: Some(group.to_owned()),
            conformance: ConformanceKey::Known([1; 32]),
            gpu_count: gpus,
            ..NodeFacts::default()
        },
    }
}

/// A new job that requests an hour.
pub(in crate::movement) fn job(nodes: u32, class: u8) -> PendingView {
    PendingView {
        user: "alice".to_owned(),
        project: ProjectPath::new("t").unwrap(),
        nodes,
        walltime_ms: Some(HOUR),
        class,
        sensitive: false,
        constraints: Constraints::default(),
        submitted_at: NOW,
        eligible_at: NOW,
        data_ready: None,
        checkpoint_ms: None,
        storage_mb_s: BTreeMap::new(),
        reservation: None,
        home_only: false,
    }
}

/// Began an hour ago, writes a checkpoint in two minutes.
pub(in crate::movement) fn work(class: u8) -> HolderFacts {
    HolderFacts {
        class,
        sensitive: false,
        state: AllocationState::Running,
        since: UnixMillis(NOW.0 - HOUR),
        ran_before_ms: 0,
        checkpointed_at: None,
        saves: CheckpointAbility::In {
            write_ms: 2 * MINUTE,
        },
        preempted: 0,
        moved_at: None,
        burst: false,
    }
}

pub(in crate::movement) fn level(
    view: &mut ClusterView,
    path: &str,
    max_nodes: Option<u64>,
    used: u64,
) {
    let level = LevelView {
        limits: Limits {
            max_nodes,
            max_concurrent_allocations: None,
        },
        own: Usage {
            nodes: used,
            allocations: 1,
        },
        subtree: Usage::default(),
    };
    view.levels.insert(ProjectPath::new(path).unwrap(), level);
}

/// A vCluster, with all inputs of a choice.
#[derive(Debug, Clone, Default)]
pub(in crate::movement) struct Site {
    pub(in crate::movement) view: ClusterView,
    pub(in crate::movement) work: BTreeMap<AllocationId, HolderFacts>,
    pub(in crate::movement) reserved: BTreeSet<NodeId>,
    pub(in crate::movement) borrowed: BTreeSet<NodeId>,
    pub(in crate::movement) policy: Policy,
    pub(in crate::movement) planned_start: Option<UnixMillis>,
}

impl Site {
    /// `groups` groups of `size` equal free nodes with four GPUs: `g0n00`, `g0n01`, ….
    pub(in crate::movement) fn new(groups: usize, size: usize) -> Self {
        let mut site = Self::default();
        for g in 0..groups {
            for n in 0..size {
                let node = node(&format!("g{g}"), Some(4));
                site.view.nodes.insert(id(&format!("g{g}n{n:02}")), node);
            }
        }
        level(&mut site.view, "t", None, 0);
        site
    }

    /// Gives the nodes to an allocation that has used half of its walltime.
    pub(in crate::movement) fn run(
        &mut self,
        number: u64,
        nodes: &[&str],
        ends_in: u64,
        work: HolderFacts,
    ) -> &mut Self {
        let running = RunningView {
            ends_at: Some(NOW.after(ends_in)),
            walltime_ms: Some(2 * ends_in),
            ..RunningView::default()
        };
        self.view.running.insert(AllocationId(number), running);
        for name in nodes {
            self.view.nodes.get_mut(&id(name)).unwrap().holder = Some(AllocationId(number));
        }
        self.work.insert(AllocationId(number), work);
        self
    }

    /// Submits the job as allocation 1.
    pub(in crate::movement) fn ask(&mut self, job: PendingView) -> &mut Self {
        self.view.pending.insert(AllocationId(1), job);
        self
    }

    pub(in crate::movement) fn choose(&self) -> Result<Victims, NoVictims> {
        choose(Input {
            view: &self.view,
            solver: &Solver::default(),
            job: AllocationId(1),
            planned_start: self.planned_start,
            holders: &self.work,
            reserved: &self.reserved,
            borrowed: &self.borrowed,
            policy: &self.policy,
            now: NOW,
        })
    }

    /// Ids of the victims.
    pub(in crate::movement) fn victims(&self) -> Vec<u64> {
        let chosen = self.choose().unwrap();
        chosen.victims.iter().map(|v| v.id.0).collect()
    }

    /// Protection of allocation 90, alone on one node, from a job of one node.
    pub(in crate::movement) fn kept(&self) -> Protection {
        match self.choose() {
            Err(NoVictims::NoCandidate { kept }) => *kept.keys().next().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}
