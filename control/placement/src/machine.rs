//! The nodes as they are now: which are fit, which are free, and when the others will be. Kept from plan
//! to plan; a change costs what it touches.

use crate::{
    bits::BitSet,
    eligible::Condition,
    index::Index,
    queue::UNBOUNDED_WALLTIME_MS,
    view::{Before, ClusterView, Health, Liveness, LoanView, NodeView, RunningView},
    windows::Windows,
};
use lattice_quorum_types::{AllocationId, NodeId};
use std::{collections::BTreeMap, slice};

/// A node that is not known to come free.
pub(crate) const NEVER: u64 = u64::MAX;

/// What is over its end goes on for so long at least, milliseconds.
const OVERRUN: u64 = 60_000;

/// When work is expected to be over that must be at `at`. Of what has overrun its end nobody knows why (a node
/// may have gone dark), so it is expected to go on for as long again: who waits for it does not hold back
/// nodes from others for an end that never comes.
pub(crate) fn expected_end(at: u64, now: u64) -> u64 {
    match now.checked_sub(at) {
        None => at,
        Some(over) => now.saturating_add(over.max(OVERRUN)),
    }
}

/// See the module. Nodes go by their numbers in the index.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) index: Index,
    pub(crate) condition: Condition,
    /// Another one whenever `condition` or the index is.
    pub(crate) stamp: u64,
    pub(crate) versions: Vec<u64>,
    pub(crate) free: BitSet,
    /// Free or not: used only where no other will do.
    pub(crate) deprioritised: BitSet,
    /// When each is free: 0 now, [`NEVER`] not foreseeable, else Unix milliseconds.
    pub(crate) free_at: Vec<u64>,
    held: BTreeMap<AllocationId, Held>,
    /// What another vCluster uses; never free.
    loans: BTreeMap<usize, Loan>,
    /// What administrators keep for some.
    pub(crate) windows: Windows,
}

/// When a node that is lent comes back.
#[derive(Debug)]
struct Loan {
    release_after_ms: u64,
    recalled_at: Option<u64>,
    /// Nobody holds it.
    is_idle: bool,
}

impl Loan {
    fn new(loan: &LoanView) -> Self {
        Self {
            release_after_ms: loan.release_after_ms,
            recalled_at: loan.recalled_at.map(|at| at.0),
            is_idle: loan.node.holder.is_none(),
        }
    }

    /// At the latest. What has not come back in time goes on as what has overrun its end.
    fn released_at(&self, now: u64) -> u64 {
        let from = self.recalled_at.unwrap_or(now);
        expected_end(from.saturating_add(self.release_after_ms), now)
    }
}

/// What an allocation holds.
#[derive(Debug)]
struct Held {
    nodes: Vec<usize>,
    /// GPUs of those that are not lent.
    gpus: u128,
    /// When they come free, as far as that is known.
    at: u64,
}

impl Held {
    fn until(at: u64) -> Self {
        Self {
            nodes: Vec::new(),
            gpus: 0,
            at,
        }
    }
}

impl Machine {
    /// Of the nodes that the vCluster uses now.
    pub(crate) fn new(view: &ClusterView) -> Self {
        Self::of(view, &view.nodes)
    }

    /// With those that it has lent, too.
    pub(crate) fn with_loans(view: &ClusterView) -> Self {
        if view.on_loan.is_empty() {
            return Self::new(view);
        }
        let lent = view.on_loan.iter();
        let lent = lent.map(|(name, loan)| (name.clone(), loan.node.clone()));
        let mut nodes: BTreeMap<NodeId, NodeView> = lent.collect();
        let here = view.nodes.iter();
        nodes.extend(here.map(|(name, node)| (name.clone(), node.clone())));
        Self::of(view, &nodes)
    }

