//! Spare nodes of other vClusters for a job.

use super::{BorrowRequest, LendingBalance};
use crate::{
    bits::BitSet,
    movement::lend::BorrowRefusal,
    selection::choose::{NodeSetRequest, TieBreak, choose_least_hardware},
};

impl LendingBalance<'_> {
    /// Chooses the nodes that the job's vCluster borrows for the job, `missing` nodes or none, preferably in the
    /// topology groups of the job's other nodes.
    pub(in crate::movement::lend) fn choose_loans(
        &self,
        job: &BorrowRequest<'_>,
        missing: u32,
        other_nodes: &[usize],
    ) -> Result<Vec<usize>, BorrowRefusal> {
        self.may_borrow(job)?;
        let policy = &self.members[job.vcluster].policy;
        let borrowed = self.borrowed[job.vcluster];
        if !policy.allow_borrowing {
            return Err(BorrowRefusal::NotAllowed);
        }
        if let Some(limit) = policy.borrowing_limit
            && borrowed.saturating_add(missing) > limit
        {
            return Err(BorrowRefusal::Limit {
                missing,
                borrowed,
                limit,
            });
        }
        let mut found = Vec::new();
        let mut rest = missing;
        for owner in self.lenders(job.vcluster) {
            if rest == 0 {
                break;
            }
            let spare = self.spare(owner, job);
            let limit = self.members[owner].policy.lending_limit.unwrap_or(u32::MAX);
            let most = limit.saturating_sub(self.lent[owner]);
            let wanted = rest.min(most).min(spare.count());
            let near: Vec<usize> = other_nodes.iter().chain(&found).copied().collect();
            found.extend(self.choose(job, &spare, wanted, &near));
            rest = missing.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        }
        match rest {
            0 => Ok(found),
            _ => Err(BorrowRefusal::TooFew {
                missing,
                offered: missing - rest,
            }),
        }
    }

    /// Lenders, smallest backlog first, then by name.
    fn lenders(&self, borrower: usize) -> Vec<usize> {
        let lends = |owner: &usize| *owner != borrower && self.members[*owner].policy.allow_lending;
        let mut owners: Vec<usize> = (0..self.members.len()).filter(lends).collect();
        owners.sort_by_key(|owner| (self.members[*owner].backlog_gpu_ms, *owner));
        owners
    }

    /// Idle, healthy, unclaimed own nodes of `owner` that fit the job and are in no plan.
    fn spare(&self, owner: usize, job: &BorrowRequest<'_>) -> BitSet {
        let condition = &self.machine.condition;
        let mut spare = self
            .fits(job)
            .and(&self.owned[owner])
            .and(&self.used[owner]);
        spare.intersect_with(&self.machine.free);
        spare.intersect_with(&condition.healthy);
        spare.intersect_with(&condition.unclaimed);
        spare.subtract(&self.planned);
        spare.subtract(&self.returning);
        spare
    }

    /// Chooses `wanted` nodes from `spare`, which has enough, as the solver does; in the topology groups of `near` if
    /// these suffice.
    fn choose(
        &self,
        job: &BorrowRequest<'_>,
        spare: &BitSet,
        wanted: u32,
        near: &[usize],
    ) -> Vec<usize> {
        let index = &self.machine.index;
        let eligible = self.eligible(job);
        let ask = NodeSetRequest {
            nodes: wanted,
            spread: job.view.constraints.spread,
            one_conformance_group: false,
            groups: eligible.by_span.len(),
            fit: eligible.count,
        };
        let choose = |among: &BitSet| {
            let chosen = choose_least_hardware(
                index,
                among,
                TieBreak::default(),
                ask,
                &self.input.solver.weights,
                None,
            );
            chosen.map(|chosen| chosen.nodes)
        };
        let groups = near
            .iter()
            .map(|n| index.groups[index.group_of[*n]].range.clone());
        let near = BitSet::collect(index.size(), groups.flatten()).and(spare);
        let near = (near.count() >= wanted).then(|| choose(&near)).flatten();
        near.or_else(|| choose(spare)).unwrap_or_default()
    }
}
