//! vClusters' plans: what their schedulers said last, and what is planned because somebody asks.
//! Planning is a function of the view, so any control can say what the one that schedules says, as far
//! as their views are the same.

mod asked;
#[cfg(test)]
mod tests;

pub(crate) use asked::{Asked, Busy};

use crate::view::View;
use lattice_placement::{
    Blocker, Explanation, PendingView, Plan, Planner, Reservation, Waiting, Weights,
};
use lattice_quorum_types::{Allocation, AllocationId, UnixMillis, VclusterName, hostlist};
use lattice_view::whole;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What one cycle over a vCluster would decide at `now`, `extra` being in its queue beside those that
/// wait; its start is estimated though it gets no reservation. `age_ms`: how old the view is. It takes as
/// long as a cold cycle; call it where that may block. What a scheduler of this control set aside is not
/// planned here either.
pub(crate) fn plan_of(
    view: &View,
    vcluster: &VclusterName,
    extra: Option<(AllocationId, PendingView)>,
    now: UnixMillis,
    age_ms: u64,
) -> Plan {
    let mut given = whole(view, vcluster, age_ms);
    if let Some(own) = view.plan.of(vcluster) {
        let aside = own.not_assigned.iter().filter(|(_, known)| known.is_aside);
        for (id, _) in aside {
            given.pending.remove(id);
        }
    }
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
    pub plan: Arc<Plan>,
    /// What was placed by this plan, or before, and is not assigned. Empty where another control
    /// schedules.
    pub not_assigned: BTreeMap<AllocationId, Arc<NotAssigned>>,
    /// This control assigns what is placed.
    pub is_own: bool,
}

/// One that was placed and is not assigned, or is not planned at all while it would be refused.
#[derive(Debug, Clone, PartialEq)]
pub struct NotAssigned {
    /// When it was placed last.
    pub planned_at: UnixMillis,
    /// Why it is not assigned; the score is that of its nodes.
    pub explanation: Explanation,
    /// For now others may have its nodes: it is not planned.
    pub is_aside: bool,
}

impl NotAssigned {
    /// Whether people are told the same; how the score grew does not matter.
    fn is_told_as(&self, other: &Self) -> bool {
        let (a, b) = (&self.explanation, &other.explanation);
        let numbers = (a.needed, a.total) == (b.needed, b.total);
        numbers && a.steps == b.steps && a.blocker == b.blocker
    }
}

impl Planned {
    /// Why an allocation of its queue does not run; `None` of one that was not in it.
    pub fn explanation(&self, id: AllocationId) -> Option<Explanation> {
        if let Some(known) = self.not_assigned.get(&id) {
            return Some(known.explanation.clone());
        }
        let waits = self.plan.waiting.get(id);
        waits.or_else(|| self.on_its_way(id))
    }

    /// Of what was placed, and is not known to be held back.
    fn on_its_way(&self, id: AllocationId) -> Option<Explanation> {
        let placed = self.plan.placements.iter().find(|placed| placed.id == id)?;
        let why = match self.is_own {
            true => "that is under way",
            false => {
                "the control that schedules its vCluster does that, or knows why not (`lattice admin \
                 vcluster show` names it)"
            }
        };
        let blocker = Blocker::NotAssigned {
            nodes: hostlist::fold(placed.nodes.iter().map(|expected| &expected.node)),
            why: why.to_owned(),
        };
        self.plan.waiting.of_placed(placed, blocker)
    }

    /// When that was found out.
    pub fn explained_at(&self, id: AllocationId) -> UnixMillis {
        let known = self.not_assigned.get(&id);
        known.map_or(self.made_at, |known| known.planned_at)
    }

    /// What is held back for an allocation.
    pub fn reservation(&self, id: AllocationId) -> Option<&Reservation> {
        let mut all = self.plan.reservations.iter();
        all.find(|reservation| reservation.id == id)
    }

    /// Everybody who waits.
    pub fn waiting(&self) -> impl Iterator<Item = AllocationId> {
        let not_assigned = self.not_assigned.keys().copied();
        self.plan.waiting.ids().chain(not_assigned)
    }

    /// Who waits for another reason than in `before`.
    pub fn news(&self, before: Option<&Planned>) -> BTreeSet<AllocationId> {
        let (no_one, nothing) = (Waiting::default(), BTreeMap::new());
        let (waiting, not_assigned) = before.map_or((&no_one, &nothing), |before| {
            (&before.plan.waiting, &before.not_assigned)
        });
        let planned = self.plan.waiting.news(waiting);
        let others = self.not_assigned.iter().filter(|(id, now)| {
            let then = not_assigned.get(id);
            !then.is_some_and(|then| now.is_told_as(then))
        });
        planned.chain(others.map(|(id, _)| *id)).collect()
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
