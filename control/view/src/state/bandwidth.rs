//! Storage bandwidth that is promised to allocations that hold nodes.

use lattice_placement::RunningView;
use lattice_quorum_types::Allocation;
use std::{collections::BTreeMap, sync::Arc};

/// Total bandwidth that is promised to allocations that hold nodes, in MB/s, by name of the storage system. The totals
/// are updated with each change of an allocation, so that no pass over all allocations is needed.
pub type Promised = BTreeMap<String, u128>;

/// Updates the promised bandwidth after the record `before` of an allocation is replaced by `now`.
pub(super) fn promise(
    promised: &mut Arc<Promised>,
    before: Option<&Allocation>,
    now: Option<&Allocation>,
) {
    let of = |allocation: Option<&Allocation>| {
        let holds = allocation.filter(|allocation| allocation.state.holds());
        holds.map(|allocation| RunningView::from(allocation).storage_mb_s)
    };
    let (before, now) = (of(before).unwrap_or_default(), of(now).unwrap_or_default());
    if before == now {
        return;
    }
    let promised = Arc::make_mut(promised);
    for (system, mb_s) in now {
        *promised.entry(system).or_default() += u128::from(mb_s);
    }
    for (system, mb_s) in before {
        let left = promised.entry(system.clone()).or_default();
        *left = left.saturating_sub(u128::from(mb_s));
        if *left == 0 {
            promised.remove(&system);
        }
    }
}
