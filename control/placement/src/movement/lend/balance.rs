//! Lending balance: owners and users of nodes, and the nodes that one lending decision has already assigned.

mod pools;
mod spare_nodes;

pub(super) use pools::Pools;

use super::{
    BorrowRefusal, Input, NodeOwnership, ReleaseManner, VclusterLending, WaitingJob,
    loan_release_at, may_borrow, reclaim::ReclaimCandidate,
};
use crate::{
    backfill::hold_sets::HoldSets,
    bits::BitSet,
    eligibility::sets::{EligibilityCache, EligibleSet, EligibleSets},
    machine::Machine,
    movement::preempt::{Cost, HolderFacts},
    priority::factors,
    queue::{Job, Queue},
    view::{PendingView, RunningView},
};
use lattice_quorum_types::{AllocationId, AllocationState, NodeId, UnixMillis, VclusterName};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// A waiting job. A sensitive job takes all its nodes from one conformance group.
#[derive(Debug, Clone, Copy)]
pub(super) struct BorrowRequest<'a> {
    pub(super) wanting: &'a WaitingJob,
    pub(super) view: &'a PendingView,
    /// Position in the joint queue.
    place: usize,
    /// Number of the job's vCluster.
    pub(super) vcluster: usize,
}

impl BorrowRequest<'_> {
    pub(super) fn id(&self) -> AllocationId {
        self.wanting.id
    }

    /// Order of service: higher classes first, then larger gain by a loan, then longer wait, then id. The gain is
    /// (1 + f2) · f8. The gain grows with the wait. It shrinks with the time for a checkpoint, because the job may have
    /// to move again.
    pub(super) fn service_order(&self, input: &Input<'_>) -> impl Ord + use<> {
        let view = self.view;
        let wait = input.now.since(view.eligible_at);
        let waited = 1.0 + factors::wait_time(wait, input.solver.reference_wait_ms);
        let minutes = view.checkpoint_ms.map(|ms| ms as f64 / 60_000.0);
        // Not below 0, so the bits order like the numbers.
        let gain = (waited * factors::checkpoint(minutes)).to_bits();
        (
            Reverse(view.class),
            Reverse(gain),
            view.eligible_at,
            self.id(),
        )
    }
}

/// State of one decision. vClusters are numbered by the order of their names.
pub(super) struct LendingBalance<'a> {
    pub(super) input: Input<'a>,
    machine: Machine,
    queue: Queue,
    sets: EligibleSets,
    pub(super) names: Vec<&'a VclusterName>,
    pub(super) members: Vec<&'a VclusterLending>,
    /// Owner and user by node number, if known.
    places: Vec<Option<&'a NodeOwnership>>,
    holders: Vec<Option<AllocationId>>,
    held: BTreeMap<AllocationId, Vec<usize>>,
    /// Own nodes of each vCluster.
    owned: Vec<BitSet>,
    /// Nodes that each vCluster uses.
    used: Vec<BitSet>,
    planned: BitSet,
    returning: BitSet,
    /// Nodes that this decision has given to a job.
    taken: BitSet,
    lent: Vec<u32>,
    /// Reservation windows of operators, by group of jobs.
    kept: HoldSets<'static>,
    borrowed: Vec<u32>,
}

impl<'a> LendingBalance<'a> {
    pub(super) fn new(input: Input<'a>) -> Self {
        let mut machine = Machine::new(input.view);
        for (name, _) in input
            .places
            .iter()
            .filter(|(_, p)| p.reclaimed_at.is_some())
        {
            if let Some(n) = machine.index.find(name) {
                machine.condition.in_service.insert(n);
            }
        }
        let queue = Queue::new(&input.view.pending);
        let sets = EligibilityCache::default().prepare(&machine, &queue);
        let size = machine.index.size();
        let names: Vec<&VclusterName> = input.vclusters.keys().collect();
        let mut ledger = Self {
            places: vec![None; size],
            holders: vec![None; size],
            held: BTreeMap::new(),
            owned: vec![BitSet::empty(size); names.len()],
            used: vec![BitSet::empty(size); names.len()],
            planned: BitSet::empty(size),
            returning: BitSet::empty(size),
            taken: BitSet::empty(size),
            lent: vec![0; names.len()],
            kept: HoldSets::new(&machine.windows, &sets, size, input.now.0),
            borrowed: vec![0; names.len()],
            members: input.vclusters.values().collect(),
            input,
            machine,
            queue,
            sets,
            names,
        };
        for (place, (name, node)) in input.view.nodes.iter().enumerate() {
            let n = ledger.machine.index.number[place];
            ledger.holders[n] = node.holder;
            if let Some(holder) = node.holder {
                ledger.held.entry(holder).or_default().push(n);
            }
            if let Some(place) = input.places.get(name) {
                ledger.add(n, place);
            }
        }
        ledger
    }

