//! Factors of a tenant that multiply the scores of its jobs, and which of them acts.

use lattice_api::{explanation::ScoreView, usage::TenantUsage};

/// One factor of a tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TenantFactor {
    /// Name: budget, share or accounting.
    pub(crate) name: &'static str,
    /// Value, 0.05 to 1.
    pub(crate) value: f64,
    /// Cause of a value below 1.
    pub(crate) cause: &'static str,
}

/// Factors of a tenant. The lowest one multiplies the scores of the tenant's jobs; the others have no effect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TenantMultiplier(Vec<TenantFactor>);

impl TenantMultiplier {
    /// Creates the factors; an absent factor is left out. An earlier version of control combines all three in `budget`.
    fn new(budget: f64, share: Option<f64>, accounting: Option<f64>) -> Self {
        let of_budget = match (share, accounting) {
            (None, None) => {
                "the tenant is beyond its burst allowance, or more than 80 % of a budget is used"
            }
            _ => "more than 80 % of a budget is used",
        };
        let factors = [
            ("budget", Some(budget), of_budget),
            (
                "share",
                share,
                "the tenant is above its fair share and holds its burst allowance of nodes or more",
            ),
            (
                "accounting",
                accounting,
                "the accounting system requests that the tenant's jobs rank last",
            ),
        ];
        let known = factors.into_iter().filter_map(|(name, value, cause)| {
            let value = value?;
            Some(TenantFactor { name, value, cause })
        });
        Self(known.collect())
    }

    /// Factors of a score.
    pub(crate) fn of_score(score: &ScoreView) -> Self {
        Self::new(score.budget, score.share, score.accounting)
    }

    /// Factors of a tenant's pending jobs.
    pub(crate) fn of_usage(usage: &TenantUsage) -> Self {
        Self::new(
            usage.budget_factor,
            usage.share_factor,
            usage.accounting_factor,
        )
    }

    /// Returns the factor that multiplies scores: the lowest, the first of equal ones; `None` while all are 1.
    pub(crate) fn acting(&self) -> Option<TenantFactor> {
        let lowest = self.0.iter().copied();
        let lowest = lowest.min_by(|a, b| a.value.total_cmp(&b.value));
        lowest.filter(|lowest| lowest.value < 1.0)
    }

    /// Returns the factors other than the acting one; none while no factor acts.
    pub(crate) fn others(
        &self,
        acting: Option<TenantFactor>,
    ) -> impl Iterator<Item = &TenantFactor> {
        let is_other =
            move |factor: &&TenantFactor| acting.is_some_and(|acting| acting.name != factor.name);
        self.0.iter().filter(is_other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_factor_acts() {
        let acting = |budget, share, accounting| {
            let tenant = TenantMultiplier::new(budget, Some(share), Some(accounting));
            tenant.acting().map(|factor| (factor.name, factor.value))
        };
        assert_eq!(acting(1.0, 1.0, 1.0), None);
        assert_eq!(acting(1.0, 0.05, 1.0), Some(("share", 0.05)));
        assert_eq!(acting(0.5, 1.0, 1.0), Some(("budget", 0.5)));
        assert_eq!(acting(0.5, 1.0, 0.05), Some(("accounting", 0.05)));
        assert_eq!(acting(0.05, 0.05, 1.0), Some(("budget", 0.05)));
        let earlier = TenantMultiplier::new(0.05, None, None);
        assert_eq!(earlier.others(earlier.acting()).count(), 0);
        assert_eq!(
            TenantMultiplier::new(1.0, Some(1.0), None)
                .others(None)
                .count(),
            0
        );
    }
}
