//! Hours that tenants have used of their budgets, by the count of the cluster or of an accounting system.

use lattice_placement::Budget;
use lattice_quorum_types::{
    UnixMillis,
    budget::{Credit, RemainingCredit, TenantBudget},
};

/// Number of steps into which a budget is divided. A change of usage within a step causes no new plan.
const BUDGET_STEPS: u64 = 1_000;
/// Source of a budget's usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The cluster's own count.
    Ledger,
    /// An accounting system.
    Accounting,
}

impl Source {
    /// Name of the source in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Ledger => "ledger",
            Source::Accounting => "accounting",
        }
    }
}

/// Time that a tenant has used in the window of its budgets, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsedTime {
    /// GPU time.
    pub gpu_ms: u64,
    /// Node time.
    pub node_ms: u64,
}

/// Budgets of a tenant with their used part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hours {
    /// Budget of GPU-hours, with the source of its usage; `None` without a budget.
    pub gpu: Option<(Budget, Source)>,
    /// Budget of node-hours, with the source of its usage; `None` without a budget.
    pub node: Option<(Budget, Source)>,
    /// Whether an accounting system requests that the tenant's allocations are placed after all others.
    pub downscaled: bool,
}

impl Hours {
    /// Budgets at `now` of a tenant that used this much in the window. Credit that an accounting system reports takes
    /// precedence while it is valid.
    pub fn new(budget: &TenantBudget, used: UsedTime, now: UnixMillis) -> Self {
        let UsedTime { gpu_ms, node_ms } = used;
        let credit = budget.credit_at(now);
        let left = |of: fn(&Credit) -> Option<RemainingCredit>| credit.and_then(of);
        let counts = |left: Option<RemainingCredit>, granted_ms: Option<u64>, used_ms| match left {
            Some(RemainingCredit { limit_ms, left_ms }) => {
                let used_ms = limit_ms.saturating_sub(left_ms);
                let granted_ms = limit_ms;
                Some((
                    Budget {
                        granted_ms,
                        used_ms,
                    },
                    Source::Accounting,
                ))
            }
            None => {
                let own = |granted_ms| Budget {
                    granted_ms,
                    used_ms,
                };
                granted_ms.map(|granted_ms| (own(granted_ms), Source::Ledger))
            }
        };
        let soft = &budget.soft;
        Self {
            gpu: counts(left(|credit| credit.gpu), soft.gpu_ms_budget, gpu_ms),
            node: counts(left(|credit| credit.node), soft.node_ms_budget, node_ms),
            downscaled: credit.is_some_and(|credit| credit.downscaled),
        }
    }

    /// Used part of the budget that is closer to exhaustion; `None` without a budget.
    pub fn used(&self) -> Option<f64> {
        let budgets = [self.gpu, self.node].into_iter().flatten();
        budgets
            .map(|(budget, _)| budget.fraction())
            .reduce(f64::max)
    }

    /// Whether a budget is exhausted.
    pub fn is_exhausted(&self) -> bool {
        self.used().is_some_and(|used| used >= 1.0)
    }

    /// Source of the usage of the budget that is closer to exhaustion; the ledger without a budget.
    pub fn source(&self) -> Source {
        let budgets = [self.gpu, self.node].into_iter().flatten();
        let nearest = budgets.max_by(|(a, _), (b, _)| a.fraction().total_cmp(&b.fraction()));
        nearest.map_or(Source::Ledger, |(_, source)| source)
    }

    /// Copy with usage rounded down to steps, so that a small change of usage causes no new plan.
    pub fn rounded_to_steps(self) -> Self {
        let stepped = |(budget, source): (Budget, Source)| {
            let step = (budget.granted_ms / BUDGET_STEPS).max(1);
            let used_ms = budget.used_ms - budget.used_ms % step;
            (Budget { used_ms, ..budget }, source)
        };
        Self {
            gpu: self.gpu.map(stepped),
            node: self.node.map(stepped),
            ..self
        }
    }
}
