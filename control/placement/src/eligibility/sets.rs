//! Eligible sets: the nodes that fit each job of a plan if all were free, kept from plan to plan.

use super::{
    funnel::{NodesByMemory, fitting},
    span::by_span,
};
use crate::{
    bits::BitSet,
    explain::Step,
    machine::{Machine, index::Index, windows::ReservationChoice},
    queue::{Queue, interned::NO_ENTRY},
};
use std::{collections::BTreeMap, sync::Arc};

/// Set of nodes that fit some requests. Requests with the same nodes share a set if all or none of them are sensitive,
/// and if the same reservation windows apply to them. A request of a user with claimed nodes has a set of its own.
#[derive(Debug)]
pub(crate) struct EligibleSet {
    pub(crate) nodes: BitSet,
    pub(crate) count: u32,
    /// Size of the largest conformance group among the nodes.
    pub(crate) largest_group: u32,
    /// Nodes of the set that the user of these jobs has claimed for their project; `None` if the user has claimed none.
    pub(crate) own: Option<BitSet>,
    /// Cumulative node counts of the topology groups, largest groups first.
    pub(crate) by_span: Arc<[u32]>,
    /// Memory of all GPUs of a node, bytes: the mean over nodes for which it is known.
    pub(crate) gpu_memory_bytes: Option<u64>,
    /// Windows that apply to jobs that name a reservation.
    pub(crate) named: Option<ReservationChoice>,
}

impl EligibleSet {
    fn new(
        index: &Index,
        nodes: BitSet,
        own: Option<&BitSet>,
        named: Option<ReservationChoice>,
    ) -> Self {
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

/// Cache kept from plan to plan while the nodes are unchanged.
#[derive(Debug, Default)]
pub(crate) struct EligibilityCache {
    stamp: u64,
    memory: NodesByMemory,
    sets: Vec<Arc<EligibleSet>>,
    /// Position of each set, by whether it is for sensitive jobs, by the result of a named reservation, and by its
    /// nodes.
    by_nodes: BTreeMap<(bool, Option<ReservationChoice>, BitSet), usize>,
    /// `None` for a request that no job has had since the nodes changed.
    by_request: Vec<Option<FittingNodes>>,
}

/// Nodes that fit one request.
#[derive(Debug, Clone)]
struct FittingNodes {
    /// Position of the request's set of nodes.
    set: usize,
    /// Nodes dropped by each constraint.
    steps: Arc<[Step]>,
}

/// Eligible nodes of every job of one plan; the plan keeps them.
#[derive(Debug, Clone, Default)]
pub(crate) struct EligibleSets {
    /// Each set that a job has, once.
    sets: Arc<Vec<Arc<EligibleSet>>>,
    /// Each request that a job has, once; for users with claimed nodes, once for each user and project.
    requests: Arc<Vec<EligibleRequest>>,
    /// Position of each job's request in `requests`.
    of_job: Arc<Vec<u32>>,
}

/// One request, with its funnel for explanations.
#[derive(Debug)]
pub(crate) struct EligibleRequest {
    /// Number of the request's set of nodes.
    set: u32,
    /// Nodes dropped by each constraint.
    pub(crate) steps: Arc<[Step]>,
}

impl EligibilityCache {
    /// Computes the sets missing for the present jobs only: the queue also holds requests of jobs that are gone.
    pub(crate) fn prepare(&mut self, machine: &Machine, queue: &Queue) -> EligibleSets {
        if self.stamp != machine.eligibility_version {
            *self = Self {
                stamp: machine.eligibility_version,
                ..Self::default()
            };
        }
        self.by_request.resize(queue.requests.len(), None);
        let own: Vec<Option<&BitSet>> = queue
            .claimants
            .iter()
            .map(|(user, project)| machine.condition.claimed_by((user, project)))
            .collect();
        let mut sets = Vec::new();
        let mut asked = Vec::new();
        // Numbers of this plan, at most one per job; there are fewer than 2^32 jobs.
        let mut of_kept = vec![NO_ENTRY; self.sets.len()];
        let mut of_request = vec![NO_ENTRY; queue.requests.len()];
        // Sets that include claimed nodes, by request and claimant.
        let mut claimed = BTreeMap::new();
        let mut of_job = Vec::with_capacity(queue.jobs.len());
        for job in queue.jobs.iter() {
            let own = own.get(job.claimant as usize).copied().flatten();
            let number = match own {
                Some(_) => claimed
                    .entry((job.request, job.claimant))
                    .or_insert(NO_ENTRY),
                None => &mut of_request[job.request as usize],
            };
            if *number == NO_ENTRY {
                let fitting = match own {
                    Some(own) => {
                        let request = queue.requests.get(job.request);
                        let named = request.reservation_choice(&machine.windows);
                        let memory = &mut self.memory;
                        let found = fitting(machine, memory, request, Some(own), named.as_ref());
                        let index = &machine.index;
                        let set = EligibleSet::new(index, found.left, Some(own), named);
                        sets.push(Arc::new(set));
                        EligibleRequest {
                            set: sets.len() as u32 - 1,
                            steps: found.steps.into(),
                        }
                    }
                    None => {
                        let FittingNodes { set, steps } = self.fitting(machine, queue, job.request);
                        of_kept.resize(self.sets.len(), NO_ENTRY);
                        if of_kept[set] == NO_ENTRY {
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
            requests: Arc::new(asked),
            of_job: Arc::new(of_job),
        }
    }

    /// Nodes that fit a request of a user without claimed nodes.
    fn fitting(&mut self, machine: &Machine, queue: &Queue, number: u32) -> FittingNodes {
        let known = &mut self.by_request[number as usize];
        if let Some(known) = known {
            return known.clone();
        }
        let request = queue.requests.get(number);
        let named = request.reservation_choice(&machine.windows);
        let found = fitting(machine, &mut self.memory, request, None, named.as_ref());
        let (sets, index) = (&mut self.sets, &machine.index);
        let made = self.by_nodes.entry((request.sensitive, named, found.left));
        let set = *made.or_insert_with_key(|(_, named, nodes)| {
            let set = EligibleSet::new(index, nodes.clone(), None, named.clone());
            sets.push(Arc::new(set));
            sets.len() - 1
        });
        let steps = found.steps.into();
        known.insert(FittingNodes { set, steps }).clone()
    }
}

impl EligibleSets {
    /// Number of a job's set, by the position of the job in the queue.
    pub(crate) fn number(&self, job: usize) -> usize {
        self.asked(job).set as usize
    }

    /// Request of a job, by the position of the job in the queue.
    pub(crate) fn asked(&self, job: usize) -> &EligibleRequest {
        &self.requests[self.of_job[job] as usize]
    }

    /// Number of distinct requests.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// All sets, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &EligibleSet> {
        self.sets.iter().map(|set| &**set)
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    pub(crate) fn get(&self, number: usize) -> &EligibleSet {
        &self.sets[number]
    }
}
