//! Conditions of the nodes that apply whatever a job requests.

use crate::{
    bits::BitSet,
    view::{Health, Liveness, NodeView, Owner},
};
use lattice_quorum_types::ProjectPath;
use std::collections::BTreeMap;

/// Node conditions that apply whatever a job requests, as sets.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) in_service: BitSet,
    /// Promised or reclaimed, and otherwise in service.
    pub(crate) promised: BitSet,
    pub(crate) alive: BitSet,
    pub(crate) usable: BitSet,
    /// Healthy, which only sensitive jobs require.
    pub(crate) healthy: BitSet,
    /// Not claimed by any user.
    pub(crate) unclaimed: BitSet,
    /// Not borrowed: the home vCluster is that of the plan.
    pub(crate) home: BitSet,
    /// Nodes claimed for sensitive jobs, by user and project.
    pub(crate) claimed: BTreeMap<Owner, BitSet>,
}

impl Condition {
    pub(crate) fn none(size: usize) -> Self {
        Self {
            in_service: BitSet::empty(size),
            promised: BitSet::empty(size),
            alive: BitSet::empty(size),
            usable: BitSet::empty(size),
            healthy: BitSet::empty(size),
            unclaimed: BitSet::empty(size),
            home: BitSet::empty(size),
            claimed: BTreeMap::new(),
        }
    }

    pub(super) fn clear(&mut self, n: usize, owner: Option<&Owner>) {
        if let Some(set) = owner.and_then(|owner| self.claimed.get_mut(owner)) {
            set.remove(n);
        }
        self.claimed.retain(|_, set| !set.is_empty());
    }

    pub(super) fn set(&mut self, n: usize, node: &NodeView) {
        self.in_service.put(n, node.in_service);
        self.promised.put(n, node.promised);
        self.alive.put(n, node.facts.liveness == Liveness::Alive);
        self.usable.put(n, node.facts.health.is_usable());
        self.healthy.put(n, node.facts.health == Health::Healthy);
        self.unclaimed.put(n, node.owner.is_none());
        self.home.put(n, !node.borrowed);
        if let Some(owner) = &node.owner {
            let size = self.unclaimed.capacity();
            let claimed = self.claimed.entry(owner.clone());
            claimed.or_insert_with(|| BitSet::empty(size)).insert(n);
        }
    }

    pub(crate) fn claimed_by(&self, (user, project): (&str, &ProjectPath)) -> Option<&BitSet> {
        let owner = Owner {
            user: user.to_owned(),
            project: project.clone(),
        };
        self.claimed.get(&owner)
    }
}
