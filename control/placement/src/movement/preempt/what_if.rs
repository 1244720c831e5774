//! What-if planning: the solver plans one job as if some running jobs were gone.

use super::{Input, search::Candidate};
use crate::{
    backfill::hold_sets::HoldSets,
    bits::BitSet,
    cycle::Cycle,
    eligibility::sets::{EligibilityCache, EligibleSet, EligibleSets},
    explain::Blocker,
    input::CycleInput,
    limits::headroom::Paths,
    machine::Machine,
    plan::placement::Placement,
    priority::policy::{PlannedReservations, Policy},
    queue::Queue,
    queue_order::Scorer,
    view::{ClusterView, LevelView, PendingView},
};
use lattice_quorum_types::{AllocationId, NodeId, ProjectPath, UnixMillis};
use std::collections::BTreeMap;

/// Kinds of nodes counted separately: conformance groups if the job needs one, else a single kind.
type Kinds = Vec<BitSet>;

/// Plans one job as if others were gone, with all limits unchanged: preemption does not help against a limit.
pub(super) struct WhatIf<'a> {
    /// View for the solver, without nodes: `machine` holds them.
    view: ClusterView,
    policy: Policy,
    machine: Machine,
    queue: Queue,
    sets: EligibleSets,
    paths: Paths,
    kinds: Kinds,
    needed: u32,
    held: BTreeMap<AllocationId, Vec<usize>>,
    full_view: &'a ClusterView,
}

impl<'a> WhatIf<'a> {
    pub(super) fn new(input: &Input<'a>, job: &PendingView) -> Self {
        let whole = input.view;
        let mut machine = Machine::new(whole);
        for name in input.reserved {
            if let Some(n) = machine.index.find(name) {
                machine.condition.in_service.remove(n);
            }
        }
        let view = ClusterView {
            nodes: BTreeMap::new(),
            pending: [(input.job, job.clone())].into(),
            running: BTreeMap::new(),
            levels: levels_of(whole, &job.project),
            ..without_nodes_and_queue(whole)
        };
        let queue = Queue::new(&view.pending);
        let sets = EligibilityCache::default().prepare(&machine, &queue);
        let mut paths = Paths::default();
        paths.add_missing(&view.levels, &queue.projects);
        let set = sets.number(0);
        let mut nodes = sets.get(set).nodes.clone();
        // Nodes reserved for others before the end of the job are of no use to it.
        let kept = HoldSets::new(&machine.windows, &sets, machine.index.size(), input.now.0);
        let end = job.walltime_ms.map(|ms| input.now.after(ms).0);
        kept.for_set(set).drop_held(&mut nodes, end);
        let kinds = match job.sensitive {
            false => vec![nodes],
            true => machine
                .index
                .conformance_members
                .iter()
                .map(|k| k.and(&nodes))
                .collect(),
        };
        let mut held: BTreeMap<AllocationId, Vec<usize>> = BTreeMap::new();
        for (place, node) in whole.nodes.values().enumerate() {
            if let Some(holder) = node.holder {
                held.entry(holder)
                    .or_default()
                    .push(machine.index.number[place]);
            }
        }
        Self {
            view,
            // The job starts now or not at all.
            policy: Policy {
                reservations: PlannedReservations::First(0),
                ..*input.solver
            },
            machine,
            queue,
            sets,
            paths,
            kinds,
            needed: job.nodes,
            held,
            full_view: whole,
        }
    }

    /// Placement of the job at `at` if the candidates `gone` had left; an error with the reason if it would not start.
    pub(super) fn without(
        &mut self,
        gone: &[&Candidate],
        at: UnixMillis,
    ) -> Result<Placement, Blocker> {
        let view = self.view_without(gone);
        let all = || gone.iter().flat_map(|c| c.nodes.iter().copied());
        all().for_each(|n| self.machine.free.insert(n));
        let given = CycleInput {
            view: &view,
            policy: &self.policy,
            machine: &self.machine,
            queue: &self.queue,
            sets: &self.sets,
            paths: &self.paths,
            now: at,
            estimated: None,
            explains: true,
        };
        let scorer = Scorer::new(&given, 0);
        let mut plan = Cycle::new(given).run(&[0], scorer);
        all().for_each(|n| self.machine.free.remove(n));
        match plan.placements.pop() {
            Some(placed) => Ok(placed),
            None => {
                // There is one job, placed or waiting.
                let waiting = plan.waiting.iter().next();
                Err(waiting.map_or(Blocker::NoNodesAsked, |(_, why)| why.blocker))
            }
        }
    }

