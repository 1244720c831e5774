//! Constraints: which nodes fit a job, were all of them free, and what each constraint dropped.

use crate::{
    bits::BitSet,
    explain::{Constraint, Step},
    index::Index,
    machine::Machine,
    queue::Queue,
    view::Owner,
};
use lattice_quorum_types::{NodeId, ProjectPath, spec::Constraints};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// What jobs with equal constraints ask of a node, sensitive ones among themselves. The layout does not
/// matter.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) constraints: Constraints,
    pub(crate) sensitive: bool,
}

/// The nodes that fit one request.
#[derive(Debug)]
pub(crate) struct Eligible {
    pub(crate) nodes: BitSet,
    pub(crate) count: u32,
    /// What each constraint dropped.
    pub(crate) steps: Arc<[Step]>,
    /// Size of the largest conformance group among them.
    pub(crate) largest_group: u32,
    /// Those that the user of these jobs has claimed for them.
    pub(crate) own: Option<BitSet>,
    /// How many of them each topology group has, the most first, added up.
    pub(crate) by_span: Arc<[u32]>,
    /// Memory of all GPUs of a node, bytes: the mean of those of which it is known.
    pub(crate) gpu_memory_bytes: Option<u64>,
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

impl Eligible {
    /// `own` are nodes that its user has claimed: they may be had too.
    fn new(index: &Index, condition: &Condition, request: &Request, own: Option<&BitSet>) -> Self {
        let size = index.size();
        let wanted = &request.constraints;
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
            let mut all = BitSet::full(size);
            for feature in &wanted.features {
                all.keep(index.features.get(feature).unwrap_or(&none));
            }
            funnel.keep(Constraint::Features, &all);
        }
        if !wanted.nodelist.is_empty() {
            funnel.keep(Constraint::Nodelist, &named(index, &wanted.nodelist));
        }
        if !wanted.exclude.is_empty() {
            let mut rest = BitSet::full(size);
            rest.drop_all(&named(index, &wanted.exclude));
            funnel.keep(Constraint::Excluded, &rest);
        }
        funnel.keep(Constraint::InService, &condition.in_service);
        funnel.keep(Constraint::Alive, &condition.alive);
        funnel.keep(Constraint::Usable, &condition.usable);
        if request.sensitive {
            funnel.keep(Constraint::Healthy, &condition.healthy);
        }
        match own {
            None => funnel.keep(Constraint::Unclaimed, &condition.unclaimed),
            Some(own) => {
                let sets = [&condition.unclaimed, own].into_iter();
                funnel.keep(Constraint::Unclaimed, &union(size, sets));
            }
        }
        let own = own.map(|own| own.and(&funnel.left));
        let largest_group = index.count_by_conformance(&funnel.left).into_iter().max();
        let memory = funnel.left.iter().filter_map(|n| index.gpu_memory[n]);
        let add = |(known, bytes), more| (known + 1, bytes + u128::from(more));
        let (known, bytes) = memory.fold((0_u128, 0_u128), add);
        let gpu_memory = bytes.checked_div(known);
        Self {
            count: funnel.count,
            steps: funnel.steps.into(),
            largest_group: largest_group.unwrap_or(0),
            own,
            by_span: by_span(index, &funnel.left).into(),
            // A mean is no larger than the largest.
            gpu_memory_bytes: gpu_memory.and_then(|bytes| u64::try_from(bytes).ok()),
            nodes: funnel.left,
        }
    }
}

/// How many of `nodes` the 1, 2, … groups hold together that have the most.
pub(crate) fn by_span(index: &Index, nodes: &BitSet) -> Vec<u32> {
    let by_group = index.count_by_group(nodes);
    let mut counts: Vec<u32> = by_group.into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let mut held = 0;
    for count in &mut counts {
        held += *count;
        *count = held;
    }
    counts
}

/// The fewest groups that hold so many nodes; `None` where all of them together do not.
pub(crate) fn span_of(by_span: &[u32], nodes: u32) -> Option<usize> {
    let fewer = by_span.partition_point(|held| *held < nodes);
    (fewer < by_span.len()).then_some(fewer + 1)
}

