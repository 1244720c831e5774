//! The order in which the queue is looked at.

use crate::{
    policy::{Policy, Rank},
    view::PendingView,
};
use lattice_quorum_types::{AllocationId, UnixMillis};
use std::collections::BTreeMap;

/// Highest priority class.
const MAX_CLASS: f64 = 10.0;

/// Class as a factor, 0 to 1.
pub(crate) fn class_factor(class: u8) -> f64 {
    f64::from(class) / MAX_CLASS
}

/// ln(1 + wait / reference): grows without bound, so that nothing starves.
pub(crate) fn age_factor(wait_ms: u64, reference_wait_ms: u64) -> f64 {
    // Waits are far below 2^53 ms; a reference of 0 would divide by zero.
    (wait_ms as f64 / reference_wait_ms.max(1) as f64).ln_1p()
}

/// The weighted sum of the factors that are known before nodes are chosen.
pub(crate) fn score(job: &PendingView, policy: &Policy, now: UnixMillis) -> f64 {
    let weights = policy.weights.get();
    weights.class * class_factor(job.class)
        + weights.age * age_factor(now.since(job.eligible_at), policy.reference_wait_ms)
}

/// The queue in the order in which it is served, with each job's score.
pub(crate) fn order<'a>(
    pending: &'a BTreeMap<AllocationId, PendingView>,
    policy: &Policy,
    now: UnixMillis,
) -> Vec<(AllocationId, &'a PendingView, f64)> {
    let mut queue: Vec<_> = pending
        .iter()
        .map(|(id, job)| (*id, job, score(job, policy, now)))
        .collect();
    queue.sort_unstable_by(|a, b| {
        let first = match policy.rank {
            Rank::ClassThenAge => b.1.class.cmp(&a.1.class),
            Rank::Score => b.2.total_cmp(&a.2),
        };
        first
            .then(a.1.eligible_at.cmp(&b.1.eligible_at))
            .then(a.0.cmp(&b.0))
    });
    queue
}
