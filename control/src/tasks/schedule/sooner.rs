//! Work that is promised nodes, and could have others sooner: others make room for it as long as their checkpoints
//! take, and meanwhile nodes may become free.

use super::promises::{self, Promise};
use crate::{movement::Home, view::View};
use lattice_placement::{Health, Liveness, PendingView};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName};
use lattice_view::waiting as as_planned;
use std::collections::BTreeMap;

/// Who waits for what they are promised, where as many other nodes may be free. Who is placed loses its promise with
/// the assignment.
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
    // Nearly always: what must be counted for it is not.
    if waits.is_empty() {
        return BTreeMap::new();
    }
    let free = free(view, vcluster);
    let home = Home::of(&view.vclusters);
    let known = |id| {
        let held = view.allocation(id)?;
        (held.spec.nodes as usize <= free).then(|| (id, as_planned(view, &home, held)))
    };
    waits.into_iter().filter_map(known).collect()
}

/// Nodes that might be given to anybody now.
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
