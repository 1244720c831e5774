//! Constraints: the nodes that fit a job if all were free, and the nodes dropped by each constraint.

use crate::{
    bits::BitSet,
    explain::{Constraint, Step},
    gpu_model::GpuModels,
    index::Index,
    machine::Machine,
    queue::{NONE, Queue},
    view::Owner,
    windows::{Named, Naming, Windows},
};
use lattice_quorum_types::{NodeId, ProjectPath, spec::Constraints};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// Node requirements shared by jobs with equal constraints; sensitive jobs share only among themselves. The layout is
/// not part of the requirements.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) constraints: Constraints,
    pub(crate) sensitive: bool,
    /// Whether lent nodes are excluded.
    pub(crate) home_only: bool,
    /// The reservation that the jobs name, with their user and project.
    pub(crate) naming: Option<Naming>,
}

impl Request {
    pub(crate) fn key(&self) -> Key<'_> {
        key(
            &self.constraints,
            (self.sensitive, self.home_only),
            self.naming.as_ref(),
        )
    }

    fn named(&self, windows: &Windows) -> Option<Named> {
        Some(windows.named(self.naming.as_ref()?))
    }
}

/// Set of nodes that fits requests. Requests with the same nodes share it; sensitive ones share only among themselves,
/// and so do those with the same result of a named reservation.
#[derive(Debug)]
pub(crate) struct Eligible {
    pub(crate) nodes: BitSet,
    pub(crate) count: u32,
    /// Size of the largest conformance group among the nodes.
    pub(crate) largest_group: u32,
    /// Nodes that the user of these jobs has claimed for them.
    pub(crate) own: Option<BitSet>,
    /// Cumulative node counts of the topology groups, largest groups first.
    pub(crate) by_span: Arc<[u32]>,
    /// Memory of all GPUs of a node, bytes: the mean over nodes for which it is known.
    pub(crate) gpu_memory_bytes: Option<u64>,
    /// Windows that apply to jobs that name a reservation.
    pub(crate) named: Option<Named>,
}

/// Node conditions that apply whatever a job requests, as sets.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) in_service: BitSet,
    /// In service apart from being promised.
    pub(crate) promised: BitSet,
    pub(crate) alive: BitSet,
    pub(crate) usable: BitSet,
    /// Additional condition for sensitive jobs.
    pub(crate) healthy: BitSet,
    /// Not claimed by any user.
    pub(crate) unclaimed: BitSet,
    /// Home vCluster is this one, so not lent to it.
    pub(crate) home: BitSet,
    /// Nodes claimed for sensitive jobs, by user and project.
    pub(crate) claimed: BTreeMap<Owner, BitSet>,
}

impl Eligible {
    fn new(index: &Index, nodes: BitSet, own: Option<&BitSet>, named: Option<Named>) -> Self {
        let largest_group = index.count_by_conformance(&nodes).into_iter().max();
        let memory = nodes.iter().filter_map(|n| index.gpu_memory[n]);
        let add = |(known, bytes), more| (known + 1, bytes + u128::from(more));
        let (known, bytes) = memory.fold((0_u128, 0_u128), add);
        let gpu_memory = bytes.checked_div(known);
        Self {
            count: nodes.count(),
            largest_group: largest_group.unwrap_or(0),
            own: own.map(|own| own.and(&nodes)),
            by_span: by_span(index, &nodes).into(),
            // A mean does not exceed the maximum.
            gpu_memory_bytes: gpu_memory.and_then(|bytes| u64::try_from(bytes).ok()),
            nodes,
            named,
        }
    }
}

/// Cumulative counts: entry i is the number of `nodes` in the i + 1 largest topology groups.
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

/// Fewest groups that hold `nodes` nodes; `None` if all groups together hold fewer.
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

/// Nodes that fit a request. `own` are nodes claimed by its user, which may be used too; `named` are the windows of the
/// reservation that it names.
fn fitting(
    machine: &Machine,
    memory: &mut Memory,
    request: &Request,
    own: Option<&BitSet>,
    named: Option<&Named>,
) -> Funnel {
    let Machine {
        index, condition, ..
    } = machine;
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
        funnel.keep(Constraint::Memory, &memory.at_least(index, least));
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
        funnel.keep(Constraint::Nodelist, &listed(index, &wanted.nodelist));
    }
    if !wanted.exclude.is_empty() {
        let mut rest = BitSet::full(size);
        rest.drop_all(&listed(index, &wanted.exclude));
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
struct Memory(Option<(BitSet, Vec<(u64, usize)>)>);

impl Memory {
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

/// An unknown model matches no node.
fn with_gpu_model(index: &Index, wanted: &[String]) -> BitSet {
    let wanted = GpuModels::new(wanted);
    let models = index.gpu_models.iter();
    let sets = models.filter(|(model, _)| wanted.has(model));
    union(index.size(), sets.map(|(_, set)| set))
}

fn listed(index: &Index, names: &[NodeId]) -> BitSet {
    let numbers = names.iter().filter_map(|name| index.find(name));
    BitSet::collect(index.size(), numbers)
}

/// All fields of a request, as a comparison key.
pub(crate) type Key<'a> = (
    (bool, bool),
    &'a [String],
    Option<u32>,
    Option<u64>,
    &'a [String],
    &'a [NodeId],
    &'a [NodeId],
    Option<&'a Naming>,
);

pub(crate) fn key<'a>(
    wanted: &'a Constraints,
    (sensitive, home_only): (bool, bool),
    naming: Option<&'a Naming>,
) -> Key<'a> {
    (
        (sensitive, home_only),
        &wanted.gpu_models,
        wanted.gpus_per_node,
        wanted.memory_bytes,
        &wanted.features,
        &wanted.nodelist,
        &wanted.exclude,
        naming,
    )
}