    /// The view in which `gone` have released their bandwidth and power.
    fn view_without(&self, gone: &[&Candidate]) -> ClusterView {
        let mut view = self.view.clone();
        if !view.storage.is_empty() {
            let is_gone = |id: &AllocationId| gone.iter().any(|c| c.id == *id);
            for (id, running) in &self.full_view.running {
                if !is_gone(id) {
                    view.running.insert(*id, running.clone());
                    continue;
                }
                for (name, mb_s) in &running.storage_mb_s {
                    if let Some(system) = view.storage.get_mut(name) {
                        let back = i64::try_from(*mb_s).unwrap_or(i64::MAX);
                        system.left_mb_s = system.left_mb_s.saturating_add(back);
                    }
                }
            }
        }
        if !view.power.is_empty() {
            let index = &self.machine.index;
            let mut back = vec![0_i64; index.domains.len()];
            let nodes = gone.iter().flat_map(|c| &c.nodes);
            for payer in nodes.filter_map(|n| index.power_supplies[*n]) {
                let mw = i64::try_from(payer.mw).unwrap_or(i64::MAX);
                for d in index.domain_and_ancestors(payer.domain) {
                    back[d] = back[d].saturating_add(mw);
                }
            }
            for (domain, back) in view.power.values_mut().zip(back) {
                domain.headroom_mw = domain.headroom_mw.saturating_add(back);
            }
        }
        view
    }

    fn eligible(&self) -> &EligibleSet {
        self.sets.get(self.sets.number(0))
    }

    /// Nodes held by each allocation.
    pub(super) fn held(&self) -> &BTreeMap<AllocationId, Vec<usize>> {
        &self.held
    }

    pub(super) fn name(&self, n: usize) -> &NodeId {
        &self.machine.index.names[n]
    }

    /// Number of `nodes` that fit the job, by kind.
    pub(super) fn gains(&self, nodes: &[usize]) -> Vec<u32> {
        let of_kind = |kind: &BitSet| nodes.iter().filter(|n| kind.contains(**n)).count();
        let counts = self.kinds.iter().map(of_kind);
        counts
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
            .collect()
    }

    fn free(&self) -> impl Iterator<Item = u32> + '_ {
        let free = &self.machine.free;
        self.kinds.iter().map(|kind| kind.count_common(free))
    }

    /// Number of missing nodes, by kind.
    pub(super) fn missing(&self) -> Vec<u32> {
        self.free()
            .map(|free| self.needed.saturating_sub(free))
            .collect()
    }

    /// Largest number of free nodes of one kind if the candidates `gone` had left.
    pub(super) fn most_free(&self, gone: &[&Candidate]) -> u32 {
        let with = |(kind, free): (usize, u32)| {
            let freed = gone.iter().map(|c| c.gains[kind]);
            freed.fold(free, u32::saturating_add)
        };
        self.free().enumerate().map(with).max().unwrap_or(0)
    }

    /// Number of GPUs of these nodes; a node without GPUs, or with an unknown number, counts as one GPU.
    pub(super) fn gpus(&self, nodes: &[usize]) -> u64 {
        let gpus = nodes.iter().map(|n| self.machine.index.gpus[*n].max(1));
        gpus.map(u64::from).sum()
    }

    /// Mean number of GPUs of the nodes that fit the job.
    pub(super) fn gpus_per_node(&self) -> f64 {
        let nodes: Vec<usize> = self.eligible().nodes.iter().collect();
        self.gpus(&nodes) as f64 / nodes.len().max(1) as f64
    }
}

/// Parts of the view needed to plan one job, apart from nodes, queue and limits.
fn without_nodes_and_queue(view: &ClusterView) -> ClusterView {
    ClusterView {
        revision: view.revision,
        age_ms: view.age_ms,
        limit_policy: view.limit_policy,
        sensitive_pool: view.sensitive_pool,
        storage: view.storage.clone(),
        power: view.power.clone(),
        ..ClusterView::default()
    }
}

/// Limits of a project and of all projects above it.
fn levels_of(view: &ClusterView, project: &ProjectPath) -> BTreeMap<ProjectPath, LevelView> {
    let levels = view
        .levels
        .iter()
        .filter(|(path, _)| project.is_within(path));
    levels.map(|(path, level)| (path.clone(), *level)).collect()
}
