//! Funnel of constraints: drops the nodes that do not fit a request, and counts the nodes dropped by each constraint.

use super::gpu_model::GpuModels;
use crate::{
    bits::BitSet,
    explain::{Constraint, Step},
    machine::{Machine, index::Index, windows::ReservationChoice},
    queue::request::Request,
};
use lattice_quorum_types::NodeId;

/// Nodes that fit a request. `own` are nodes claimed by the user of the request, which also fit; `named` are the
/// windows of the reservation that the request names.
pub(super) fn fitting(
    machine: &Machine,
    memory: &mut NodesByMemory,
    request: &Request,
    own: Option<&BitSet>,
    named: Option<&ReservationChoice>,
) -> ConstraintFunnel {
    let Machine {
        index, condition, ..
    } = machine;
    let size = index.size();
    let wanted = &request.constraints;
    let mut funnel = ConstraintFunnel::new(size);
    if !wanted.gpu_models.is_empty() {
        funnel.keep(
            Constraint::GpuModel,
            &with_gpu_model(index, &wanted.gpu_models),
        );
    }
    if let Some(least) = wanted.gpus_per_node {
        let sets = index.gpu_counts.range(least..).map(|(_, set)| set);
        funnel.keep(Constraint::GpusPerNode, &union(size, sets));
    }
    if let Some(least) = wanted.memory_bytes {
        funnel.keep(Constraint::Memory, &memory.at_least(index, least));
    }
    if !wanted.features.is_empty() {
        let none = BitSet::empty(size);
        let mut all = BitSet::full(size);
        for feature in &wanted.features {
            all.intersect_with(index.features.get(feature).unwrap_or(&none));
        }
        funnel.keep(Constraint::Features, &all);
    }
    if !wanted.nodelist.is_empty() {
        funnel.keep(Constraint::Nodelist, &listed(index, &wanted.nodelist));
    }
    if !wanted.exclude.is_empty() {
        let mut rest = BitSet::full(size);
        rest.subtract(&listed(index, &wanted.exclude));
        funnel.keep(Constraint::Excluded, &rest);
    }
    if let Some(named) = named {
        let kept = machine.windows.nodes_of(named, size);
        funnel.keep(Constraint::OfReservation, &kept);
    }
    let sound = [&condition.in_service, &condition.promised].into_iter();
    funnel.keep(Constraint::InService, &union(size, sound));
    funnel.keep(Constraint::NotPromised, &condition.in_service);
    funnel.keep(Constraint::Alive, &condition.alive);
    funnel.keep(Constraint::Usable, &condition.usable);
    if request.sensitive {
        funnel.keep(Constraint::Healthy, &condition.healthy);
    }
    if request.home_only {
        funnel.keep(Constraint::Home, &condition.home);
    }
    match own {
        None => funnel.keep(Constraint::Unclaimed, &condition.unclaimed),
        Some(own) => {
            let sets = [&condition.unclaimed, own].into_iter();
            funnel.keep(Constraint::Unclaimed, &union(size, sets));
        }
    }
    funnel
}

/// Nodes with known memory, by memory, ascending; sorted on first use.
#[derive(Debug, Default)]
pub(super) struct NodesByMemory(Option<(BitSet, Vec<(u64, usize)>)>);

impl NodesByMemory {
    /// Nodes with at least `least` bytes.
    fn at_least(&mut self, index: &Index, least: u64) -> BitSet {
        let (all, sorted) = self.0.get_or_insert_with(|| {
            let nodes = index.memory.iter().enumerate();
            let known = nodes.filter_map(|(n, bytes)| Some(((*bytes)?, n)));
            let mut sorted: Vec<(u64, usize)> = known.collect();
            sorted.sort_unstable();
            let all = BitSet::collect(index.size(), sorted.iter().map(|(_, n)| *n));
            (all, sorted)
        });
        let (less, enough) = sorted.split_at(sorted.partition_point(|(has, _)| *has < least));
        if enough.len() < less.len() {
            return BitSet::collect(index.size(), enough.iter().map(|(_, n)| *n));
        }
        let mut left = all.clone();
        less.iter().for_each(|(_, n)| left.remove(*n));
        left
    }
}

/// Drops nodes step by step and counts the dropped ones.
pub(super) struct ConstraintFunnel {
    pub(super) left: BitSet,
    count: u32,
    pub(super) steps: Vec<Step>,
}

impl ConstraintFunnel {
    fn new(size: usize) -> Self {
        let left = BitSet::full(size);
        Self {
            count: left.count(),
            left,
            steps: Vec::new(),
        }
    }

    fn keep(&mut self, constraint: Constraint, fitting: &BitSet) {
        self.left.intersect_with(fitting);
        let left = self.left.count();
        self.steps.push(Step {
            constraint,
            removed: self.count - left,
            left,
        });
        self.count = left;
    }
}

fn union<'a>(size: usize, sets: impl Iterator<Item = &'a BitSet>) -> BitSet {
    let mut all = BitSet::empty(size);
    sets.for_each(|set| all.union_with(set));
    all
}

/// Nodes with one of the wanted GPU models; nodes with an unknown model are left out.
fn with_gpu_model(index: &Index, wanted: &[String]) -> BitSet {
    let wanted = GpuModels::new(wanted);
    let models = index.gpu_models.iter();
    let sets = models.filter(|(model, _)| wanted.matches(model));
    union(index.size(), sets.map(|(_, set)| set))
}

fn listed(index: &Index, names: &[NodeId]) -> BitSet {
    let numbers = names.iter().filter_map(|name| index.find(name));
    BitSet::collect(index.size(), numbers)
}