    fn of(view: &ClusterView, nodes: &BTreeMap<NodeId, NodeView>) -> Self {
        let index = Index::new(nodes, &view.power);
        let size = index.size();
        let lent = view.on_loan.iter().filter_map(|(name, loan)| {
            let is_here = view.nodes.contains_key(name);
            let n = index.find(name).filter(|_| !is_here)?;
            Some((n, Loan::new(loan)))
        });
        let mut machine = Self {
            loans: lent.collect(),
            windows: Windows::new(&view.reserved, &index),
            condition: Condition::none(size),
            stamp: 0,
            versions: vec![0; size],
            free: BitSet::empty(size),
            deprioritised: BitSet::empty(size),
            free_at: vec![NEVER; size],
            held: BTreeMap::new(),
            index,
        };
        for (place, node) in nodes.values().enumerate() {
            machine.set(machine.index.number[place], node, &view.running);
        }
        machine
    }

    /// Follows changes that `view` shows already; `false` where everything must be made anew.
    pub(crate) fn follow(&mut self, before: &Before, view: &ClusterView) -> bool {
        if before.loans_differ {
            return false;
        }
        if before.reserved_differ {
            self.stamp += 1;
            self.windows = Windows::new(&view.reserved, &self.index);
        }
        for (name, old) in &before.nodes {
            match (old, view.nodes.get(name)) {
                (None, None) => {}
                (Some(old), Some(new)) if is_same_hardware(old, new) => {
                    let Some(n) = self.index.find(name) else {
                        return false;
                    };
                    if !is_as_fit(old, new) {
                        self.stamp += 1;
                        self.condition.clear(n, old.owner.as_ref());
                    }
                    let gpus = self.gpus(n);
                    if let Some(held) = old.holder.and_then(|id| self.held.get_mut(&id)) {
                        let before = held.nodes.len();
                        held.nodes.retain(|held| *held != n);
                        if held.nodes.len() < before {
                            held.gpus -= gpus;
                        }
                    }
                    self.set(n, new, &view.running);
                }
                _ => return false,
            }
        }
        for id in &before.running {
            let at = free_at(view.running.get(id));
            if let Some(held) = self.held.get_mut(id) {
                held.at = at;
                held.nodes.iter().for_each(|n| self.free_at[*n] = at);
            }
        }
        self.held.retain(|_, held| !held.nodes.is_empty());
        true
    }

    /// Nodes are given to an allocation whose end, also with those it has, is expected at `at`; each as another version
    /// of it.
    pub(crate) fn hold(
        &mut self,
        id: AllocationId,
        nodes: impl Iterator<Item = usize>,
        at: Option<u64>,
    ) {
        let at = at.unwrap_or(NEVER);
        let mut held = self.held.remove(&id).unwrap_or_else(|| Held::until(at));
        held.at = at;
        held.nodes.iter().for_each(|n| self.free_at[*n] = at);
        for n in nodes {
            self.versions[n] += 1;
            self.free.remove(n);
            self.free_at[n] = at;
            held.gpus += self.gpus(n);
            held.nodes.push(n);
        }
        self.held.insert(id, held);
    }

    /// It gives all of them back. Which they were.
    pub(crate) fn release(&mut self, id: AllocationId) -> Vec<usize> {
        let held = self.held.remove(&id);
        let nodes = held.map_or_else(Vec::new, |held| held.nodes);
        for n in &nodes {
            let is_here = !self.loans.contains_key(n);
            self.versions[*n] += 1;
            self.free.put(*n, is_here);
            self.free_at[*n] = if is_here { 0 } else { NEVER };
        }
        nodes
    }

    /// Nodes that are not free, and when they are expected to be; each once.
    pub(crate) fn ends(&self, now: u64) -> impl Iterator<Item = (u64, &[usize])> {
        let held = self.held.values().flat_map(move |held| {
            let is_lent = |n: &usize| self.loans.contains_key(n);
            // What is lent may come back at another time than what else its user has.
            let has_lent = !self.loans.is_empty() && held.nodes.iter().any(is_lent);
            let together = if has_lent { 1 } else { held.nodes.len().max(1) };
            let end = expected_end(held.at, now);
            held.nodes
                .chunks(together)
                .filter(move |nodes| !has_lent || !nodes.iter().any(is_lent))
                .map(move |nodes| (end, nodes))
        });
        let lent = self.loans.keys();
        let lent = lent.map(move |n| (self.expected_free_at(*n, now), slice::from_ref(n)));
        held.chain(lent)
    }

