//! The order in which the queue is looked at: by score, then by age, then by id.

use crate::{
    cycle::Given,
    eligible::{EligibleSets, by_span, span_of},
    factors::{self, Factors, Score},
    policy::Policy,
    queue::Job,
    view::TenantView,
};
use lattice_quorum_types::UnixMillis;

const MINUTE_MS: f64 = 60_000.0;

/// What scores depend on beside the job itself.
pub(crate) struct Scorer<'a> {
    policy: &'a Policy,
    sets: &'a EligibleSets<'a>,
    now: UnixMillis,
    /// By project: fair share, and what budgets leave.
    tenants: Vec<(f64, f64)>,
    /// By set of nodes: how many free ones the 1, 2, … largest groups hold.
    free_by_span: Vec<Vec<u32>>,
    /// By set of nodes: how long it takes to write all memory of one node's GPUs, by the policy's bandwidth.
    checkpoint_minutes: Vec<Option<f64>>,
    backlog: f64,
    energy: f64,
}

impl<'a> Scorer<'a> {
    /// `running_gpu_ms`: see [`crate::machine::Machine::running_gpu_ms`].
    pub(crate) fn new(given: &Given<'a>, running_gpu_ms: u128) -> Self {
        let Given {
            view,
            policy,
            machine,
            queue,
            sets,
            now,
            ..
        } = *given;
        let nobody = TenantView::default();
        let of_project = queue.projects.iter().map(|project| {
            let tenant = view.tenants.get(&project.tenant).unwrap_or(&nobody);
            let share = factors::fair_share(tenant.share_target, tenant.share_used);
            (share, factors::budget(tenant.budget_used()))
        });
        let free = |set: usize| {
            let nodes = sets.get(set).nodes.and(&machine.free);
            by_span(&machine.index, &nodes)
        };
        let checkpoint = |set: usize| {
            let bytes = sets.get(set).gpu_memory_bytes? as f64;
            Some(bytes / policy.checkpoint_bytes_s? as f64 / 60.0)
        };
        // Where a request says nothing, a node is taken to have as many GPUs as the mean of all.
        let gpus: u128 = machine.index.gpus.iter().map(|g| u128::from(*g)).sum();
        let per_node = |node_ms: u128| {
            let nodes = machine.index.size() as u128;
            node_ms.saturating_mul(gpus).checked_div(nodes).unwrap_or(0)
        };
        let queued = queue
            .asked
            .gpu_ms
            .saturating_add(per_node(queue.asked.node_ms));
        Self {
            policy,
            now,
            tenants: of_project.collect(),
            free_by_span: (0..sets.len()).map(free).collect(),
            checkpoint_minutes: (0..sets.len()).map(checkpoint).collect(),
            backlog: factors::backlog(queued, running_gpu_ms),
            energy: factors::energy(view.energy_price),
            sets,
        }
    }

    /// The score of the job at a place of the queue.
    pub(crate) fn score(&self, place: usize, job: &Job) -> Score {
        let set = self.sets.number(place);
        let eligible = self.sets.get(set);
        let needed = span_of(&self.free_by_span[set], job.nodes)
            .or_else(|| span_of(&eligible.by_span, job.nodes));
        let groups = eligible.by_span.len();
        let (fair_share, budget) = self.tenants[job.project as usize];
        let of_memory = || Some(self.checkpoint_minutes[set]? * f64::from(job.nodes));
        let of_request = job.checkpoint_ms().map(|ms| ms as f64 / MINUTE_MS);
        let wait = self.now.since(job.eligible_at);
        let factors = Factors {
            priority: factors::priority(job.class),
            wait_time: factors::wait_time(wait, self.policy.reference_wait_ms),
            fair_share,
            topology: factors::topology(needed.unwrap_or(groups), groups),
            data_ready: factors::data_ready(job.data_ready),
            backlog: self.backlog,
            energy: self.energy,
            checkpoint: factors::checkpoint(of_request.or_else(of_memory)),
            // It is known of nodes that are chosen; all jobs get the same till then.
            conformance: 1.0,
        };
        Score {
            factors,
            budget,
            total: factors.weighted(&self.policy.weights) * budget,
        }
    }
}

/// Places of the queue in the order in which they are served. `last` is the order of the plan before,
/// from which the new one seldom differs much.
pub(crate) fn order(jobs: &[Job], scores: &[Score], last: &[u32]) -> Vec<u32> {
    // No factor or weight is below 0: as bits, totals are ordered as they are as numbers.
    let key = |place: u32| (u64::MAX - scores[place as usize].total.to_bits(), place);
    let mut keys: Vec<(u64, u32)> = match last.len() == jobs.len() {
        true => last.iter().copied().map(key).collect(),
        // There are not 2^32 of them.
        false => (0..jobs.len() as u32).map(key).collect(),
    };
    let eligible_at = |place: u32| jobs[place as usize].eligible_at;
    // Fast on what is nearly sorted.
    keys.sort_by(|(a, job), (b, other)| {
        a.cmp(b)
            .then_with(|| eligible_at(*job).cmp(&eligible_at(*other)))
            .then(job.cmp(other))
    });
    keys.into_iter().map(|(_, place)| place).collect()
}
