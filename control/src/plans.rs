//! vClusters' plans: what their schedulers said last, and what is planned because somebody asks.
//! Planning is a function of the view, so any control can say what the one that schedules says, as far
//! as their views are the same.

mod asked;
#[cfg(test)]
mod tests;

pub(crate) use asked::{Asked, Busy};

use crate::{tasks::schedule::whole, view::View};
use lattice_placement::{Explanation, PendingView, Plan, Planner, Reservation, Waiting, Weights};
use lattice_quorum_types::{Allocation, AllocationId, UnixMillis, VclusterName};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What one cycle over a vCluster would decide at `now`, `extra` being in its queue beside those that
/// wait; its start is estimated though it gets no reservation. `age_ms`: how old the view is. It takes as
/// long as a cold cycle; call it where that may block.
pub(crate) fn plan_of(
    view: &View,
    vcluster: &VclusterName,
    extra: Option<(AllocationId, PendingView)>,
    now: UnixMillis,
    age_ms: u64,
) -> Plan {
    let mut given = whole(view, vcluster, age_ms);
    let asked = extra.as_ref().map(|(id, _)| *id);
    given.pending.extend(extra);
    Planner::with_policy(given, view.policy_of(vcluster)).plan_estimating(now, asked)
}

/// What one cycle over a vCluster said.
#[derive(Debug, Clone)]
pub struct Planned {
    /// When it ran.
    pub made_at: UnixMillis,
    /// What it said.
    pub plan: Plan,
    /// Allocations that are not planned while they would be refused, and why.
    pub set_aside: BTreeMap<AllocationId, Explanation>,
}

impl Planned {
    /// Why an allocation waits; `None` of one that does not.
    pub fn explanation(&self, id: AllocationId) -> Option<Explanation> {
        let set_aside = self.set_aside.get(&id).cloned();
        set_aside.or_else(|| self.plan.waiting.get(id))
    }

    /// What is held back for an allocation.
    pub fn reservation(&self, id: AllocationId) -> Option<&Reservation> {
        let mut all = self.plan.reservations.iter();
        all.find(|reservation| reservation.id == id)
    }

    /// Everybody who waits.
    pub fn waiting(&self) -> impl Iterator<Item = AllocationId> {
        let set_aside = self.set_aside.keys().copied();
        self.plan.waiting.ids().chain(set_aside)
    }

    /// Who waits for another reason than in `before`.
    pub fn news(&self, before: Option<&Planned>) -> BTreeSet<AllocationId> {
        let (no_one, nothing) = (Waiting::default(), BTreeMap::new());
        let (waiting, set_aside) = before.map_or((&no_one, &nothing), |before| {
            (&before.plan.waiting, &before.set_aside)
        });
        let planned = self.plan.waiting.news(waiting);
        let aside = self.set_aside.iter();
        let aside = aside.filter(|(id, why)| set_aside.get(id) != Some(why));
        planned
            .into_iter()
            .chain(aside.map(|(id, _)| *id))
            .collect()
    }

    /// Whether it was in the queue.
    fn knows(&self, id: AllocationId) -> bool {
        let starts = || self.plan.placements.iter().any(|placed| placed.id == id);
        self.explanation(id).is_some() || starts()
    }
}

/// The last cycles' words for those who ask why: of the vClusters that this control schedules.
#[derive(Debug, Clone, Default)]
pub struct LastPlan(BTreeMap<VclusterName, Arc<Planned>>);

impl LastPlan {
    /// Of one vCluster; `None` where this control does not schedule it, or has not yet.
    pub fn of(&self, vcluster: &VclusterName) -> Option<&Planned> {
        self.0.get(vcluster).map(|planned| &**planned)
    }

    /// Why an allocation waits; `None` of one that does not.
    pub fn explanation(&self, of: &Allocation) -> Option<Explanation> {
        self.of(&of.spec.vcluster)?.explanation(of.id)
    }

    /// The weights that a vCluster's queue was ordered by.
    pub fn weights(&self, vcluster: &VclusterName) -> Weights {
        let planned = self.of(vcluster);
        planned.map_or_else(Weights::default, |planned| planned.plan.weights)
    }

    #[cfg(test)]
    fn shared(&self, vcluster: &VclusterName) -> Option<Arc<Planned>> {
        self.0.get(vcluster).cloned()
    }

    pub(crate) fn set(&mut self, vcluster: VclusterName, planned: Arc<Planned>) {
        self.0.insert(vcluster, planned);
    }

    pub(crate) fn remove(&mut self, vcluster: &VclusterName) {
        self.0.remove(vcluster);
    }
}
