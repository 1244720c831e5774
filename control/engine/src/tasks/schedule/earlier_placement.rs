//! Earlier placement of jobs with promised nodes. The victims leave only after their checkpoints, and other nodes may
//! become free meanwhile.

use super::promises::{self, Promise};
use lattice_placement::{Health, Liveness, PendingView};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName};
use lattice_view::{HomeRule, View, waiting as as_planned};
use std::collections::BTreeMap;

/// Jobs that wait for promised nodes while at least as many other nodes may be free. A job that is placed loses its
/// promise with the assignment.
pub(super) fn waiting(
    view: &View,
    vcluster: &VclusterName,
    now: UnixMillis,
) -> BTreeMap<AllocationId, PendingView> {
    let promises = promises::promises(view, vcluster, now);
    let waits = |(id, promise): &(AllocationId, Promise)| {
        matches!(promise, Promise::Waits(_)).then_some(*id)
    };
    let waits: Vec<AllocationId> = promises.iter().filter_map(waits).collect();
    // This is the usual case and avoids counting free nodes.
    if waits.is_empty() {
        return BTreeMap::new();
    }
    let free = free(view, vcluster);
    let home = HomeRule::of(&view.vclusters);
    let known = |id| {
        let held = view.allocation(id)?;
        (held.spec.nodes as usize <= free).then(|| (id, as_planned(view, &home, held)))
    };
    waits.into_iter().filter_map(known).collect()
}

/// Number of nodes that can be assigned now.
fn free(view: &View, vcluster: &VclusterName) -> usize {
    let nodes = view.nodes.values().filter(|entry| {
        let facts = entry.facts();
        let record = entry.record.as_ref();
        record.is_some_and(|record| record.current == *vcluster && record.is_assignable())
            && facts.liveness == Liveness::Alive
            && facts.health != Health::Faulty
    });
    nodes.count()
}
