//! Choice of the baseline for a node: one rule for control, which compares nodes, and for the state machine, which
//! commits assignments.

use super::{BaselineDefinition, CohortSelector};
use serde::{Deserialize, Serialize};

/// Cohort: the properties that nodes of the same construction share, as baseline selectors use them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cohort {
    /// System vendor; `None` if the firmware reports none.
    pub vendor: Option<String>,
    /// Product name; `None` if the firmware reports none.
    pub product: Option<String>,
    /// GPU model; `None` on a node without GPUs.
    pub gpu_model: Option<String>,
    /// Number of GPUs; `None` if the site disabled the GPU probe.
    pub gpu_count: Option<u32>,
}

/// Specificity with which a baseline selects a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Specificity {
    /// By cohort, with this number of parts.
    Cohort(usize),
    /// By name.
    Named,
}

impl CohortSelector {
    /// Checks whether every given part equals that of the cohort.
    pub fn selects(&self, cohort: &Cohort) -> bool {
        let same =
            |wanted: &Option<String>, has: &Option<String>| wanted.is_none() || wanted == has;
        same(&self.vendor, &cohort.vendor)
            && same(&self.product, &cohort.product)
            && same(&self.gpu_model, &cohort.gpu_model)
            && (self.gpu_count.is_none() || self.gpu_count == cohort.gpu_count)
    }
}

impl BaselineDefinition {
    /// Specificity with which the baseline selects a node; `None` if it does not select the node. `is_named` states
    /// whether the baseline names the node. Without a cohort, only a baseline that names the node selects it.
    pub fn rank(&self, is_named: bool, cohort: Option<&Cohort>) -> Option<Specificity> {
        if is_named {
            return Some(Specificity::Named);
        }
        let selector = self.cohort.as_ref()?;
        selector
            .selects(cohort?)
            .then(|| Specificity::Cohort(selector.parts()))
    }
}

/// Returns the candidates with the highest specificity, in the given order. More than one is ambiguous: none of them
/// applies until an operator resolves the conflict.
pub fn most_specific<T>(speak: impl IntoIterator<Item = (Specificity, T)>) -> Vec<T> {
    let (mut best, mut chosen) = (None, Vec::new());
    for (rank, one) in speak {
        if best.is_none_or(|known| rank > known) {
            (best, chosen) = (Some(rank), Vec::new());
        }
        if best == Some(rank) {
            chosen.push(one);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_before_a_cohort_and_more_parts_before_fewer() {
        let ranks = [
            (Specificity::Cohort(1), "one"),
            (Specificity::Cohort(2), "two"),
            (Specificity::Named, "named"),
            (Specificity::Cohort(4), "four"),
        ];
        assert_eq!(most_specific(ranks), ["named"]);
        assert_eq!(most_specific(ranks.into_iter().take(2)), ["two"]);
        let equal = [
            (Specificity::Cohort(2), "a"),
            (Specificity::Cohort(1), "b"),
            (Specificity::Cohort(2), "c"),
        ];
        assert_eq!(most_specific(equal), ["a", "c"]);
        assert!(most_specific::<&str>([]).is_empty());
    }

    #[test]
    fn a_part_that_is_not_given_selects_everything() {
        let cohort = Cohort {
            product: Some("XE9680".to_owned()),
            gpu_count: Some(8),
            ..Cohort::default()
        };
        let of = |product: Option<&str>, gpu_count| BaselineDefinition {
            cohort: Some(CohortSelector {
                product: product.map(str::to_owned),
                gpu_count,
                ..CohortSelector::default()
            }),
            ..BaselineDefinition::default()
        };
        let rank = |d: &BaselineDefinition| d.rank(false, Some(&cohort));
        assert_eq!(
            rank(&of(Some("XE9680"), None)),
            Some(Specificity::Cohort(1))
        );
        assert_eq!(
            rank(&of(Some("XE9680"), Some(8))),
            Some(Specificity::Cohort(2))
        );
        assert_eq!(rank(&of(Some("XE9680"), Some(4))), None);
        assert_eq!(rank(&of(Some("XE8545"), None)), None);
        assert_eq!(of(None, Some(8)).rank(false, None), None);
        assert_eq!(of(None, Some(8)).rank(true, None), Some(Specificity::Named));
        assert_eq!(rank(&BaselineDefinition::default()), None);
    }
}
