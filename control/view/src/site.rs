//! Site inputs and tenant standings in solver input.

use crate::{BaseView, ViewNode, changes::Before, inputs::System, standing::tenants};
use lattice_placement::{ClusterView, Delta, Fraction, PendingView, RunningView, StorageView};
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, VclusterName};
use std::{collections::BTreeMap, sync::Arc};

/// Bandwidth that running work was promised, MB/s of each storage system. It is updated with each allocation, so no
/// walk over all allocations is needed.
pub type Promised = BTreeMap<String, u128>;

/// Updates the promised bandwidth after the record `before` of an allocation is replaced by `now`.
pub(crate) fn promise(
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

/// Bandwidth that is neither used nor promised, of each system with a budget: the budget, less what
/// others use, less what running work was promised. The solver gives back a promise when its job ends.
pub fn left<N>(view: &BaseView<N>) -> BTreeMap<String, StorageView> {
    let system = |(name, system): (&String, &System)| {
        let promised = view.promised.get(name).copied().unwrap_or(0);
        let others = u128::from(system.counted_mb_s());
        let used = i128::try_from(others.saturating_add(promised)).unwrap_or(i128::MAX);
        let left = i128::from(system.budget_mb_s).saturating_sub(used);
        // Below 0 where more was promised than there is: what comes back first is that.
        let most = i128::from(i64::MAX);
        let left_mb_s = i64::try_from(left.clamp(-most, most)).unwrap_or_default();
        (name.clone(), StorageView { left_mb_s })
    };
    view.inputs.storage.iter().map(system).collect()
}

/// Adds the sources' reports to the solver input of a vCluster. A value in the request takes precedence.
pub(crate) fn fill<N: ViewNode>(view: &BaseView<N>, cluster: &mut ClusterView) {
    cluster.energy_price = view.inputs.energy.map(|price| price.normalized);
    cluster.storage = left(view);
    cluster.tenants = tenants(view);
    let ready = &view.inputs.data_ready;
    for (id, pending) in &mut cluster.pending {
        say(ready, *id, pending);
    }
}

/// Adds to `delta`, which leads from `before` to `new` otherwise, what the sources report since.
pub(crate) fn follow<N: ViewNode>(
    before: &Before,
    new: &BaseView<N>,
    vcluster: &VclusterName,
    delta: &mut Delta,
) {
    delta.energy_price = new.inputs.energy.map(|price| price.normalized);
    delta
        .storage
        .extend(differences(&before.storage, left(new)));
    delta
        .tenants
        .extend(differences(&before.tenants, tenants(new)));
    let (was, is) = (&before.data_ready, &new.inputs.data_ready);
    for (id, pending) in &mut delta.pending {
        if let Some(pending) = pending {
            say(is, *id, pending);
        }
    }
    if Arc::ptr_eq(was, is) {
        return;
    }
    let came = is.iter().filter(|(id, part)| was.get(*id) != Some(*part));
    let went = was.keys().filter(|id| !is.contains_key(*id));
    for id in came.map(|(id, _)| id).chain(went) {
        let Some(allocation) = new.allocation(*id) else {
            continue;
        };
        // An array's elements begin with what was known when they came in; what is promised nodes is not
        // planned.
        let planned = allocation.course.tally.is_none() && !new.room.is_promised(*id);
        let waits = allocation.state == AllocationState::Pending && planned;
        if waits && allocation.spec.vcluster == *vcluster && !delta.pending.contains_key(id) {
            delta.pending.insert(*id, Some(pending(new, allocation)));
        }
    }
}

/// Entries of `is` that `was` has not, or has with another value, and keys that are gone.
fn differences<K: Ord + Clone, V: PartialEq>(
    was: &BTreeMap<K, V>,
    is: BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let gone = was.keys().filter(|key| !is.contains_key(*key));
    let gone: Vec<K> = gone.cloned().collect();
    let news = is
        .into_iter()
        .filter(|(key, value)| was.get(key) != Some(value));
    let news = news.map(|(key, value)| (key, Some(value)));
    news.chain(gone.into_iter().map(|key| (key, None)))
        .collect()
}

/// A waiting allocation in solver input.
pub fn pending<N>(view: &BaseView<N>, allocation: &Allocation) -> PendingView {
    let mut pending = PendingView::from(allocation);
    say(&view.inputs.data_ready, allocation.id, &mut pending);
    pending
}

fn say(ready: &BTreeMap<AllocationId, Fraction>, id: AllocationId, pending: &mut PendingView) {
    pending.data_ready = pending.data_ready.or_else(|| ready.get(&id).copied());
}
