//! Constraints: which nodes fit a job, were all of them free, and what each constraint dropped.

use crate::{
    bits::BitSet,
    explain::{Constraint, Step},
    index::Index,
    view::{Owner, PendingView},
};
use lattice_quorum_types::{NodeId, ProjectPath, spec::Constraints};
use std::collections::BTreeMap;

/// The nodes that fit one set of constraints; jobs with equal constraints share it, sensitive ones
/// among themselves.
#[derive(Debug)]
pub(crate) struct Eligible {
    pub(crate) nodes: BitSet,
    pub(crate) count: u32,
    /// What each constraint dropped.
    pub(crate) steps: Vec<Step>,
    /// Size of the largest conformance group among them.
    pub(crate) largest_group: u32,
    /// Those that the user of these jobs has claimed for them.
    pub(crate) own: Option<BitSet>,
}

/// Conditions on a node that jobs have whatever they ask for, as sets.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) in_service: BitSet,
    pub(crate) alive: BitSet,
    pub(crate) usable: BitSet,
    /// What sensitive work asks for beyond that.
    pub(crate) healthy: BitSet,
    /// Nobody has claimed it.
    pub(crate) unclaimed: BitSet,
    /// What somebody has claimed, for sensitive work of one project.
    pub(crate) claimed: BTreeMap<Owner, BitSet>,
}

/// What decides about a node beside the constraints that a job names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Whose<'a> {
    pub(crate) sensitive: bool,
    /// Whose claimed nodes it may have too; `None` where its user has none.
    pub(crate) claimant: Option<(&'a str, &'a ProjectPath)>,
}

impl Eligible {
    fn new(index: &Index, condition: &Condition, wanted: &Constraints, whose: Whose<'_>) -> Self {
        let size = index.size();
        let mut funnel = Funnel::new(size);
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
            let enough = |n: &usize| index.memory[*n].is_some_and(|bytes| bytes >= least);
            funnel.keep(
                Constraint::Memory,
                &BitSet::collect(size, (0..size).filter(enough)),
            );
        }
        if !wanted.features.is_empty() {
            let none = BitSet::empty(size);
            let mut all = BitSet::collect(size, 0..size);
            for feature in &wanted.features {
                all.keep(index.features.get(feature).unwrap_or(&none));
            }
            funnel.keep(Constraint::Features, &all);
        }
        if !wanted.nodelist.is_empty() {
            funnel.keep(Constraint::Nodelist, &named(index, &wanted.nodelist));
        }
        if !wanted.exclude.is_empty() {
            let mut rest = BitSet::collect(size, 0..size);
            rest.drop_all(&named(index, &wanted.exclude));
            funnel.keep(Constraint::Excluded, &rest);
        }
        funnel.keep(Constraint::InService, &condition.in_service);
        funnel.keep(Constraint::Alive, &condition.alive);
        funnel.keep(Constraint::Usable, &condition.usable);
        if whose.sensitive {
            funnel.keep(Constraint::Healthy, &condition.healthy);
        }
        let own = whose.claimant.and_then(|claimant| condition.own(claimant));
        match own {
            None => funnel.keep(Constraint::Unclaimed, &condition.unclaimed),
            Some(own) => {
                let sets = [&condition.unclaimed, own].into_iter();
                funnel.keep(Constraint::Unclaimed, &union(size, sets));
            }
        }
        let own = own.map(|own| own.and(&funnel.left));
        let largest_group = index.count_by_conformance(&funnel.left).into_iter().max();
        Self {
            count: funnel.left.count(),
            nodes: funnel.left,
            steps: funnel.steps,
            largest_group: largest_group.unwrap_or(0),
            own,
        }
    }
}

impl Condition {
    fn own(&self, (user, project): (&str, &ProjectPath)) -> Option<&BitSet> {
        let owner = Owner {
            user: user.to_owned(),
            project: project.clone(),
        };
        self.claimed.get(&owner)
    }
}

/// Drops nodes step by step and counts them.
struct Funnel {
    left: BitSet,
    count: u32,
    steps: Vec<Step>,
}

impl Funnel {
    fn new(size: usize) -> Self {
        let left = BitSet::collect(size, 0..size);
        Self {
            count: left.count(),
            left,
            steps: Vec::new(),
        }
    }

    fn keep(&mut self, constraint: Constraint, fitting: &BitSet) {
        self.left.keep(fitting);
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
    BitSet::collect(size, sets.flat_map(BitSet::iter))
}

/// A model that is not known matches nothing.
fn with_gpu_model(index: &Index, wanted: &[String]) -> BitSet {
    let wanted: Vec<String> = wanted.iter().map(|w| w.to_lowercase()).collect();
    let matches = |model: &str| wanted.iter().any(|w| model.contains(w.as_str()));
    let sets = index
        .gpu_models
        .iter()
        .filter(|(model, _)| matches(model))
        .map(|(_, set)| set);
    union(index.size(), sets)
}

fn named(index: &Index, names: &[NodeId]) -> BitSet {
    let mut names: Vec<&NodeId> = names.iter().collect();
    names.sort_unstable();
    let listed = |n: &usize| names.binary_search(&&index.names[*n]).is_ok();
    BitSet::collect(index.size(), (0..index.size()).filter(listed))
}

/// Everything of a job that decides whether a node fits; the layout does not.
type Key<'a> = (
    Whose<'a>,
    &'a [String],
    Option<u32>,
    Option<u64>,
    &'a [String],
    &'a [NodeId],
    &'a [NodeId],
);

fn key<'a>(wanted: &'a Constraints, whose: Whose<'a>) -> Key<'a> {
    (
        whose,
        &wanted.gpu_models,
        wanted.gpus_per_node,
        wanted.memory_bytes,
        &wanted.features,
        &wanted.nodelist,
        &wanted.exclude,
    )
}

/// All sets of constraints met so far in one cycle.
#[derive(Debug)]
pub(crate) struct EligibleSets<'a> {
    index: &'a Index,
    condition: Condition,
    numbers: BTreeMap<Key<'a>, usize>,
    sets: Vec<Eligible>,
}

impl<'a> EligibleSets<'a> {
    pub(crate) fn new(index: &'a Index, condition: Condition) -> Self {
        Self {
            index,
            condition,
            numbers: BTreeMap::new(),
            sets: Vec::new(),
        }
    }

    /// The number of the set for this job's constraints, of sensitive work or other.
    pub(crate) fn number(&mut self, job: &'a PendingView) -> usize {
        let claimant = (job.user.as_str(), &job.project);
        let has_claims = job.sensitive && self.condition.own(claimant).is_some();
        let whose = Whose {
            sensitive: job.sensitive,
            claimant: has_claims.then_some(claimant),
        };
        let wanted = &job.constraints;
        *self.numbers.entry(key(wanted, whose)).or_insert_with(|| {
            let set = Eligible::new(self.index, &self.condition, wanted, whose);
            self.sets.push(set);
            self.sets.len() - 1
        })
    }

    pub(crate) fn get(&self, number: usize) -> &Eligible {
        &self.sets[number]
    }
}
