//! The nine factors of a job's score, and what an exhausted budget makes of it. Each is one line of the
//! scheduling algorithm's document; what the document leaves open is said beside it.

use crate::{fraction::Fraction, policy::Weights};
use serde::{Deserialize, Serialize};

/// Highest priority class.
const MAX_CLASS: f64 = 10.0;
/// What is taken where nothing is known of a thing that counts from 0 to 1.
const NEUTRAL: f64 = 0.5;
/// Used part of a budget from which on it weighs on the score.
const PENALTY_FROM: f64 = 0.8;
/// What is left of a score when the budget is used up. Not 0: the order within a tenant stays.
const EXHAUSTED: f64 = 0.05;

/// f1 to f9 of one job. All but the second are 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// f1: priority class.
    pub priority: f64,
    /// f2: time in the queue.
    pub wait_time: f64,
    /// f3: how far the tenant is from its share.
    pub fair_share: f64,
    /// f4: few topology groups.
    pub topology: f64,
    /// f5: input data on the hot tier.
    pub data_ready: f64,
    /// f6: backlog.
    pub backlog: f64,
    /// f7: energy price.
    pub energy: f64,
    /// f8: cheap to checkpoint.
    pub checkpoint: f64,
    /// f9: one conformance group.
    pub conformance: f64,
}

impl Factors {
    /// f1 to f9.
    pub fn to_array(&self) -> [f64; 9] {
        [
            self.priority,
            self.wait_time,
            self.fair_share,
            self.topology,
            self.data_ready,
            self.backlog,
            self.energy,
            self.checkpoint,
            self.conformance,
        ]
    }

    /// w1·f1 + … + w9·f9, summed in that order.
    pub fn weighted(&self, weights: &Weights) -> f64 {
        let products = self.to_array().into_iter().zip(weights.to_array());
        products.map(|(factor, weight)| factor * weight).sum()
    }
}

/// By what a queue is ordered: the weighted sum times the budget factor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The factors as they were when the queue was ordered.
    pub factors: Factors,
    /// What the tenant's budgets leave of the sum, [`budget`].
    pub budget: f64,
    /// The product.
    pub total: f64,
}

/// f1 = class / 10. Classes above 10 are refused where they come in; here they count as 10.
pub fn priority(class: u8) -> f64 {
    (f64::from(class) / MAX_CLASS).min(1.0)
}

/// f2 = ln(1 + wait / reference). It has no upper bound, so that nothing starves.
pub fn wait_time(wait_ms: u64, reference_wait_ms: u64) -> f64 {
    // Waits are far below 2^53 ms.
    (wait_ms as f64 / reference_wait_ms.max(1) as f64).ln_1p()
}

/// f3 = max(0, target - used) / target; neutral without a target, 0 with a target of nothing.
pub fn fair_share(target: Option<Fraction>, used: Fraction) -> f64 {
    match target.map(Fraction::get) {
        None => NEUTRAL,
        Some(target) if target <= 0.0 => 0.0,
        Some(target) => ((target - used.get()) / target).max(0.0),
    }
}

/// f4 = 1 - groups needed / groups with eligible nodes; 0 where no node is eligible.
pub fn topology(needed: usize, available: usize) -> f64 {
    if available == 0 {
        return 0.0;
    }
    (1.0 - needed as f64 / available as f64).max(0.0)
}

/// f5: the part of the input data that is on the hot tier; neutral where that is not known.
pub fn data_ready(on_hot_tier: Option<Fraction>) -> f64 {
    on_hot_tier.map_or(NEUTRAL, Fraction::get)
}

/// f6 = min(1, queued / running GPU-hours). With nothing running: 1 when something waits, else 0.
pub fn backlog(queued: u128, running: u128) -> f64 {
    match (queued, running) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (queued, running) => (queued as f64 / running as f64).min(1.0),
    }
}

/// f7 = 1 - normalized price; neutral where no price is known.
pub fn energy(normalized_price: Option<Fraction>) -> f64 {
    normalized_price.map_or(NEUTRAL, |price| 1.0 - price.get())
}

/// f8 = 1 / (1 + minutes a checkpoint takes); neutral where that is not known, 0 where it never ends.
pub fn checkpoint(minutes: Option<f64>) -> f64 {
    // Nothing to write over no bandwidth is not a number, which is never the larger one.
    minutes.map_or(NEUTRAL, |minutes| (1.0 / (1.0 + minutes)).max(0.0))
}

/// f9 = largest conformance group / nodes, at most 1.
pub fn conformance(largest_group: u32, nodes: u32) -> f64 {
    (f64::from(largest_group) / f64::from(nodes.max(1))).min(1.0)
}

/// What a budget of which `used` is gone leaves of a score: all of it up to 0.8, from there on strictly
/// less, in a straight line, down to 0.05 when it is used up.
pub fn budget(used: f64) -> f64 {
    if used <= PENALTY_FROM {
        return 1.0;
    }
    if used >= 1.0 {
        return EXHAUSTED;
    }
    let over = (used - PENALTY_FROM) / (1.0 - PENALTY_FROM);
    (1.0 - over * (1.0 - EXHAUSTED)).max(EXHAUSTED)
}
