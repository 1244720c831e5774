//! Usage of tenants and users, in hours.

use crate::notation::amount::{Fraction, Hours};
use lattice_quorum_types::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Usage of a tenant in a window of days that ends now, with its budgets and share. Clients ignore fields that they do
/// not know, so that later versions of control may add some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantUsage {
    /// Tenant name.
    pub tenant: String,
    /// Days of the window. Budgets always apply to the cluster's own period, `budget_period_days`.
    pub days: u64,
    /// Start of the window.
    pub since: String,
    /// End of the window; running allocations are counted up to this time.
    pub until: String,
    /// Node hours of allocations in the window. Suspended time does not count.
    #[schema(value_type = f64)]
    pub node_hours_used: Hours,
    /// GPU hours of allocations, by the present number of GPUs of their nodes. A node with an unknown number counts as
    /// one GPU.
    #[schema(value_type = f64)]
    pub gpu_hours_used: Hours,
    /// Node hours of nodes that were claimed for sensitive use and idle; billed, but not counted against the budget.
    #[schema(value_type = f64)]
    pub idle_claimed_node_hours: Hours,
    /// Days of the rolling window to which budgets apply.
    pub budget_period_days: u64,
    /// GPU hours in the budget; `null`: no budget.
    #[schema(value_type = Option<f64>)]
    pub gpu_hours_budget: Option<Hours>,
    /// Node hours in the budget; `null`: no budget.
    #[schema(value_type = Option<f64>)]
    pub node_hours_budget: Option<Hours>,
    /// Used fraction of the budget that is used most, 1 when it is used up; `null` without a budget.
    pub budget_used: Option<f64>,
    /// Budget factor: 1 up to 0.8 of a budget, 0.05 when it is used up.
    pub budget_factor: f64,
    /// Share factor: 0.05 while the tenant holds at least as many nodes as its burst allowance permits, else 1. An
    /// earlier version of control leaves out this field and the next two, and combines all factors in `budget_factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_factor: Option<f64>,
    /// Accounting factor: 0.05 while the accounting system requests that the tenant's allocations rank behind those of
    /// others, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_factor: Option<f64>,
    /// Lowest of the three factors, by which the scores of the tenant's pending allocations are multiplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_factor: Option<f64>,
    /// Source of the budget usage: `ledger`, the cluster's own count, or `accounting`, the accounting system.
    pub source: String,
    /// Share of the cluster that the tenant should have; `null`: not set.
    #[schema(value_type = Option<f64>)]
    pub fair_share_target: Option<Fraction>,
    /// Multiple of the fair share that the tenant may hold while others need nothing; `null`: not set.
    #[schema(value_type = Option<f64>)]
    pub burst_allowance: Option<Fraction>,
    /// Fraction of the cluster's nodes that the tenant holds now.
    pub share: f64,
    /// Whether the tenant holds more than its share; the tenant's newest allocations are then the first victims of
    /// preemption.
    pub exceeds_share: bool,
    /// Whether the accounting system requested that the tenant's allocations rank behind those of others.
    pub downscaled: bool,
    /// Projects and vClusters in which the accounting system requested that no new allocation starts.
    pub paused: Vec<PausedProjectView>,
    /// Revision that the answer is based on, at least.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Project that starts no new allocation in a vCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PausedProjectView {
    /// Project path.
    pub project: String,
    /// vCluster name.
    pub vcluster: String,
}

/// Usage of a user, in the tenants that the caller may see, in a window of days that ends now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserUsage {
    /// User name.
    pub user: String,
    /// Days of the window.
    pub days: u64,
    /// Start of the window.
    pub since: String,
    /// End of the window.
    pub until: String,
    /// Node hours of allocations; see [`TenantUsage`].
    #[schema(value_type = f64)]
    pub node_hours_used: Hours,
    /// GPU hours of allocations; see [`TenantUsage`].
    #[schema(value_type = f64)]
    pub gpu_hours_used: Hours,
    /// Node hours of claimed, idle nodes; see [`TenantUsage`].
    #[schema(value_type = f64)]
    pub idle_claimed_node_hours: Hours,
    /// Usage by tenant, for the tenants that the caller may see.
    pub tenants: Vec<UserTenantUsage>,
    /// Revision that the answer is based on, at least.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Usage of a user in one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserTenantUsage {
    /// Tenant name.
    pub tenant: String,
    /// Node hours of allocations; see [`TenantUsage`].
    #[schema(value_type = f64)]
    pub node_hours_used: Hours,
    /// GPU hours of allocations; see [`TenantUsage`].
    #[schema(value_type = f64)]
    pub gpu_hours_used: Hours,
    /// Node hours of claimed, idle nodes; see [`TenantUsage`].
    #[schema(value_type = f64)]
    pub idle_claimed_node_hours: Hours,
}
