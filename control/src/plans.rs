//! A vCluster's plan, made when somebody asks: planning is a function of the view, so any control can
//! say what the one that schedules says, as far as their views are the same.

use crate::{tasks::schedule::whole, view::View};
use lattice_placement::{PendingView, Plan, Planner};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName};
use std::collections::BTreeMap;

/// What one cycle over a vCluster would decide at `now`, `extra` being in its queue beside those that
/// wait. `age_ms`: how old the view is. It takes as long as a cold cycle; call it where that may block.
#[allow(dead_code)]
pub(crate) fn plan_of(
    view: &View,
    vcluster: &VclusterName,
    extra: BTreeMap<AllocationId, PendingView>,
    now: UnixMillis,
    age_ms: u64,
) -> Plan {
    let mut given = whole(view, vcluster, age_ms);
    given.pending.extend(extra);
    Planner::with_policy(given, view.policy_of(vcluster)).plan(now)
}