impl Condition {
    pub(crate) fn own(&self, (user, project): (&str, &ProjectPath)) -> Option<&BitSet> {
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
        let left = BitSet::full(size);
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
    let mut all = BitSet::empty(size);
    sets.for_each(|set| all.add_all(set));
    all
}

/// A model that is not known matches nothing.
fn with_gpu_model(index: &Index, wanted: &[String]) -> BitSet {
    let wanted: Vec<String> = wanted.iter().map(|w| w.to_lowercase()).collect();
    let matches = |model: &str| {
        let model = model.to_lowercase();
        wanted.iter().any(|w| model.contains(w.as_str()))
    };
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

/// Everything of a request, to compare it by.
type Key<'a> = (
    bool,
    &'a [String],
    Option<u32>,
    Option<u64>,
    &'a [String],
    &'a [NodeId],
    &'a [NodeId],
);

pub(crate) fn key(wanted: &Constraints, sensitive: bool) -> Key<'_> {
    (
        sensitive,
        &wanted.gpu_models,
        wanted.gpus_per_node,
        wanted.memory_bytes,
        &wanted.features,
        &wanted.nodelist,
        &wanted.exclude,
    )
}

/// The nodes that fit each request, kept from plan to plan while they are the same.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    stamp: u64,
    by_request: Vec<Eligible>,
}

/// The nodes that fit, for every job of one plan.
#[derive(Debug)]
pub(crate) struct EligibleSets<'a> {
    kept: &'a [Eligible],
    /// Those with nodes that a user has claimed, of whoever has.
    claimed: Vec<Eligible>,
    /// The set of each job.
    of_job: Vec<u32>,
}

impl Kept {
    /// Makes what is missing.
    pub(crate) fn prepare<'a>(&'a mut self, machine: &Machine, queue: &Queue) -> EligibleSets<'a> {
        let (index, condition) = (&machine.index, &machine.condition);
        if self.stamp != machine.stamp {
            self.by_request.clear();
            self.stamp = machine.stamp;
        }
        let known = self.by_request.len();
        let missing = queue.requests.iter().skip(known);
        self.by_request
            .extend(missing.map(|request| Eligible::new(index, condition, request, None)));
        let own: Vec<Option<&BitSet>> = queue
            .claimants
            .iter()
            .map(|(user, project)| condition.own((user, project)))
            .collect();
        let mut numbers = BTreeMap::new();
        let mut claimed = Vec::new();
        let mut of_job = Vec::with_capacity(queue.jobs.len());
        for job in queue.jobs.iter() {
            let request = queue.requests.get(job.request);
            let set = match own.get(job.claimant as usize).copied().flatten() {
                Some(own) => *numbers
                    .entry((job.request, job.claimant))
                    .or_insert_with(|| {
                        claimed.push(Eligible::new(index, condition, request, Some(own)));
                        (queue.requests.len() + claimed.len() - 1) as u32
                    }),
                None => job.request,
            };
            of_job.push(set);
        }
        EligibleSets {
            kept: &self.by_request,
            claimed,
            of_job,
        }
    }
}

impl EligibleSets<'_> {
    /// The number of a job's set, by the job's place in the queue.
    pub(crate) fn number(&self, job: usize) -> usize {
        self.of_job[job] as usize
    }

    /// Each that a job has, once.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Eligible> {
        let mut used = vec![false; self.len()];
        self.of_job
            .iter()
            .for_each(|set| used[*set as usize] = true);
        let used = used.into_iter().enumerate();
        let used = used.filter(|(_, used)| *used);
        used.map(|(set, _)| self.get(set))
    }

    /// One above the largest number.
    pub(crate) fn len(&self) -> usize {
        self.kept.len() + self.claimed.len()
    }

    pub(crate) fn get(&self, number: usize) -> &Eligible {
        match number.checked_sub(self.kept.len()) {
            None => &self.kept[number],
            Some(claimed) => &self.claimed[claimed],
        }
    }
}
