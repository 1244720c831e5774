//! Selection of late jobs, for which preemption is considered in this cycle, in turn.

use lattice_placement::{PendingView, Plan, Planner};
use lattice_quorum_types::{AllocationId, UnixMillis};
use lattice_view::{PreemptionRules, View};
use std::{cmp::Reverse, collections::BTreeMap};

/// Maximum number of jobs for which victims are sought in one cycle: each search takes several plans.
const SOUGHT_AT_ONCE: usize = 3;

/// A job that has waited long enough for nodes and would have to wait longer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LateJob {
    pub(super) id: AllocationId,
    /// Planned start without preemption; `None` if the planner cannot estimate it.
    pub(super) planned_start: Option<UnixMillis>,
}

/// When each job was last considered. There may be more late jobs than one cycle considers, including jobs that no
/// preemption can help, so each has its turn.
#[derive(Debug, Default)]
pub(super) struct ConsideredAt(BTreeMap<AllocationId, UnixMillis>);

impl ConsideredAt {
    /// Returns the jobs that are due, the most urgent first. If the plan has no start estimate for a job, one more plan
    /// computes it.
    pub(super) fn late(
        &mut self,
        planner: &mut Planner,
        view: &View,
        plan: &Plan,
        rules: &PreemptionRules,
        now: UnixMillis,
    ) -> Vec<LateJob> {
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
            // An array element without its own allocation receives no promise.
            let is_own = view.allocation(*id).is_some();
            // Preemption helps only jobs that wait for resources held by others.
            let is_helped = || {
                plan.waiting
                    .get(*id)
                    .is_some_and(|why| why.blocker.is_temporary())
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
                late.push(LateJob { id, planned_start });
            }
        }
        late
    }
}
