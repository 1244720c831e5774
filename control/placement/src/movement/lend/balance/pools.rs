//! Nodes that a job could get from its own vCluster.

use super::{BorrowRequest, LendingBalance};
use crate::{
    bits::BitSet,
    movement::preempt::{CheckpointAbility, HolderFacts, by_job_properties},
};

/// Disjoint sets of nodes that a job could get from its vCluster.
#[derive(Debug)]
pub(in crate::movement::lend) struct Pools {
    /// Own nodes, idle at home.
    pub(in crate::movement::lend) own: BitSet,
    /// Own nodes, lent, in use and already reclaimed.
    pub(in crate::movement::lend) reclaimed: BitSet,
    /// Own nodes, lent and idle.
    pub(in crate::movement::lend) idle_loans: BitSet,
    /// Own nodes, lent and in use by jobs that can be stopped.
    pub(in crate::movement::lend) busy_loans: BitSet,
    /// Nodes of others, borrowed and idle.
    pub(in crate::movement::lend) borrowed: BitSet,
}

impl LendingBalance<'_> {
    /// Whether the node is planned for another job.
    fn is_planned_for_others(&self, n: usize, job: &BorrowRequest<'_>) -> bool {
        let planned = self.places[n].and_then(|place| place.planned_for);
        planned.is_some_and(|id| id != job.id())
    }

    /// Nodes that the job could get from its vCluster.
    pub(in crate::movement::lend) fn pools(&self, job: &BorrowRequest<'_>) -> Pools {
        let mut pools = self.all_pools(job);
        if job.view.sensitive {
            // Use one conformance group: a group that is large enough, if there is one; of several, the group with the
            // most nodes at home.
            let index = &self.machine.index;
            let of_key = |alike: &&BitSet| {
                let common = |set: &BitSet| set.count_common(alike);
                let all = [&pools.reclaimed, &pools.idle_loans, &pools.busy_loans];
                let own = common(&pools.own);
                let sum = own + all.into_iter().map(common).sum::<u32>();
                (sum >= job.view.nodes, own, sum)
            };
            let keys = index.conformance_members.iter().rev();
            let best = keys.max_by_key(of_key).cloned();
            let best = best.unwrap_or_else(|| BitSet::empty(index.size()));
            let Pools {
                own,
                reclaimed: coming,
                idle_loans,
                busy_loans,
                borrowed,
            } = &mut pools;
            for pool in [own, coming, idle_loans, busy_loans, borrowed] {
                pool.intersect_with(&best);
            }
        }
        pools
    }

    fn all_pools(&self, job: &BorrowRequest<'_>) -> Pools {
        let fits = self.fits(job);
        let (home, here) = (&self.owned[job.vcluster], &self.used[job.vcluster]);
        let free = &self.machine.free;
        let size = self.machine.index.size();
        let filter = |set: &BitSet, keep: &dyn Fn(usize) -> bool| {
            BitSet::collect(size, set.iter().filter(|n| keep(*n)))
        };
        let mine = fits.and(home);
        let mut lent = mine.clone();
        lent.subtract(here);
        let mut busy = lent.clone();
        busy.subtract(free);
        let mut others = fits.and(here).and(free);
        others.subtract(home);
        others.subtract(&self.returning);
        if job.wanting.home_only || self.may_borrow(job).is_err() {
            others = BitSet::empty(size);
        }
        let coming = busy.and(&self.returning);
        busy.subtract(&coming);
        Pools {
            own: filter(&mine.and(here).and(free), &|n| {
                !self.is_planned_for_others(n, job)
            }),
            reclaimed: coming,
            idle_loans: lent.and(free),
            busy_loans: filter(&busy, &|n| self.can_be_stopped(n)),
            borrowed: filter(&others, &|n| !self.is_planned_for_others(n, job)),
        }
    }

    fn can_be_stopped(&self, n: usize) -> bool {
        let work = self.holders[n].and_then(|id| self.input.work.get(&id));
        let may = |work: &HolderFacts| {
            by_job_properties(
                work.class,
                work.sensitive,
                work.saves != CheckpointAbility::Never,
            )
        };
        work.is_some_and(|work| may(work).is_none())
    }
}