    /// When a node that is not free is expected to be.
    pub(crate) fn expected_free_at(&self, n: usize, now: u64) -> u64 {
        let at = expected_end(self.free_at[n], now);
        match self.loans.get(&n) {
            None => at,
            Some(loan) => at.min(loan.released_at(now)),
        }
    }

    /// Whether somebody's work is on it, here or at a borrower's.
    pub(crate) fn is_held(&self, n: usize) -> bool {
        let is_idle = |loan: &Loan| loan.is_idle;
        !self.free.contains(n) && !self.loans.get(&n).is_some_and(is_idle)
    }

    /// What the running work has been given, in milliseconds of one GPU. What runs at a borrower's is not ours.
    pub(crate) fn running_gpu_ms(&self, running: &BTreeMap<AllocationId, RunningView>) -> u128 {
        let counted = self.held.iter().filter(|(_, held)| held.gpus > 0);
        let of_allocation = |(id, held): (&AllocationId, &Held)| {
            let walltime = running.get(id).and_then(|r| r.walltime_ms);
            let lasts_ms = walltime.unwrap_or(UNBOUNDED_WALLTIME_MS);
            held.gpus.saturating_mul(lasts_ms.into())
        };
        let all = counted.map(of_allocation);
        all.fold(0, u128::saturating_add)
    }

    /// Of a node, if it is not lent.
    fn gpus(&self, n: usize) -> u128 {
        match self.loans.contains_key(&n) {
            true => 0,
            false => self.index.gpus[n].into(),
        }
    }

    fn set(&mut self, n: usize, node: &NodeView, running: &BTreeMap<AllocationId, RunningView>) {
        self.versions[n] = node.version;
        self.condition.set(n, node);
        self.deprioritised.put(n, node.is_last());
        let is_here = !self.loans.contains_key(&n);
        self.free.put(n, node.holder.is_none() && is_here);
        self.free_at[n] = match node.holder {
            None if is_here => 0,
            None => NEVER,
            Some(id) => {
                let gpus = self.gpus(n);
                let held = self.held.entry(id);
                let held = held.or_insert_with(|| Held::until(free_at(running.get(&id))));
                held.nodes.push(n);
                held.gpus += gpus;
                held.at
            }
        };
    }
}

fn free_at(running: Option<&RunningView>) -> u64 {
    running.and_then(|r| r.ends_at).map_or(NEVER, |end| end.0)
}

/// Whether the index is the same for both.
fn is_same_hardware(old: &NodeView, new: &NodeView) -> bool {
    let (a, b) = (&old.facts, &new.facts);
    a.group == b.group
        && a.conformance == b.conformance
        && a.gpu_model == b.gpu_model
        && a.gpu_count == b.gpu_count
        && a.memory_bytes == b.memory_bytes
        && a.gpu_memory_bytes == b.gpu_memory_bytes
        && a.features == b.features
        && a.charge == b.charge
}

/// Whether the same jobs may have it once nobody holds it.
fn is_as_fit(old: &NodeView, new: &NodeView) -> bool {
    (old.in_service, old.promised) == (new.in_service, new.promised)
        && old.owner == new.owner
        && old.borrowed == new.borrowed
        && old.facts.liveness == new.facts.liveness
        && old.facts.health == new.facts.health
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

    fn clear(&mut self, n: usize, owner: Option<&crate::view::Owner>) {
        if let Some(set) = owner.and_then(|owner| self.claimed.get_mut(owner)) {
            set.remove(n);
        }
        self.claimed.retain(|_, set| !set.is_empty());
    }

    fn set(&mut self, n: usize, node: &NodeView) {
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
}
