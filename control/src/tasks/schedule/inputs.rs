//! What the solver is given of one vCluster: the whole of it, or what differs between two views.

use crate::{
    inputs,
    view::{NodeEntry, View},
};
use lattice_placement::{
    ClusterView, Delta, LevelView, NodeFacts, NodeView, PendingView, RunningView,
};
use lattice_quorum_types::{
    Allocation, AllocationState, VclusterName, limit::SensitivePool, view::Hot,
};
use std::{collections::BTreeMap, sync::Arc};

/// The solver's view of one vCluster, from scratch.
pub(crate) fn whole(view: &View, vcluster: &VclusterName, age_ms: u64) -> ClusterView {
    let nodes = view.nodes.values().filter_map(|n| n.record.as_ref());
    let nodes = nodes.filter(|record| record.current == *vcluster);
    let is_mine = |a: &Allocation| a.state.holds() || a.spec.vcluster == *vcluster;
    let allocations = view.allocations.values().filter(|a| is_mine(a));
    let hot = Hot {
        revision: view.revision,
        at: view.at,
        projects: view.projects.values().cloned().collect(),
        nodes: nodes.cloned().collect(),
        allocations: allocations.map(|a| (**a).clone()).collect(),
        system: view.system,
    };
    let facts = |id: &_| view.node(id).map_or_else(NodeFacts::default, |n| n.facts());
    let mut cluster = ClusterView {
        age_ms,
        sensitive_pool: pool(view),
        ..ClusterView::from_hot(&hot, vcluster, facts)
    };
    inputs::fill(view, &mut cluster);
    cluster
}

/// Of the whole cluster, and not only of what one vCluster is shown. Where nobody limits it, it is not
/// counted: it would be another number, and so another plan, with each job.
fn pool(view: &View) -> SensitivePool {
    let size = view.system.limits.sensitive_pool_size;
    if size.is_none() {
        return SensitivePool::default();
    }
    let nodes = view.nodes.values().filter_map(|n| n.record.as_ref());
    let allocations = view.allocations.values().map(|a| &**a);
    SensitivePool::count(size, nodes, allocations)
}

/// What differs between two views, for one vCluster. Entries shared by both are not looked at.
pub(crate) fn delta(old: &View, new: &View, vcluster: &VclusterName, age_ms: u64) -> Delta {
    let mut delta = Delta {
        revision: new.revision,
        age_ms,
        limit_policy: new.system.limit_policy,
        sensitive_pool: pool(new),
        ..Delta::default()
    };
    if !Arc::ptr_eq(&old.nodes, &new.nodes) {
        let node = |entry: &Arc<NodeEntry>| {
            let record = entry.record.as_ref().filter(|r| r.current == *vcluster)?;
            Some(NodeView::new(record, entry.facts()))
        };
        delta.nodes = changed(&old.nodes, &new.nodes, Arc::ptr_eq, node);
    }
    if !Arc::ptr_eq(&old.allocations, &new.allocations) {
        let (a, b) = (&old.allocations, &new.allocations);
        delta.pending = changed(a, b, Arc::ptr_eq, |allocation| {
            let waits = allocation.state == AllocationState::Pending;
            let mine = waits && allocation.spec.vcluster == *vcluster;
            mine.then(|| PendingView::from(&**allocation))
        });
        delta.running = changed(a, b, Arc::ptr_eq, |allocation| {
            let holds = allocation.state.holds();
            holds.then(|| RunningView::from(&**allocation))
        });
    }
    if !Arc::ptr_eq(&old.projects, &new.projects) {
        let same = |a: &_, b: &_| a == b;
        delta.levels = changed(&old.projects, &new.projects, same, |project| {
            Some(LevelView::from(project))
        });
    }
    inputs::follow(old, new, vcluster, &mut delta);
    delta
}

/// Whether a delta changes anything that a plan depends on. Entries that are as they were do not: nodes
/// of other vClusters, those that answered another ping, records that only have another revision.
pub(crate) fn changes(delta: &Delta, known: &ClusterView) -> bool {
    let Delta {
        // They tell how fresh a plan is.
        revision: _,
        age_ms: _,
        nodes,
        pending,
        running,
        levels,
        limit_policy,
        sensitive_pool,
        tenants,
        storage,
        power,
        energy_price,
    } = delta;
    *limit_policy != known.limit_policy
        || *sensitive_pool != known.sensitive_pool
        || *energy_price != known.energy_price
        || differs(nodes, &known.nodes)
        || differs(pending, &known.pending)
        || differs(running, &known.running)
        || differs(levels, &known.levels)
        || differs(tenants, &known.tenants)
        || differs(storage, &known.storage)
        || differs(power, &known.power)
}

fn differs<K: Ord, V: PartialEq>(changes: &BTreeMap<K, Option<V>>, known: &BTreeMap<K, V>) -> bool {
    (changes.iter()).any(|(key, value)| known.get(key) != value.as_ref())
}

/// Entries of `new` that are not the `same` as in `old`, and those that are gone. Both are walked
/// side by side, in key order.
fn changed<K: Ord + Clone, V, W>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
    show: impl Fn(&V) -> Option<W>,
) -> BTreeMap<K, Option<W>> {
    let mut changes = BTreeMap::new();
    let mut old = old.iter().peekable();
    for (key, value) in new {
        while let Some((gone, _)) = old.next_if(|(known, _)| *known < key) {
            changes.insert(gone.clone(), None);
        }
        let known = old.next_if(|(known, _)| *known == key);
        if !known.is_some_and(|(_, known)| same(known, value)) {
            changes.insert(key.clone(), show(value));
        }
    }
    changes.extend(old.map(|(gone, _)| (gone.clone(), None)));
    changes
}