/// Cache kept from plan to plan while the nodes are unchanged.
#[derive(Debug, Default)]
pub(crate) struct EligibilityCache {
    stamp: u64,
    memory: Memory,
    sets: Vec<Arc<Eligible>>,
    /// Position of each set, by whether it is for sensitive jobs, by the result of a named reservation, and by its
    /// nodes.
    by_nodes: BTreeMap<(bool, Option<Named>, BitSet), usize>,
    /// `None` for a request that no job has had since the nodes changed.
    by_request: Vec<Option<Fitting>>,
}

/// Nodes that fit one request.
#[derive(Debug, Clone)]
struct Fitting {
    /// Position of the request's set of nodes.
    set: usize,
    /// Nodes dropped by each constraint.
    steps: Arc<[Step]>,
}

/// Eligible nodes of every job of one plan; the plan keeps them.
#[derive(Debug, Clone, Default)]
pub(crate) struct EligibleSets {
    /// Each set that a job has, once.
    sets: Arc<Vec<Arc<Eligible>>>,
    /// Each request that a job has, once.
    asked: Arc<Vec<EligibleRequest>>,
    /// Position of each job's request in `asked`.
    of_job: Arc<Vec<u32>>,
}

/// One request, with its funnel for explanations.
#[derive(Debug)]
pub(crate) struct EligibleRequest {
    /// Number of its set of nodes.
    set: u32,
    /// Nodes dropped by each constraint.
    pub(crate) steps: Arc<[Step]>,
}

impl EligibilityCache {
    /// Computes the sets missing for the present jobs only: the queue also holds requests of jobs that are gone.
    pub(crate) fn prepare(&mut self, machine: &Machine, queue: &Queue) -> EligibleSets {
        if self.stamp != machine.stamp {
            *self = Self {
                stamp: machine.stamp,
                ..Self::default()
            };
        }
        self.by_request.resize(queue.requests.len(), None);
        let own: Vec<Option<&BitSet>> = queue
            .claimants
            .iter()
            .map(|(user, project)| machine.condition.own((user, project)))
            .collect();
        let mut sets = Vec::new();
        let mut asked = Vec::new();
        // Numbers of this plan, at most one per job; there are fewer than 2^32 jobs.
        let mut of_kept = vec![NONE; self.sets.len()];
        let mut of_request = vec![NONE; queue.requests.len()];
        // Sets that include claimed nodes, by request and claimant.
        let mut claimed = BTreeMap::new();
        let mut of_job = Vec::with_capacity(queue.jobs.len());
        for job in queue.jobs.iter() {
            let own = own.get(job.claimant as usize).copied().flatten();
            let number = match own {
                Some(_) => claimed.entry((job.request, job.claimant)).or_insert(NONE),
                None => &mut of_request[job.request as usize],
            };
            if *number == NONE {
                let fitting = match own {
                    Some(own) => {
                        let request = queue.requests.get(job.request);
                        let named = request.named(&machine.windows);
                        let memory = &mut self.memory;
                        let found = fitting(machine, memory, request, Some(own), named.as_ref());
                        let index = &machine.index;
                        let set = Eligible::new(index, found.left, Some(own), named);
                        sets.push(Arc::new(set));
                        EligibleRequest {
                            set: sets.len() as u32 - 1,
                            steps: found.steps.into(),
                        }
                    }
                    None => {
                        let Fitting { set, steps } = self.fitting(machine, queue, job.request);
                        of_kept.resize(self.sets.len(), NONE);
                        if of_kept[set] == NONE {
                            of_kept[set] = sets.len() as u32;
                            sets.push(self.sets[set].clone());
                        }
                        EligibleRequest {
                            set: of_kept[set],
                            steps,
                        }
                    }
                };
                *number = asked.len() as u32;
                asked.push(fitting);
            }
            of_job.push(*number);
        }
        EligibleSets {
            sets: Arc::new(sets),
            asked: Arc::new(asked),
            of_job: Arc::new(of_job),
        }
    }

    /// Nodes that fit a request of a user without claimed nodes.
    fn fitting(&mut self, machine: &Machine, queue: &Queue, number: u32) -> Fitting {
        let known = &mut self.by_request[number as usize];
        if let Some(known) = known {
            return known.clone();
        }
        let request = queue.requests.get(number);
        let named = request.named(&machine.windows);
        let found = fitting(machine, &mut self.memory, request, None, named.as_ref());
        let (sets, index) = (&mut self.sets, &machine.index);
        let made = self.by_nodes.entry((request.sensitive, named, found.left));
        let set = *made.or_insert_with_key(|(_, named, nodes)| {
            let set = Eligible::new(index, nodes.clone(), None, named.clone());
            sets.push(Arc::new(set));
            sets.len() - 1
        });
        let steps = found.steps.into();
        known.insert(Fitting { set, steps }).clone()
    }
}

impl EligibleSets {
    /// Number of a job's set, by the position of the job in the queue.
    pub(crate) fn number(&self, job: usize) -> usize {
        self.asked(job).set as usize
    }

    /// Request of a job, by the position of the job in the queue.
    pub(crate) fn asked(&self, job: usize) -> &EligibleRequest {
        &self.asked[self.of_job[job] as usize]
    }

    /// Number of distinct requests.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        self.asked.len()
    }

    /// All sets, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Eligible> {
        self.sets.iter().map(|set| &**set)
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    pub(crate) fn get(&self, number: usize) -> &Eligible {
        &self.sets[number]
    }
}
