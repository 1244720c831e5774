//! Plan of a vCluster, computed outside its scheduler. A plan depends only on the view and the time, so a control that
//! does not schedule the vCluster computes the same plan as the control that does, as far as their views are equal.

use crate::{View, full_input};
use lattice_placement::{PendingView, Plan, Planner};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName};

/// Computes the decisions of one scheduling cycle of a vCluster at `now`, with `extra` added to its queue. The start of
/// `extra` is estimated even if it gets no reservation. `age_ms` is the age of the view. The call builds everything
/// from the view, without state of an earlier cycle, and blocks meanwhile. Allocations that a scheduler of this control
/// has set aside are left out.
pub fn plan_of(
    view: &View,
    vcluster: &VclusterName,
    extra: Option<(AllocationId, PendingView)>,
    now: UnixMillis,
    age_ms: u64,
) -> Plan {
    let mut given = full_input(view, vcluster, age_ms);
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
