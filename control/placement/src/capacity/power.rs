//! Power budgets of domains over time. The power of a node counts in its domain and in all domains that contain it.

use super::resource_curve::ResourceCurve;
use crate::{
    bits::BitSet,
    machine::{Machine, index::Index},
    view::{ClusterView, DomainView},
    walltime::NEVER,
};

/// Remaining power of each domain, over time.
#[derive(Debug)]
pub(crate) struct Power {
    domains: Vec<ResourceCurve>,
    /// Remaining power if no allocation ran.
    total: PowerLeft,
}

impl Power {
    pub(crate) fn new(view: &ClusterView, machine: &Machine, now: u64) -> Self {
        let index = &machine.index;
        let mut returns = vec![Vec::new(); index.domains.len()];
        let headroom = view.power.values().map(|d| i128::from(d.headroom_mw));
        let mut at_all: Vec<i128> = headroom.collect();
        // Without power domains in the view, no node's power is counted.
        let payers = match view.power.is_empty() {
            true => &[],
            false => index.power_supplies.as_slice(),
        };
        for (n, payer) in payers.iter().enumerate() {
            let Some(payer) = payer.filter(|_| machine.is_held(n)) else {
                continue;
            };
            let (at, mw) = (machine.expected_free_at(n, now), i128::from(payer.mw));
            for d in index.domain_and_ancestors(payer.domain) {
                at_all[d] += mw;
                if at != NEVER {
                    returns[d].push((at, mw));
                }
            }
        }
        let domains = view.power.values().zip(returns);
        let profile =
            |(domain, returns): (&DomainView, _)| ResourceCurve::new(domain.headroom_mw, returns);
        Self {
            domains: domains.map(profile).collect(),
            total: PowerLeft(at_all),
        }
    }

    /// Whether power is not limited.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.domains.is_empty()
    }

    /// Remaining power if no allocation ran.
    pub(crate) fn total(&self) -> PowerLeft {
        self.total.clone()
    }

    /// Upper bound of the remaining power at any time from `from` on, as far as foreseeable.
    pub(crate) fn upper_bound(&self, from: u64) -> PowerLeft {
        PowerLeft(self.domains.iter().map(|d| d.max_from(from)).collect())
    }

    /// Power that remains at every time from `from` until `until`.
    pub(crate) fn left(&self, from: u64, until: Option<u64>) -> PowerLeft {
        PowerLeft(
            self.domains
                .iter()
                .map(|domain| domain.min_between(from, until))
                .collect(),
        )
    }

    pub(crate) fn take(&mut self, index: &Index, n: usize, from: Option<u64>, until: Option<u64>) {
        if let Some(payer) = index.power_supplies[n] {
            for d in index.domain_and_ancestors(payer.domain) {
                self.domains[d].take(payer.mw, from, until);
            }
        }
    }

    /// First time after `after` at which the remaining power of a domain changes.
    pub(crate) fn next_step(&self, after: u64) -> Option<u64> {
        self.domains
            .iter()
            .filter_map(|domain| domain.next_step(after))
            .min()
    }
}

/// Remaining power during an interval, milliwatts by domain.
#[derive(Debug, Clone)]
pub(crate) struct PowerLeft(Vec<i128>);

impl PowerLeft {
    /// Subtracts the power of the node if every domain has enough, and returns whether that was so.
    pub(crate) fn try_subtract(&mut self, index: &Index, n: usize) -> bool {
        let Some(payer) = index.power_supplies[n] else {
            return true;
        };
        let mw = i128::from(payer.mw);
        if mw > 0
            && index
                .domain_and_ancestors(payer.domain)
                .any(|d| self.0[d] < mw)
        {
            return false;
        }
        index
            .domain_and_ancestors(payer.domain)
            .for_each(|d| self.0[d] -= mw);
        true
    }

    /// Largest set of nodes that fits the power budget together, cheapest first. A node is left out only if nodes of at
    /// most its power exhaust one of its domains. Any set with the node then lacks at least one of those.
    pub(crate) fn affordable(
        &mut self,
        index: &Index,
        nodes: impl Iterator<Item = usize>,
    ) -> Vec<usize> {
        let mut nodes: Vec<usize> = nodes.collect();
        nodes.sort_by_key(|n| index.power_supplies[*n].map_or(0, |payer| payer.mw));
        nodes.retain(|n| self.try_subtract(index, *n));
        nodes
    }

    /// Largest number of `nodes` that fit the power budget together; in one conformance group if `alike`.
    pub(crate) fn count(&self, index: &Index, nodes: &BitSet, alike: bool) -> u32 {
        let paid = |nodes: &BitSet| self.clone().affordable(index, nodes.iter()).len();
        let most = match alike {
            false => paid(nodes),
            true => {
                let alike = index
                    .conformance_members
                    .iter()
                    .map(|alike| alike.and(nodes));
                alike.map(|alike| paid(&alike)).max().unwrap_or(0)
            }
        };
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Whether power does not suffice for all of these nodes.
    pub(crate) fn is_short(&self, index: &Index, nodes: &BitSet) -> bool {
        let mut left = self.clone();
        nodes.iter().any(|n| !left.try_subtract(index, n))
    }
}

impl Index {
    /// The domain with all domains that contain it.
    pub(crate) fn domain_and_ancestors(&self, domain: usize) -> impl Iterator<Item = usize> + '_ {
        let above = self.domains[domain].ancestors.iter().copied();
        std::iter::once(domain).chain(above)
    }
}
