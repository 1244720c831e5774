//! Tenant standing: usage of shares and budgets, for the solver and for display.

use crate::state::{
    BaseView, ViewNode,
    hours::{Hours, Source},
};
use lattice_placement::{Budget, Fraction, TenantFactors, TenantView};
use lattice_quorum_types::{
    Allocation, AllocationId, ProjectPath,
    budget::{ONE_PPM, SoftLimits},
    node::Lifecycle,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Usage of a tenant's share and budgets.
#[derive(Debug, Clone, Copy, Default)]
pub struct TenantStanding {
    /// Share, burst allowance and budgets of the tenant.
    pub soft: SoftLimits,
    /// Used part of the budgets.
    pub hours: Hours,
    /// Number of nodes that the tenant holds now, including claimed ones.
    pub nodes_held: u64,
    /// Number of nodes of the cluster that are not retired.
    pub nodes_in_all: u64,
}

impl TenantStanding {
    /// Part of the cluster's nodes that the tenant holds.
    pub fn share(&self) -> f64 {
        match self.nodes_in_all {
            0 => 0.0,
            all => self.nodes_held as f64 / all as f64,
        }
    }

    /// Share of the tenant as a number of nodes; `None` without a share.
    pub fn share_nodes(&self) -> Option<f64> {
        let share = self.soft.fair_share_ppm?;
        Some(part(share) * self.nodes_in_all as f64)
    }

    /// Whether the tenant holds more nodes than its share.
    pub fn is_above_share(&self) -> bool {
        let share = self.share_nodes();
        share.is_some_and(|share| self.nodes_held as f64 > share)
    }

    /// Whether the tenant holds at least as many nodes as its burst allowance permits.
    pub fn is_beyond_burst(&self) -> bool {
        let most = self.share_nodes().zip(self.soft.burst_ppm);
        most.is_some_and(|(share, burst)| self.nodes_held as f64 >= share * part(burst))
    }

    /// Factors of the tenant, the lowest of which multiplies the scores of its allocations.
    pub fn factors(&self) -> TenantFactors {
        self.tenant_view().factors()
    }

    /// Standing in solver input.
    pub fn tenant_view(&self) -> TenantView {
        let Hours {
            gpu,
            node,
            downscaled,
        } = self.hours;
        let of = |budget: Option<(Budget, Source)>| budget.map(|(budget, _)| budget);
        TenantView {
            share_target: self
                .soft
                .fair_share_ppm
                .and_then(|ppm| Fraction::new(part(ppm)).ok()),
            share_used: Fraction::new(self.share().min(1.0)).unwrap_or_default(),
            gpu_hours: of(gpu),
            node_hours: of(node),
            beyond_burst: self.is_beyond_burst(),
            downscaled,
        }
    }
}

fn part(ppm: u64) -> f64 {
    ppm as f64 / ONE_PPM as f64
}

/// Standings of the tenants in a view.
#[derive(Debug)]
pub struct TenantStandings<'a, N> {
    view: &'a BaseView<N>,
    nodes_in_all: u64,
}

impl<'a, N: ViewNode> TenantStandings<'a, N> {
    /// Standings of all tenants of a view.
    pub fn new(view: &'a BaseView<N>) -> Self {
        let records = view.nodes.values().filter_map(|entry| entry.record());
        let in_use = records.filter(|record| record.lifecycle != Lifecycle::Retired);
        Self {
            view,
            nodes_in_all: in_use.count() as u64,
        }
    }

    /// Standing of one tenant.
    pub fn of(&self, tenant: &ProjectPath) -> TenantStanding {
        let view = self.view;
        let soft = view.budgets.get(tenant).map(|budget| budget.soft);
        let held = view.projects.get(tenant).map(|record| record.total().nodes);
        TenantStanding {
            soft: soft.unwrap_or_default(),
            hours: view.hours.get(tenant).copied().unwrap_or_default(),
            nodes_held: held.unwrap_or(0),
            nodes_in_all: self.nodes_in_all,
        }
    }
}

