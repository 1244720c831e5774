//! Value and cost of a checkpoint, in GPU-seconds. Every term is finite and at least 0 for any input.

use super::{Input, Policy};
use crate::NodeFacts;
use serde::{Deserialize, Serialize};

/// Highest priority class.
const MAX_CLASS: usize = 10;
/// A month of storage, milliseconds: 30 days.
const MONTH_MS: f64 = 30.0 * 24.0 * 3_600_000.0;

/// Resources of an allocation, as counted for checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldResources {
    /// Number of nodes.
    pub nodes: u32,
    /// GPUs on all nodes. A node counts as at least one GPU: its time has value even without GPUs.
    pub gpus: u64,
    /// Size of a checkpoint, bytes: the memory of all GPUs, or an assumed size for a node without known GPU memory.
    pub bytes: u64,
}

impl HeldResources {
    /// Sums these nodes. `node_bytes` is used for each node without GPU memory, or with unknown GPU memory.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeFacts>, node_bytes: u64) -> Self {
        let add = |held: Self, node: &NodeFacts| {
            let gpus = node.gpu_count.unwrap_or(0).max(1);
            let bytes = node.gpu_memory_bytes.filter(|bytes| *bytes > 0);
            Self {
                nodes: held.nodes.saturating_add(1),
                gpus: held.gpus.saturating_add(u64::from(gpus)),
                bytes: held.bytes.saturating_add(bytes.unwrap_or(node_bytes)),
            }
        };
        nodes.into_iter().fold(Self::default(), add)
    }

    /// GPUs, at least as many as nodes.
    fn effective_gpus(self) -> f64 {
        self.gpus.max(u64::from(self.nodes)) as f64
    }
}

/// Urgency of the waiting jobs of each class in a vCluster. Computed once for all running allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingUrgency {
    urgent_after_ms: u64,
    /// Sum of waits by class, each wait capped where the job is fully urgent, milliseconds.
    waits_ms: [u64; MAX_CLASS + 1],
}

impl WaitingUrgency {
    /// Urgency without waiting jobs.
    pub const NOTHING: Self = Self {
        urgent_after_ms: 0,
        waits_ms: [0; MAX_CLASS + 1],
    };

    /// Creates the urgency without waiting jobs. `urgent_after_ms` is the wait after which a job is fully urgent
    /// ([`Policy::urgent_after_ms`]); with 0 every waiting job is fully urgent.
    pub fn new(urgent_after_ms: u64) -> Self {
        Self {
            urgent_after_ms,
            waits_ms: [0; MAX_CLASS + 1],
        }
    }

    /// Adds one job that waits for nodes. Classes above 10 count as 10.
    pub fn add(&mut self, class: u8, waited_ms: u64) {
        let counted = match self.urgent_after_ms {
            0 => 1,
            most => waited_ms.min(most),
        };
        let sum = &mut self.waits_ms[usize::from(class).min(MAX_CLASS)];
        *sum = sum.saturating_add(counted);
    }

    /// Waiting jobs of higher classes, as a number of fully urgent jobs.
    fn urgent_jobs_above(&self, class: u8) -> f64 {
        let above = self.waits_ms.iter().skip(usize::from(class) + 1);
        let waits_ms: f64 = above.map(|sum| *sum as f64).sum();
        waits_ms / self.urgent_after_ms.max(1) as f64
    }
}

/// Value of a checkpoint, GPU-seconds. Each term is a probability times the progress that would be lost, so the value
/// is 0 just after a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Value if a node fails: less work to repeat.
    pub recompute_saved: f64,
    /// Value if an allocation of a higher class preempts this one.
    pub preemptability: f64,
    /// Value if the allocation is moved because of a deep queue.
    pub backlog_relief: f64,
}

impl Value {
    /// Sum of all terms.
    pub fn total(&self) -> f64 {
        self.recompute_saved + self.preemptability + self.backlog_relief
    }

    pub(super) fn of(input: &Input<'_>, policy: &Policy, at_stake_ms: u64) -> Self {
        let at_stake = seconds(at_stake_ms) * input.holding.effective_gpus();
        let may_give_way = input.preemptible && !input.sensitive;
        let preempted = match may_give_way {
            true => {
                input.waiting.urgent_jobs_above(input.class) * policy.preemption_probability.get()
            }
            false => 0.0,
        };
        let moved = match may_give_way {
            true => input.backlog.get() * policy.backlog_probability.get(),
            false => 0.0,
        };
        Self {
            recompute_saved: failure_probability(input, policy, at_stake_ms) * at_stake,
            preemptability: preempted.min(1.0) * at_stake,
            backlog_relief: moved * at_stake,
        }
    }
}

/// Probability that a node of the allocation fails within the horizon: half the time since the last checkpoint, but not
/// beyond the end of the walltime. The value is then the expected loss of this interval, `t² · nodes / (2 · MTBF)`.
/// Writing a checkpoint once this value reaches the cost is Young's rule. The expected number of failures approximates
/// the probability; the approximation is accurate for small probabilities.
fn failure_probability(input: &Input<'_>, policy: &Policy, at_stake_ms: u64) -> f64 {
    let remaining_ms = input.ends_at.map_or(u64::MAX, |end| end.since(input.now));
    let horizon_ms = (at_stake_ms as f64 / 2.0).min(remaining_ms as f64);
    let periods = horizon_ms / policy.failure_period_ms.max(1) as f64;
    let expected = periods * policy.failure_probability.get() * f64::from(input.holding.nodes);
    expected.min(1.0)
}

/// Cost of a checkpoint, GPU-seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Longer wait for the result of the job.
    pub wait: f64,
    /// GPUs idle while the checkpoint is written.
    pub compute_waste: f64,
    /// Price of the storage, converted to GPU time of equal price.
    pub storage: f64,
}

impl Cost {
    /// Sum of all terms.
    pub fn total(&self) -> f64 {
        self.wait + self.compute_waste + self.storage
    }

    pub(super) fn of(input: &Input<'_>, policy: &Policy, write_ms: u64) -> Self {
        let compute_waste = seconds(write_ms) * input.holding.effective_gpus();
        Self {
            wait: compute_waste * policy.wait_part.get(),
            compute_waste,
            storage: storage_gpu_seconds(policy, policy.bytes_written(input, write_ms)),
        }
    }
}

fn storage_gpu_seconds(policy: &Policy, bytes: u64) -> f64 {
    if policy.gpu_hour_price == 0 {
        return 0.0;
    }
    let months = policy.kept_ms as f64 / MONTH_MS;
    let price = bytes as f64 / 1e9 * months * policy.storage_price as f64;
    price * 3600.0 / policy.gpu_hour_price as f64
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