    fn add(&mut self, n: usize, place: &'a NodeOwnership) {
        let (home, here) = (self.number(&place.home), self.number(&place.current));
        self.places[n] = Some(place);
        self.planned.put(n, place.planned_for.is_some());
        self.returning.put(n, place.reclaimed_at.is_some());
        if let Some(home) = home {
            self.owned[home].insert(n);
            self.lent[home] += u32::from(place.home != place.current);
        }
        if let Some(here) = here {
            self.used[here].insert(n);
            self.borrowed[here] += u32::from(place.home != place.current);
        }
    }

    fn number(&self, name: &VclusterName) -> Option<usize> {
        self.names.binary_search(&name).ok()
    }

    /// Waiting jobs of each vCluster, in the order of its queue.
    pub(super) fn waiting_jobs(&self) -> Vec<BorrowRequest<'a>> {
        let of_member = |(vcluster, member): (usize, &&'a VclusterLending)| {
            let jobs = member.wanting.iter();
            let known = jobs.filter_map(move |wanting| {
                let view = self.input.view.pending.get(&wanting.id)?;
                let by_id = |job: &Job| job.id.cmp(&wanting.id);
                let place = self.queue.jobs.binary_search_by(by_id).ok()?;
                Some(BorrowRequest {
                    wanting,
                    view,
                    place,
                    vcluster,
                })
            });
            known.filter(|job| job.view.nodes > 0).collect::<Vec<_>>()
        };
        self.members
            .iter()
            .enumerate()
            .flat_map(of_member)
            .collect()
    }

    fn eligible(&self, job: &BorrowRequest<'_>) -> &EligibleSet {
        self.sets.get(self.sets.number(job.place))
    }

    /// Nodes that fit the job and that no job of this decision has.
    fn fits(&self, job: &BorrowRequest<'_>) -> BitSet {
        let mut fits = self.eligible(job).nodes.clone();
        fits.subtract(&self.taken);
        // Nodes reserved for others before the end of the job are of no use to the job.
        let set = self.sets.number(job.place);
        let end = job.view.walltime_ms.map(|ms| self.input.now.after(ms).0);
        self.kept.for_set(set).drop_held(&mut fits, end);
        fits
    }

    /// Whether the job may use borrowed nodes at all.
    pub(super) fn may_borrow(&self, job: &BorrowRequest<'_>) -> Result<(), BorrowRefusal> {
        if job.wanting.home_only {
            return Err(BorrowRefusal::HomeOnly);
        }
        may_borrow(
            job.view,
            job.wanting.saves,
            self.input.timing.near_completion_ms,
        )
    }

    /// Allocation that holds the node.
    pub(super) fn holder(&self, n: usize) -> Option<AllocationId> {
        self.holders[n]
    }

    /// Whether the plan of the node's vCluster counts on the node.
    pub(super) fn is_planned(&self, n: usize) -> bool {
        self.planned.contains(n)
    }

    /// Whether the node was moved long enough ago.
    pub(super) fn is_settled(&self, n: usize) -> bool {
        self.places[n].is_some_and(|place| self.has_settled(place.moved_at))
    }

    fn has_settled(&self, since: UnixMillis) -> bool {
        self.input.now.since(since) >= self.input.timing.settle_ms
    }

    /// Release manner, latest return time and cost (GPU-seconds) of nodes that `owner` reclaims from a job.
    pub(super) fn return_path(
        &self,
        from: AllocationId,
        owner: usize,
    ) -> (ReleaseManner, UnixMillis, f64) {
        let (now, timing) = (self.input.now, self.input.timing);
        let grace = self.members[owner].policy.return_grace_ms;
        let latest = loan_release_at(now, grace, timing.checkpoint_timeout_ms);
        let unknown = RunningView::default();
        let running = self.input.view.running.get(&from).unwrap_or(&unknown);
        let Some(work) = self.input.work.get(&from) else {
            return (ReleaseManner::LetEnd, latest, 0.0);
        };
        match running.ends_at {
            _ if work.state == AllocationState::Stopping => (ReleaseManner::LetEnd, latest, 0.0),
            // A job past its end may continue for long.
            Some(end) if end > now && end <= latest => (ReleaseManner::LetEnd, end, 0.0),
            _ => {
                let nodes = self.held.get(&from).map(Vec::as_slice).unwrap_or_default();
                let gpus = nodes.iter().map(|n| self.machine.index.gpus[*n].max(1));
                let cost = Cost::of(work, running, gpus.map(u64::from).sum(), now);
                (ReleaseManner::Stop, latest, cost.total())
            }
        }
    }

    /// Jobs that hold some of `nodes`, which belong to the owner, with those nodes.
    pub(super) fn reclaim_candidates(
        &self,
        nodes: &BitSet,
        owner: usize,
    ) -> Vec<(Vec<usize>, ReclaimCandidate)> {
        let mut by_holder: BTreeMap<AllocationId, Vec<usize>> = BTreeMap::new();
        for n in nodes.iter() {
            if let Some(holder) = self.holders[n] {
                by_holder.entry(holder).or_default().push(n);
            }
        }
        let count = |nodes: &[usize]| u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let item = |(holder, nodes): (AllocationId, Vec<usize>)| {
            let is_promised = |n: &&usize| self.places[**n].is_some_and(|place| place.is_promised);
            let promised = nodes.iter().filter(is_promised).count();
            let item = ReclaimCandidate {
                gain: count(&nodes),
                promised: u32::try_from(promised).unwrap_or(u32::MAX),
                nodes: self.held.get(&holder).map_or(0, |held| count(held)),
                cost: self.return_path(holder, owner).2,
            };
            (nodes, item)
        };
        by_holder.into_iter().map(item).collect()
    }

    /// Gives nodes to a job of this decision.
    pub(super) fn take(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|n| self.taken.insert(*n));
    }

    /// Undoes [`Self::take`].
    pub(super) fn release(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|n| self.taken.remove(*n));
    }

    /// Counts a loan.
    pub(super) fn lend(&mut self, nodes: &[usize], borrower: usize) {
        self.take(nodes);
        for n in nodes {
            if let Some(owner) = self.places[*n].and_then(|place| self.number(&place.home)) {
                self.lent[owner] += 1;
                self.borrowed[borrower] += 1;
            }
        }
    }

    /// Counts a return.
    pub(super) fn count_return(&mut self, nodes: &[usize]) {
        for n in nodes {
            let Some(place) = self.places[*n] else {
                continue;
            };
            if let Some(owner) = self.number(&place.home) {
                self.lent[owner] = self.lent[owner].saturating_sub(1);
            }
            if let Some(borrower) = self.number(&place.current) {
                self.borrowed[borrower] = self.borrowed[borrower].saturating_sub(1);
            }
        }
    }

    /// Borrowed nodes that are idle, unclaimed and of no use to the borrower.
    pub(super) fn unneeded_borrowed_nodes(&self) -> Vec<usize> {
        let is_useless = |n: &usize| {
            let is_lent = self.places[*n].is_some_and(|place| place.home != place.current);
            let goes = self.returning.contains(*n) || (!self.is_planned(*n) && self.is_settled(*n));
            let is_idle =
                self.machine.free.contains(*n) && self.machine.condition.unclaimed.contains(*n);
            is_lent && is_idle && goes && !self.taken.contains(*n)
        };
        (0..self.places.len()).filter(is_useless).collect()
    }

    /// Reclaimed nodes in use by jobs that may stay, which no waiting job needs any more. A job that writes a
    /// checkpoint before it leaves continues if none of its nodes is needed. If nodes return to an owner now, the
    /// owner's jobs may share its nodes in another way, and may need a reclaimed node after all. The reclaims of such
    /// an owner therefore stay until the next decision.
    pub(super) fn unneeded_reclaims(&self, going_home: impl Iterator<Item = usize>) -> Vec<NodeId> {
        let home = |n: usize| self.places[n].map(|place| &place.home);
        let moving: BTreeSet<_> = going_home.filter_map(home).collect();
        let stays = |n: &usize| {
            let work = self.holders[*n].and_then(|id| self.input.work.get(&id));
            let stays = |work: &HolderFacts| {
                matches!(
                    work.state,
                    AllocationState::Running | AllocationState::Checkpointing
                )
            };
            let stays = work.is_some_and(stays);
            let reclaimed_at = self.places[*n].and_then(|place| place.reclaimed_at);
            let is_settled = reclaimed_at.is_some_and(|at| self.has_settled(at));
            let is_moving = home(*n).is_some_and(|home| moving.contains(home));
            stays && is_settled && !is_moving && !self.taken.contains(*n)
        };
        let unwanted = self.returning.iter().filter(stays);
        unwanted
            .map(|n| self.machine.index.names[n].clone())
            .collect()
    }

    /// Name, owner and current vCluster of a node.
    pub(super) fn owner_and_user(&self, n: usize) -> Option<(NodeId, VclusterName, VclusterName)> {
        let place = self.places[n]?;
        let name = self.machine.index.names[n].clone();
        Some((name, place.home.clone(), place.current.clone()))
    }
}
