//! Last plans of the vClusters: what was placed, what waits, and why.

use lattice_placement::{Blocker, Explanation, Plan, PlannedReservation, WaitingJobs, Weights};
use lattice_quorum_types::{Allocation, AllocationId, UnixMillis, VclusterName, hostlist};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Result of one scheduling cycle of a vCluster.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Time of the cycle.
    pub made_at: UnixMillis,
    /// Plan of the cycle.
    pub plan: Arc<Plan>,
    /// Allocations placed by this plan or an earlier one and not assigned. Empty where another control schedules.
    pub not_assigned: BTreeMap<AllocationId, Arc<NotAssigned>>,
    /// Whether this control assigns the placed allocations.
    pub is_own: bool,
}

/// An allocation that was placed and is not assigned, or that is set aside because its assignment would be refused.
#[derive(Debug, Clone, PartialEq)]
pub struct NotAssigned {
    /// Time of the last placement.
    pub planned_at: UnixMillis,
    /// Reason why the allocation is not assigned; the score is the score of its nodes.
    pub explanation: Explanation,
    /// Whether the allocation is set aside: it is not planned, and its nodes are free for others.
    pub is_aside: bool,
}

impl NotAssigned {
    /// Whether users see the same explanation; changes of the score do not count.
    fn is_shown_as(&self, other: &Self) -> bool {
        let (a, b) = (&self.explanation, &other.explanation);
        let numbers = (a.needed, a.total) == (b.needed, b.total);
        numbers && a.steps == b.steps && a.blocker == b.blocker
    }
}

impl Planned {
    /// Reason why an allocation in this queue does not run; `None` for an allocation outside the queue.
    pub fn explanation(&self, id: AllocationId) -> Option<Explanation> {
        if let Some(known) = self.not_assigned.get(&id) {
            return Some(known.explanation.clone());
        }
        let waits = self.plan.waiting.get(id);
        waits.or_else(|| self.placed_explanation(id))
    }

    /// Explanation for an allocation that is placed and not known to be held back.
    fn placed_explanation(&self, id: AllocationId) -> Option<Explanation> {
        let placed = self.plan.placements.iter().find(|placed| placed.id == id)?;
        let why = match self.is_own {
            true => "that is under way",
            false => {
                "the control that schedules its vCluster reports the reason (`lattice admin \
                 vcluster show` names that control)"
            }
        };
        let blocker = Blocker::NotAssigned {
            nodes: hostlist::fold(placed.nodes.iter().map(|expected| &expected.node)),
            why: why.to_owned(),
        };
        self.plan.waiting.of_placed(placed, blocker)
    }

    /// Time at which the explanation was computed.
    pub fn explained_at(&self, id: AllocationId) -> UnixMillis {
        let known = self.not_assigned.get(&id);
        known.map_or(self.made_at, |known| known.planned_at)
    }

    /// Reservation planned for an allocation.
    pub fn reservation(&self, id: AllocationId) -> Option<&PlannedReservation> {
        let mut all = self.plan.reservations.iter();
        all.find(|reservation| reservation.id == id)
    }

    /// All allocations that wait.
    pub fn waiting(&self) -> impl Iterator<Item = AllocationId> {
        let not_assigned = self.not_assigned.keys().copied();
        self.plan.waiting.ids().chain(not_assigned)
    }

    /// Allocations that wait for another reason than in `before`.
    pub fn news(&self, before: Option<&Planned>) -> BTreeSet<AllocationId> {
        let (no_one, nothing) = (WaitingJobs::default(), BTreeMap::new());
        let (waiting, not_assigned) = before.map_or((&no_one, &nothing), |before| {
            (&before.plan.waiting, &before.not_assigned)
        });
        let planned = self.plan.waiting.changed_since(waiting);
        let others = self.not_assigned.iter().filter(|(id, now)| {
            let then = not_assigned.get(id);
            !then.is_some_and(|then| now.is_shown_as(then))
        });
        planned.chain(others.map(|(id, _)| *id)).collect()
    }
}

/// Last plans of the vClusters that this control schedules, for explanations.
#[derive(Debug, Clone, Default)]
pub struct LastPlan(BTreeMap<VclusterName, Arc<Planned>>);

impl LastPlan {
    /// Last plan of one vCluster; `None` where this control does not schedule it, or has not planned it yet.
    pub fn of(&self, vcluster: &VclusterName) -> Option<&Arc<Planned>> {
        self.0.get(vcluster)
    }

    /// Reason why an allocation waits; `None` if it does not wait, or this control has no plan of its vCluster.
    pub fn explanation(&self, of: &Allocation) -> Option<Explanation> {
        self.of(&of.spec.vcluster)?.explanation(of.id)
    }

    /// Weights that ordered the queue of a vCluster; the defaults without a plan.
    pub fn weights(&self, vcluster: &VclusterName) -> Weights {
        let planned = self.of(vcluster);
        planned.map_or_else(Weights::default, |planned| planned.plan.weights)
    }

    /// Replaces the plan of a vCluster.
    pub fn set(&mut self, vcluster: VclusterName, planned: Arc<Planned>) {
        self.0.insert(vcluster, planned);
    }

    /// Removes the plan of a vCluster that this control no longer schedules.
    pub fn remove(&mut self, vcluster: &VclusterName) {
        self.0.remove(vcluster);
    }
}
