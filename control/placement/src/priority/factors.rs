//! The nine factors of a job's score, and the factors of its tenant that multiply the score. Each function computes one
//! factor from its inputs.

use super::policy::Weights;
use crate::fraction::Fraction;
use serde::{Deserialize, Serialize};

/// Highest priority class.
const MAX_CLASS: f64 = 10.0;
/// Value of an unknown factor with range 0 to 1.
const NEUTRAL: f64 = 0.5;
/// Used part of a budget above which the score is reduced.
const PENALTY_FROM: f64 = 0.8;
/// Lowest factor of a tenant: its jobs rank behind those of others. Not 0, so that the order within a tenant stays.
const LOWEST_FACTOR: f64 = 0.05;

/// f1 to f9 of one job. All but the second range from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// f1: priority class.
    pub priority: f64,
    /// f2: time in the queue.
    pub wait_time: f64,
    /// f3: distance of the tenant below its share.
    pub fair_share: f64,
    /// f4: few topology groups.
    pub topology: f64,
    /// f5: input data on the hot tier.
    pub data_ready: f64,
    /// f6: backlog.
    pub backlog: f64,
    /// f7: energy price.
    pub energy: f64,
    /// f8: short duration of a checkpoint.
    pub checkpoint: f64,
    /// f9: one conformance group.
    pub conformance: f64,
}

impl Factors {
    /// f1 to f9 in order.
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

/// Factors of a tenant, each 0.05 to 1. The lowest of them multiplies the scores of the tenant's jobs; the others have
/// no effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TenantFactors {
    /// Budget factor: [`budget`] of the budget that is closer to exhaustion.
    pub budget: f64,
    /// Share factor: [`rank_behind`] while the tenant holds at least as many nodes as its burst allowance permits.
    pub share: f64,
    /// Accounting factor: [`rank_behind`] while an accounting system requests it.
    pub accounting: f64,
}

impl Default for TenantFactors {
    fn default() -> Self {
        Self {
            budget: 1.0,
            share: 1.0,
            accounting: 1.0,
        }
    }
}

impl TenantFactors {
    /// The lowest factor, by which scores are multiplied.
    pub fn lowest(&self) -> f64 {
        self.budget.min(self.share).min(self.accounting)
    }
}

/// Score that orders the queue: the weighted sum of the factors times the lowest factor of the tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Factors as of the time when the queue was ordered.
    pub factors: Factors,
    /// Factors of the tenant.
    #[serde(default)]
    pub tenant: TenantFactors,
    /// Product of the weighted sum and the lowest factor of the tenant.
    pub total: f64,
}

/// f1 = class / 10. Classes above 10 are rejected at submission; here they count as 10.
pub fn priority(class: u8) -> f64 {
    (f64::from(class) / MAX_CLASS).min(1.0)
}

/// f2 = ln(1 + wait / reference). Unbounded, so that no job starves.
pub fn wait_time(wait_ms: u64, reference_wait_ms: u64) -> f64 {
    // Waits are far below 2^53 ms.
    (wait_ms as f64 / reference_wait_ms.max(1) as f64).ln_1p()
}

/// f3 = max(0, target - used) / target; neutral without a target, 0 for a target of 0.
pub fn fair_share(target: Option<Fraction>, used: Fraction) -> f64 {
    match target.map(Fraction::get) {
        None => NEUTRAL,
        Some(target) if target <= 0.0 => 0.0,
        Some(target) => ((target - used.get()) / target).max(0.0),
    }
}

/// f4 = 1 - groups needed / groups with eligible nodes; 0 if no node is eligible.
pub fn topology(needed: usize, available: usize) -> f64 {
    if available == 0 {
        return 0.0;
    }
    (1.0 - needed as f64 / available as f64).max(0.0)
}

/// f5: part of the input data that is on the hot tier; neutral if unknown.
pub fn data_ready(on_hot_tier: Option<Fraction>) -> f64 {
    on_hot_tier.map_or(NEUTRAL, Fraction::get)
}

/// f6 = min(1, GPU-hours queued / GPU-hours running); 0 if nothing is queued, 1 if jobs are queued and none runs.
pub fn backlog(queued: u128, running: u128) -> f64 {
    match (queued, running) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (queued, running) => (queued as f64 / running as f64).min(1.0),
    }
}

/// f7 = 1 - normalized price; neutral if the price is unknown.
pub fn energy(normalized_price: Option<Fraction>) -> f64 {
    normalized_price.map_or(NEUTRAL, |price| 1.0 - price.get())
}

/// f8 = 1 / (1 + duration of a checkpoint in minutes); neutral if unknown, 0 for an infinite duration.
pub fn checkpoint(minutes: Option<f64>) -> f64 {
    // 0 bytes over a bandwidth of 0 is NaN, and `max` returns the other operand.
    minutes.map_or(NEUTRAL, |minutes| (1.0 / (1.0 + minutes)).max(0.0))
}

/// f9 = largest conformance group / nodes, at most 1.
pub fn conformance(largest_group: u32, nodes: u32) -> f64 {
    (f64::from(largest_group) / f64::from(nodes.max(1))).min(1.0)
}

/// Budget factor of a budget with used part `used`: 1 up to 0.8, then falling linearly to 0.05 at 1.
pub fn budget(used: f64) -> f64 {
    if used <= PENALTY_FROM {
        return 1.0;
    }
    if used >= 1.0 {
        return LOWEST_FACTOR;
    }
    let over = (used - PENALTY_FROM) / (1.0 - PENALTY_FROM);
    (1.0 - over * (1.0 - LOWEST_FACTOR)).max(LOWEST_FACTOR)
}

/// Share or accounting factor: 0.05 if the jobs of the tenant must rank behind those of others, else 1.
pub fn rank_behind(is_behind: bool) -> f64 {
    match is_behind {
        true => LOWEST_FACTOR,
        false => 1.0,
    }
}