/// Tenants with a share, budget or credit, in solver input.
pub fn tenants<N: ViewNode>(view: &BaseView<N>) -> BTreeMap<ProjectPath, TenantView> {
    if view.budgets.is_empty() {
        return BTreeMap::new();
    }
    let standings = TenantStandings::new(view);
    let known = view.budgets.keys();
    known
        .map(|tenant| (tenant.clone(), standings.of(tenant).tenant_view()))
        .collect()
}

/// Allocations that form the excess of tenants over their shares: those that began last. They are preferred as victims.
pub fn excess_allocations<N: ViewNode>(view: &BaseView<N>) -> BTreeSet<AllocationId> {
    let mut bursts = BTreeSet::new();
    let has_share = view
        .budgets
        .values()
        .filter(|b| b.soft.fair_share_ppm.is_some());
    let mut above: BTreeMap<&ProjectPath, f64> = BTreeMap::new();
    let mut standings = None;
    for budget in has_share {
        let standing = standings
            .get_or_insert_with(|| TenantStandings::new(view))
            .of(&budget.tenant);
        if let Some(share) = standing.share_nodes().filter(|_| standing.is_above_share()) {
            above.insert(&budget.tenant, standing.nodes_held as f64 - share);
        }
    }
    if above.is_empty() {
        return bursts;
    }
    let mut held: BTreeMap<ProjectPath, Vec<&Arc<Allocation>>> = BTreeMap::new();
    for allocation in view.allocations.values().filter(|a| a.state.holds()) {
        let tenant = allocation.spec.project.tenant();
        if above.contains_key(&tenant) {
            held.entry(tenant).or_default().push(allocation);
        }
    }
    for (tenant, mut allocations) in held {
        let mut above = above.get(&tenant).copied().unwrap_or(0.0);
        let began = |a: &Allocation| (a.started_at.unwrap_or(a.state_since), a.id);
        allocations.sort_by_key(|a| std::cmp::Reverse(began(a)));
        for allocation in allocations {
            if above <= 0.0 {
                break;
            }
            above -= f64::from(allocation.spec.nodes);
            bursts.insert(allocation.id);
        }
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(nodes_held: u64, gpu_used_ms: u64, downscaled: bool) -> TenantStanding {
        let budget = Budget {
            granted_ms: 100,
            used_ms: gpu_used_ms,
        };
        TenantStanding {
            soft: SoftLimits {
                fair_share_ppm: Some(250_000),
                burst_ppm: Some(1_500_000),
                ..SoftLimits::default()
            },
            hours: Hours {
                gpu: Some((budget, Source::Ledger)),
                downscaled,
                ..Hours::default()
            },
            nodes_held,
            nodes_in_all: 24,
        }
    }

    /// The share is 6 of 24 nodes, and the burst allowance 9. A tenant beyond its burst allowance keeps its budget
    /// factor, and the reverse.
    #[test]
    fn share_and_budget_have_separate_factors() {
        let factors = |held, used, downscaled| standing(held, used, downscaled).factors();
        let of = |budget, share, accounting| TenantFactors {
            budget,
            share,
            accounting,
        };
        assert_eq!(factors(8, 0, false), of(1.0, 1.0, 1.0));
        assert_eq!(factors(9, 0, false), of(1.0, 0.05, 1.0));
        assert_eq!(factors(8, 100, false), of(0.05, 1.0, 1.0));
        assert_eq!(factors(8, 0, true), of(1.0, 1.0, 0.05));
        assert_eq!(factors(24, 100, true).lowest(), 0.05);
    }

    /// The solver input keeps the real usage of the budget of a tenant beyond its burst allowance.
    #[test]
    fn solver_input_keeps_budget_beyond_burst() {
        let input = standing(9, 30, true).tenant_view();
        assert_eq!(input.budget_used(), 0.3);
        assert!(input.beyond_burst && input.downscaled);
    }
}
