//! What a tenant is meant to use. It weighs in scheduling and blocks nothing: budgets of hours, a share of the
//! cluster, and what an accounting system says is left.

use crate::{ProjectPath, Revision, UnixMillis, VclusterName, limit::Patch};
use serde::{Deserialize, Serialize};

/// Milliseconds of an hour.
pub const HOUR_MS: u64 = 3_600_000;
/// The whole, in millionths.
pub const WHOLE_PPM: u64 = 1_000_000;
/// Largest burst allowance, millionths: ten thousand times a share is no bound any more.
pub const MAX_BURST_PPM: u64 = 10_000 * WHOLE_PPM;

/// A tenant's soft limits. `None`: not set, and then it has no say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftLimits {
    /// GPU-milliseconds within the budget period.
    pub gpu_ms_budget: Option<u64>,
    /// Node-milliseconds within the budget period.
    pub node_ms_budget: Option<u64>,
    /// The part of the cluster it is to have, millionths.
    pub fair_share_ppm: Option<u64>,
    /// How much of that part it may hold while others need nothing, millionths: 1,500,000 is one and a half
    /// times.
    pub burst_ppm: Option<u64>,
}

impl SoftLimits {
    /// These with `patch` applied.
    #[must_use]
    pub fn patched(mut self, patch: &SoftPatch) -> Self {
        patch.gpu_ms_budget.apply(&mut self.gpu_ms_budget);
        patch.node_ms_budget.apply(&mut self.node_ms_budget);
        patch.fair_share_ppm.apply(&mut self.fair_share_ppm);
        patch.burst_ppm.apply(&mut self.burst_ppm);
        self
    }

    /// Each with its name and unit, in the order in which they are shown.
    pub fn named(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("gpu_ms_budget", self.gpu_ms_budget),
            ("node_ms_budget", self.node_ms_budget),
            ("fair_share_ppm", self.fair_share_ppm),
            ("burst_ppm", self.burst_ppm),
        ]
    }
}

/// A change to [`SoftLimits`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftPatch {
    /// Change to `gpu_ms_budget`.
    pub gpu_ms_budget: Patch,
    /// Change to `node_ms_budget`.
    pub node_ms_budget: Patch,
    /// Change to `fair_share_ppm`.
    pub fair_share_ppm: Patch,
    /// Change to `burst_ppm`.
    pub burst_ppm: Patch,
}

/// What an accounting system says of a tenant. It takes precedence over what the cluster counts itself, for as long
/// as it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// When it was asked.
    pub asked_at: UnixMillis,
    /// Until when that holds; then the cluster's own count steps in.
    pub valid_until: UnixMillis,
    /// GPU-hours, where it bounds them.
    pub gpu: Option<Left>,
    /// Node-hours, where it bounds them.
    pub node: Option<Left>,
    /// It asked that this tenant's work be put behind the others'.
    pub downscaled: bool,
    /// Where it asked that no new work begins.
    pub paused: Vec<Paused>,
}

impl Credit {
    /// Whether it says the same, whenever it was asked.
    pub fn says_same(&self, other: &Self) -> bool {
        let of = |credit: &Self| (credit.gpu, credit.node, credit.downscaled);
        of(self) == of(other) && self.paused == other.paused
    }

    /// Whether new work of this project is not to begin in this vCluster.
    pub fn pauses(&self, project: &ProjectPath, vcluster: &VclusterName) -> bool {
        let is_it = |paused: &Paused| paused.project == *project && paused.vcluster == *vcluster;
        self.paused.iter().any(is_it)
    }
}

/// What is left of what was bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// What was bought, milliseconds.
    pub limit_ms: u64,
    /// What of it is left, milliseconds; 0 where more was used.
    pub left_ms: u64,
}

/// A project that is to begin nothing in a vCluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Paused {
    /// Which project.
    pub project: ProjectPath,
    /// In which vCluster.
    pub vcluster: VclusterName,
}

/// Everything of that kind that is known of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantBudget {
    /// Which tenant.
    pub tenant: ProjectPath,
    /// Its soft limits.
    pub soft: SoftLimits,
    /// What an accounting system said last; `None`: none ever did.
    pub credit: Option<Credit>,
    /// Last change.
    pub revision: Revision,
}

impl TenantBudget {
    /// Of a tenant of which nothing is known.
    pub fn new(tenant: ProjectPath) -> Self {
        Self {
            tenant,
            soft: SoftLimits::default(),
            credit: None,
            revision: Revision(0),
        }
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.soft == SoftLimits::default() && self.credit.is_none()
    }

    /// What an accounting system says, while it holds.
    pub fn credit_at(&self, now: UnixMillis) -> Option<&Credit> {
        self.credit
            .as_ref()
            .filter(|credit| now <= credit.valid_until)
    }
}
