//! Who waits too long, and for whom room is sought in this cycle: each has its turn.

use crate::view::View;
use lattice_placement::{PendingView, Plan, Planner};
use lattice_quorum_types::{AllocationId, UnixMillis};
use lattice_view::Rules;
use std::{cmp::Reverse, collections::BTreeMap};

/// Jobs for which room is sought in one cycle: each is a few plans of its own.
const SOUGHT_AT_ONCE: usize = 3;

/// A job that has waited long enough for nodes, and would have to wait on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) id: AllocationId,
    /// When it would start if nobody made room.
    pub(super) planned_start: Option<UnixMillis>,
}

/// When jobs were last looked at. There may be more of them than a cycle looks at, also such as nobody can make room
/// for: each has its turn.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<AllocationId, UnixMillis>);

impl Turns {
    /// Those whose turn it is, the most urgent first. Whom the plan does not say when they start is found out by
    /// one more plan each.
    pub(super) fn late(
        &mut self,
        planner: &mut Planner,
        view: &View,
        plan: &Plan,
        rules: &Rules,
        now: UnixMillis,
    ) -> Vec<Late> {
        let pending = &planner.view().pending;
        self.0.retain(|id, _| pending.contains_key(id));
        if !rules.policy.enabled {
            return Vec::new();
        }
        let held = planner.view().running.keys();
        let held = held.filter_map(|id| view.allocation(*id));
        let Some(lowest) = held.map(|held| held.spec.class).min() else {
            return Vec::new();
        };
        let urgent = |(id, job): (&AllocationId, &PendingView)| {
            let waits = now.since(job.eligible_at) >= rules.patience_ms;
            // An element without an allocation of its own is promised nothing.
            let is_own = view.allocation(*id).is_some();
            // Nobody makes room for who waits for anything but what others have.
            let is_helped = || {
                plan.waiting
                    .get(*id)
                    .is_some_and(|why| why.blocker.passes())
            };
            (job.class > lowest && waits && is_own && is_helped()).then_some((
                Reverse(job.class),
                job.eligible_at,
                *id,
            ))
        };
        let mut urgent: Vec<_> = pending.iter().filter_map(urgent).collect();
        urgent.sort_unstable_by_key(|of| (self.0.get(&of.2).copied(), *of));
        urgent.truncate(SOUGHT_AT_ONCE);
        urgent.sort_unstable();
        let mut late = Vec::new();
        for (_, _, id) in urgent {
            self.0.insert(id, now);
            let planned = plan.waiting.get(id).and_then(|why| why.estimated_start);
            let estimated = || {
                let plan = planner.plan_estimating(now, Some(id));
                plan.waiting.get(id)?.estimated_start
            };
            let planned_start = planned.or_else(estimated);
            if planned_start.is_none_or(|at| at >= now.after(rules.patience_ms)) {
                late.push(Late { id, planned_start });
            }
        }
        late
    }
}
