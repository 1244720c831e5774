//! Time that tenants have used of their budgets, by the cluster's own count or an accounting system's.

use lattice_placement::Budget;
use lattice_quorum_types::{
    UnixMillis,
    budget::{Credit, RemainingCredit, TenantBudget},
};

/// Steps of a budget. Work is planned again when one more step is used.
const STEPS: u64 = 1_000;
/// The source of a budget's usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The cluster's own count.
    Ledger,
    /// An accounting system.
    Accounting,
}

impl Source {
    /// Its name in the API.
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
    /// Of GPUs.
    pub gpu_ms: u64,
    /// Of nodes.
    pub node_ms: u64,
}

/// What a tenant has used of its budgets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hours {
    /// Hours of GPUs, with their source.
    pub gpu: Option<(Budget, Source)>,
    /// The same, of nodes.
    pub node: Option<(Budget, Source)>,
    /// An accounting system asks that work of the tenant is placed after all other work.
    pub downscaled: bool,
}

impl Hours {
    /// Of a tenant that used this much in the window, at `now`. What an accounting system reports takes precedence
    /// while it holds.
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

    /// The part used of the budget that is nearer its end; `None` without any.
    pub fn used(&self) -> Option<f64> {
        let budgets = [self.gpu, self.node].into_iter().flatten();
        budgets
            .map(|(budget, _)| budget.fraction())
            .reduce(f64::max)
    }

    /// Whether a budget is used up.
    pub fn is_exhausted(&self) -> bool {
        self.used().is_some_and(|used| used >= 1.0)
    }

    /// The source of the usage of the budget that is nearer its end.
    pub fn source(&self) -> Source {
        let budgets = [self.gpu, self.node].into_iter().flatten();
        let nearest = budgets.max_by(|(a, _), (b, _)| a.fraction().total_cmp(&b.fraction()));
        nearest.map_or(Source::Ledger, |(_, source)| source)
    }

    /// The same as far as plans differ by it.
    pub fn stepped(self) -> Self {
        let stepped = |(budget, source): (Budget, Source)| {
            let step = (budget.granted_ms / STEPS).max(1);
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
