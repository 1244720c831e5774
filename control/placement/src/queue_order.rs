//! Queue order: by score, then by the time since when the job is eligible, then by id.

use crate::{
    eligibility::{
        sets::EligibleSet,
        span::{by_span, span_of},
    },
    input::CycleInput,
    priority::{
        factors::{self, Factors, Score, TenantFactors},
        policy::Policy,
    },
    queue::Job,
    view::TenantView,
};
use lattice_quorum_types::UnixMillis;
use std::sync::Arc;

const MINUTE_MS: f64 = 60_000.0;

/// Inputs of scores other than the job itself. A plan keeps the inputs instead of the scores: of a hundred thousand
/// scores few are requested, and those are computed on request.
#[derive(Debug, Default)]
pub(crate) struct Scorer {
    policy: Policy,
    now: UnixMillis,
    /// Fair share factor of the tenant, and the factors that multiply its scores, by project number.
    tenants: Vec<(f64, TenantFactors)>,
    sets: Vec<EligibleSetInputs>,
    backlog: f64,
    energy: f64,
}

/// Inputs of scores that depend on the nodes that fit a request.
#[derive(Debug)]
struct EligibleSetInputs {
    /// Cumulative node counts of the largest groups.
    by_span: Arc<[u32]>,
    /// Cumulative counts of free nodes in the largest groups.
    free_by_span: Vec<u32>,
    /// Time for writing the GPU memory of one node at the policy's bandwidth, minutes.
    checkpoint_minutes: Option<f64>,
}

impl Scorer {
    /// Computes the inputs of scores. `running_gpu_ms`: see [`crate::machine::Machine::running_gpu_ms`].
    pub(crate) fn new(given: &CycleInput<'_>, running_gpu_ms: u128) -> Self {
        let CycleInput {
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
            (share, tenant.factors())
        });
        let minutes = |bytes: u64| Some(bytes as f64 / policy.checkpoint_bytes_s? as f64 / 60.0);
        let of_set = |eligible: &EligibleSet| {
            let free = eligible.nodes.and(&machine.free);
            EligibleSetInputs {
                by_span: eligible.by_span.clone(),
                free_by_span: by_span(&machine.index, &free),
                checkpoint_minutes: eligible.gpu_memory_bytes.and_then(minutes),
            }
        };
        // For a request without a number of GPUs, each node counts with the mean number of GPUs of all nodes.
        let gpus = u128::from(machine.index.all_gpus);
        let per_node = |node_ms: u128| {
            let nodes = machine.index.size() as u128;
            node_ms.saturating_mul(gpus).checked_div(nodes).unwrap_or(0)
        };
        let queued = queue
            .requested
            .gpu_ms
            .saturating_add(per_node(queue.requested.node_ms));
        Self {
            policy: *policy,
            now,
            tenants: of_project.collect(),
            sets: sets.iter().map(of_set).collect(),
            backlog: factors::backlog(queued, running_gpu_ms),
            energy: factors::energy(view.energy_price),
        }
    }

    /// Score of a job with the nodes of `set`.
    pub(crate) fn score(&self, set: usize, job: &Job) -> Score {
        let set = &self.sets[set];
        let needed =
            span_of(&set.free_by_span, job.nodes).or_else(|| span_of(&set.by_span, job.nodes));
        let groups = set.by_span.len();
        let (fair_share, tenant) = self.tenants[job.project as usize];
        let of_memory = || Some(set.checkpoint_minutes? * f64::from(job.nodes));
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
            // The value is known only once nodes are chosen; until then all jobs have the same one.
            conformance: 1.0,
        };
        Score {
            factors,
            tenant,
            total: factors.weighted(&self.policy.weights) * tenant.lowest(),
        }
    }
}

/// Queue positions in the order of service. `last` is the order of the previous plan, which seldom differs much.
pub(crate) fn order(jobs: &[Job], totals: &[f64], last: &[u32]) -> Vec<u32> {
    // No factor or weight is below 0, so the bits of the totals have the same order as the numbers.
    let key = |place: u32| (u64::MAX - totals[place as usize].to_bits(), place);
    let mut keys: Vec<(u64, u32)> = match last.len() == jobs.len() {
        true => last.iter().copied().map(key).collect(),
        // There are fewer than 2^32 jobs.
        false => (0..jobs.len() as u32).map(key).collect(),
    };
    let eligible_at = |place: u32| jobs[place as usize].eligible_at;
    // The stable sort is fast on nearly sorted input.
    keys.sort_by(|(a, job), (b, other)| {
        a.cmp(b)
            .then_with(|| eligible_at(*job).cmp(&eligible_at(*other)))
            .then(job.cmp(other))
    });
    keys.into_iter().map(|(_, place)| place).collect()
}
