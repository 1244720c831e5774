//! Tenant budgets: soft limits and credits.
//!
//! Budgets influence scheduling: budgets of hours, a share of the cluster, and the credit that an accounting system
//! reports. They are not hard limits.

use crate::{ProjectPath, Revision, UnixMillis, VclusterName, limit::Patch};
use serde::{Deserialize, Serialize};

/// Milliseconds in an hour.
pub const HOUR_MS: u64 = 3_600_000;
/// The share 1.0, in millionths.
pub const ONE_PPM: u64 = 1_000_000;
/// Largest burst allowance, millionths: ten thousand times the share, in practice unbounded.
pub const MAX_BURST_PPM: u64 = 10_000 * ONE_PPM;

/// Soft limits of a tenant. `None`: not set, without effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftLimits {
    /// GPU-milliseconds within the budget period.
    pub gpu_ms_budget: Option<u64>,
    /// Node-milliseconds within the budget period.
    pub node_ms_budget: Option<u64>,
    /// Target share of the cluster, millionths.
    pub fair_share_ppm: Option<u64>,
    /// Burst allowance: the multiple of its share that the tenant may hold while other tenants have no demand,
    /// millionths. 1,500,000 is one and a half times.
    pub burst_ppm: Option<u64>,
}

impl SoftLimits {
    /// Returns these limits with `patch` applied.
    #[must_use]
    pub fn patched(mut self, patch: &SoftPatch) -> Self {
        patch.gpu_ms_budget.apply(&mut self.gpu_ms_budget);
        patch.node_ms_budget.apply(&mut self.node_ms_budget);
        patch.fair_share_ppm.apply(&mut self.fair_share_ppm);
        patch.burst_ppm.apply(&mut self.burst_ppm);
        self
    }

    /// All limits with name and unit, in display order.
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

/// Credit of a tenant, as the accounting system reports it. While valid, it takes precedence over the usage that the
/// cluster counts itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// Time of the request to the accounting system.
    pub asked_at: UnixMillis,
    /// End of validity. Afterwards the cluster's own count applies.
    pub valid_until: UnixMillis,
    /// GPU-hours; `None` if the accounting system does not limit them.
    pub gpu: Option<RemainingCredit>,
    /// Node-hours; `None` if the accounting system does not limit them.
    pub node: Option<RemainingCredit>,
    /// Whether the accounting system requests that this tenant's allocations rank behind those of other tenants.
    pub downscaled: bool,
    /// Projects and vClusters for which the accounting system requests that no new allocation starts.
    pub paused: Vec<PausedProject>,
}

impl Credit {
    /// Checks whether two credits have the same content, independent of their times.
    pub fn has_same_content(&self, other: &Self) -> bool {
        let of = |credit: &Self| (credit.gpu, credit.node, credit.downscaled);
        of(self) == of(other) && self.paused == other.paused
    }

    /// Checks whether new allocations of this project must not start in this vCluster.
    pub fn pauses(&self, project: &ProjectPath, vcluster: &VclusterName) -> bool {
        let is_it =
            |paused: &PausedProject| paused.project == *project && paused.vcluster == *vcluster;
        self.paused.iter().any(is_it)
    }
}

/// Purchased and remaining hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingCredit {
    /// Purchased time, milliseconds.
    pub limit_ms: u64,
    /// Remaining time, milliseconds; 0 if more was used than purchased.
    pub left_ms: u64,
}

/// A project that must not start new allocations in a vCluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PausedProject {
    /// Path of the project.
    pub project: ProjectPath,
    /// The vCluster.
    pub vcluster: VclusterName,
}

/// Budget data of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantBudget {
    /// Path of the tenant.
    pub tenant: ProjectPath,
    /// Soft limits.
    pub soft: SoftLimits,
    /// Last credit that the accounting system reported; `None` if there was none.
    pub credit: Option<Credit>,
    /// Revision of the last change.
    pub revision: Revision,
}

impl TenantBudget {
    /// Creates an empty record for a tenant.
    pub fn new(tenant: ProjectPath) -> Self {
        Self {
            tenant,
            soft: SoftLimits::default(),
            credit: None,
            revision: Revision(0),
        }
    }

    /// Checks whether the record is empty and need not be stored.
    pub fn is_empty(&self) -> bool {
        self.soft == SoftLimits::default() && self.credit.is_none()
    }

    /// Credit, if it is valid at `now`.
    pub fn credit_at(&self, now: UnixMillis) -> Option<&Credit> {
        self.credit
            .as_ref()
            .filter(|credit| now <= credit.valid_until)
    }
}
