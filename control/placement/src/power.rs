//! Power of domains over time. A node's charge is paid by its domain and by all that this is part of.

use crate::{
    bits::BitSet,
    index::Index,
    machine::{Machine, NEVER, expected_end},
    profile::Profile,
    view::ClusterView,
};

/// What each domain has left.
#[derive(Debug)]
pub(crate) struct Power(Vec<Profile>);

impl Power {
    pub(crate) fn new(view: &ClusterView, machine: &Machine, now: u64) -> Self {
        let index = &machine.index;
        let mut returns = vec![Vec::new(); index.domains.len()];
        for (n, payer) in index.payers.iter().enumerate() {
            let at = machine.free_at[n];
            if let Some(payer) = payer
                && !machine.free.contains(n)
                && at != NEVER
            {
                let step = (expected_end(at, now), i128::from(payer.mw));
                index
                    .paying(payer.domain)
                    .for_each(|d| returns[d].push(step));
            }
        }
        let domains = view.power.values().zip(returns);
        Self(
            domains
                .map(|(domain, returns)| Profile::new(domain.headroom_mw, returns))
                .collect(),
        )
    }

    /// Whether nobody counts power.
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left all the time from `from` until `until`.
    pub(crate) fn left(&self, from: u64, until: Option<u64>) -> PowerLeft {
        PowerLeft(
            self.0
                .iter()
                .map(|domain| domain.least(from, until))
                .collect(),
        )
    }

    pub(crate) fn take(&mut self, index: &Index, n: usize, from: Option<u64>, until: Option<u64>) {
        if let Some(payer) = index.payers[n] {
            for d in index.paying(payer.domain) {
                self.0[d].take(payer.mw, from, until);
            }
        }
    }

    /// The first time after `after` at which some domain has more or less.
    pub(crate) fn next_step(&self, after: u64) -> Option<u64> {
        self.0
            .iter()
            .filter_map(|domain| domain.next_step(after))
            .min()
    }
}

/// What is left over a time, milliwatts of each domain.
#[derive(Debug, Clone)]
pub(crate) struct PowerLeft(Vec<i128>);

impl PowerLeft {
    /// Pays for the node, if there is enough in every domain.
    pub(crate) fn pay(&mut self, index: &Index, n: usize) -> bool {
        let Some(payer) = index.payers[n] else {
            return true;
        };
        let mw = i128::from(payer.mw);
        if mw > 0 && index.paying(payer.domain).any(|d| self.0[d] < mw) {
            return false;
        }
        index.paying(payer.domain).for_each(|d| self.0[d] -= mw);
        true
    }

    /// The nodes that can be paid together, the cheapest first: where all of a domain cost the same, no
    /// others are more.
    pub(crate) fn affordable(
        &mut self,
        index: &Index,
        nodes: impl Iterator<Item = usize>,
    ) -> Vec<usize> {
        let mut nodes: Vec<usize> = nodes.collect();
        nodes.sort_by_key(|n| index.payers[*n].map_or(0, |payer| payer.mw));
        nodes.retain(|n| self.pay(index, *n));
        nodes
    }

    /// Whether there is not enough for all of them.
    pub(crate) fn is_short(&self, index: &Index, nodes: &BitSet) -> bool {
        let mut left = self.clone();
        nodes.iter().any(|n| !left.pay(index, n))
    }
}

impl Index {
    /// The domain and those that pay with it.
    pub(crate) fn paying(&self, domain: usize) -> impl Iterator<Item = usize> + '_ {
        let above = self.domains[domain].ancestors.iter().copied();
        std::iter::once(domain).chain(above)
    }
}
