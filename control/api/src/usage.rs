//! What tenants and users have used, in hours.

use crate::amount::{Hours, Parts};
use lattice_quorum_types::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a tenant has used in a window of days that ends now, and how it stands to what it is meant to use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantUsage {
    /// Which tenant.
    pub tenant: String,
    /// Days of the window. Budgets are always of the cluster's own period, `budget_period_days`.
    pub days: u64,
    /// Since when.
    pub since: String,
    /// Until when: what runs is counted up to here.
    pub until: String,
    /// Hours of nodes that work used. What lies before the window does not count, nor does suspended time.
    #[schema(value_type = f64)]
    pub node_hours_used: Hours,
    /// Hours of GPUs that work used, by how many GPUs its nodes have now; a node of which nobody knows that counts
    /// one.
    #[schema(value_type = f64)]
    pub gpu_hours_used: Hours,
    /// Hours of nodes that were claimed for sensitive work and ran nothing. They are billed, and use no budget.
    #[schema(value_type = f64)]
    pub idle_claimed_node_hours: Hours,
    /// Days of the rolling window in which budgets are used.
    pub budget_period_days: u64,
    /// Hours of GPUs that may be used in it; `null`: no budget.
    #[schema(value_type = Option<f64>)]
    pub gpu_hours_budget: Option<Hours>,
    /// Hours of nodes that may be used in it; `null`: no budget.
    #[schema(value_type = Option<f64>)]
    pub node_hours_budget: Option<Hours>,
    /// The part used of the budget that is nearer its end, 1 when it is used up; `null` without a budget.
    pub budget_used: Option<f64>,
    /// What scores of its pending work are multiplied by: 1 up to 0.8 of a budget, 0.05 from its end on.
    pub budget_factor: f64,
    /// Who says how much of the budget is used: `ledger`, the cluster's own count, or `accounting`, the system that
    /// it reports to.
    pub source: String,
    /// The part of the cluster that it is to have; `null`: none is said.
    #[schema(value_type = Option<f64>)]
    pub fair_share_target: Option<Parts>,
    /// How many times that part it may hold while others need nothing; `null`: none is said.
    #[schema(value_type = Option<f64>)]
    pub burst_allowance: Option<Parts>,
    /// The part of the cluster's nodes that it holds now.
    pub share: f64,
    /// Whether it holds more than its share: what of its work began last is the first to make room.
    pub burst: bool,
    /// The accounting system asked that its work be put behind the others'.
    pub downscaled: bool,
    /// Where the accounting system asked that nothing new begins.
    pub paused: Vec<PausedView>,
    /// The revision that this is of, at least.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// A project that begins nothing new in a vCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PausedView {
    /// Which.
    pub project: String,
    /// Where.
    pub vcluster: String,
}

/// What a user has used in a window of days that ends now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserUsage {
    /// Who.
    pub user: String,
    /// Days of the window.
    pub days: u64,
    /// Since when.
    pub since: String,
    /// Until when.
    pub until: String,
    /// See [`TenantUsage`].
    #[schema(value_type = f64)]
    pub node_hours_used: Hours,
    /// See [`TenantUsage`].
    #[schema(value_type = f64)]
    pub gpu_hours_used: Hours,
    /// See [`TenantUsage`].
    #[schema(value_type = f64)]
    pub idle_claimed_node_hours: Hours,
    /// The same by tenant; of those of which the asker is told.
    pub tenants: Vec<UsedInTenant>,
    /// The revision that this is of, at least.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// What a user has used in one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsedInTenant {
    /// Which.
    pub tenant: String,
    /// See [`TenantUsage`].
    #[schema(value_type = f64)]
    pub node_hours_used: Hours,
    /// See [`TenantUsage`].
    #[schema(value_type = f64)]
    pub gpu_hours_used: Hours,
    /// See [`TenantUsage`].
    #[schema(value_type = f64)]
    pub idle_claimed_node_hours: Hours,
}
