//! Machine: present state of the nodes, that is, their condition, the free nodes, and the expected free times of the
//! others. Kept from plan to plan; an update costs only the changed nodes.

pub(crate) mod condition;
pub(crate) mod index;
pub(crate) mod windows;

use crate::{
    bits::BitSet,
    view::{ClusterView, FormerEntries, LoanView, NodeView, RunningView},
    walltime::{NEVER, UNBOUNDED_WALLTIME_MS, expected_end},
};
use condition::Condition;
use index::Index;
use lattice_quorum_types::{AllocationId, NodeId};
use std::{collections::BTreeMap, slice};
use windows::Windows;

/// State of the nodes, by their numbers in the index.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) index: Index,
    pub(crate) condition: Condition,
    /// Version of `condition` and `windows`; increases with each change that affects the eligibility of nodes.
    pub(crate) eligibility_version: u64,
    pub(crate) versions: Vec<u64>,
    pub(crate) free: BitSet,
    /// Nodes, free or not, used only if no others suffice.
    pub(crate) deprioritised: BitSet,
    /// Free time of each node: 0 for now, [`NEVER`] if not foreseeable, else Unix milliseconds.
    pub(crate) free_at: Vec<u64>,
    held: BTreeMap<AllocationId, HeldNodes>,
    /// Nodes lent to another vCluster; never free.
    loans: BTreeMap<usize, Loan>,
    /// Reservation windows of operators.
    pub(crate) windows: Windows,
}

/// Expected return of a lent node.
#[derive(Debug)]
struct Loan {
    release_after_ms: u64,
    reclaimed_at: Option<u64>,
    /// Whether no allocation holds the node.
    is_idle: bool,
}

impl Loan {
    fn new(loan: &LoanView) -> Self {
        Self {
            release_after_ms: loan.release_after_ms,
            reclaimed_at: loan.reclaimed_at.map(|at| at.0),
            is_idle: loan.node.holder.is_none(),
        }
    }

    /// Latest expected return. An overdue node is treated like an allocation past its end.
    fn released_at(&self, now: u64) -> u64 {
        let from = self.reclaimed_at.unwrap_or(now);
        expected_end(from.saturating_add(self.release_after_ms), now)
    }
}

/// Nodes of an allocation.
#[derive(Debug)]
struct HeldNodes {
    nodes: Vec<usize>,
    /// GPUs of the allocation's nodes that are not lent.
    gpus: u128,
    /// Expected free time of the allocation's nodes, Unix milliseconds; [`NEVER`] if unknown.
    at: u64,
}

impl HeldNodes {
    fn until(at: u64) -> Self {
        Self {
            nodes: Vec::new(),
            gpus: 0,
            at,
        }
    }
}

impl Machine {
    /// State of the nodes that the vCluster uses now.
    pub(crate) fn new(view: &ClusterView) -> Self {
        Self::of(view, &view.nodes)
    }

    /// State of the nodes that the vCluster uses now and of those that it has lent.
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
            eligibility_version: 0,
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

    /// Applies changes that `view` already contains; `false` if everything must be rebuilt.
    pub(crate) fn apply_changes(&mut self, before: &FormerEntries, view: &ClusterView) -> bool {
        if before.loans_differ {
            return false;
        }
        if before.reserved_differ {
            self.eligibility_version += 1;
            self.windows = Windows::new(&view.reserved, &self.index);
        }
        for (name, old) in &before.nodes {
            match (old, view.nodes.get(name)) {
                (None, None) => {}
                (Some(old), Some(new)) if has_same_index_entry(old, new) => {
                    let Some(n) = self.index.find(name) else {
                        return false;
                    };
                    if !has_same_eligibility(old, new) {
                        self.eligibility_version += 1;
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

    /// Assigns nodes to an allocation with expected end `at`, which also applies to the nodes that the allocation has
    /// already. Each newly assigned node gets a new version.
    pub(crate) fn hold(
        &mut self,
        id: AllocationId,
        nodes: impl Iterator<Item = usize>,
        at: Option<u64>,
    ) {
        let at = at.unwrap_or(NEVER);
        let mut held = self
            .held
            .remove(&id)
            .unwrap_or_else(|| HeldNodes::until(at));
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

    /// Releases all nodes of an allocation, and returns them.
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

    /// Nodes that are not free, with their expected free time; each node once.
    pub(crate) fn ends(&self, now: u64) -> impl Iterator<Item = (u64, &[usize])> {
        let held = self.held.values().flat_map(move |held| {
            let is_lent = |n: &usize| self.loans.contains_key(n);
            // A lent node may come back at another time than other nodes of the same holder.
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

    /// Expected free time of a node that is not free.
    pub(crate) fn expected_free_at(&self, n: usize, now: u64) -> u64 {
        let at = expected_end(self.free_at[n], now);
        match self.loans.get(&n) {
            None => at,
            Some(loan) => at.min(loan.released_at(now)),
        }
    }

    /// Whether an allocation runs on the node, here or at the borrower.
    pub(crate) fn is_held(&self, n: usize) -> bool {
        let is_idle = |loan: &Loan| loan.is_idle;
        !self.free.contains(n) && !self.loans.get(&n).is_some_and(is_idle)
    }

    /// Walltime granted to running allocations, in milliseconds of one GPU. Allocations on lent nodes are not counted.
    pub(crate) fn running_gpu_ms(&self, running: &BTreeMap<AllocationId, RunningView>) -> u128 {
        let counted = self.held.iter().filter(|(_, held)| held.gpus > 0);
        let of_allocation = |(id, held): (&AllocationId, &HeldNodes)| {
            let walltime = running.get(id).and_then(|r| r.walltime_ms);
            let lasts_ms = walltime.unwrap_or(UNBOUNDED_WALLTIME_MS);
            held.gpus.saturating_mul(lasts_ms.into())
        };
        let all = counted.map(of_allocation);
        all.fold(0, u128::saturating_add)
    }

    /// GPUs of a node; 0 for a lent node.
    fn gpus(&self, n: usize) -> u128 {
        match self.loans.contains_key(&n) {
            true => 0,
            false => self.index.gpus[n].into(),
        }
    }

    fn set(&mut self, n: usize, node: &NodeView, running: &BTreeMap<AllocationId, RunningView>) {
        self.versions[n] = node.version;
        self.condition.set(n, node);
        self.deprioritised.put(n, node.is_last_resort());
        let is_here = !self.loans.contains_key(&n);
        self.free.put(n, node.holder.is_none() && is_here);
        self.free_at[n] = match node.holder {
            None if is_here => 0,
            None => NEVER,
            Some(id) => {
                let gpus = self.gpus(n);
                let held = self.held.entry(id);
                let held = held.or_insert_with(|| HeldNodes::until(free_at(running.get(&id))));
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

/// Whether both views give the same index entry.
fn has_same_index_entry(old: &NodeView, new: &NodeView) -> bool {
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

/// Whether the same jobs may use the node once it is free.
fn has_same_eligibility(old: &NodeView, new: &NodeView) -> bool {
    (old.in_service, old.promised) == (new.in_service, new.promised)
        && old.owner == new.owner
        && old.borrowed == new.borrowed
        && old.facts.liveness == new.facts.liveness
        && old.facts.health == new.facts.health
}
