//! What becomes of the sources' last word in what the solver is given.

use crate::{books, view::View};
use lattice_placement::{ClusterView, Delta, Fraction, PendingView, RunningView, StorageView};
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, VclusterName};
use std::{collections::BTreeMap, sync::Arc};

/// Bandwidth that running work was promised, MB/s of each storage system. Kept as work comes and goes:
/// nobody walks over all allocations for it.
pub(crate) type Promised = BTreeMap<String, u128>;

/// Follows one allocation, whose record `before` is replaced by `now`.
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

/// Bandwidth that nobody uses or is promised, of each system with a budget: the budget, less what
/// others use, less what running work was promised. The solver gives back a promise when its job ends.
pub(crate) fn left(view: &View) -> BTreeMap<String, StorageView> {
    let system = |(name, system): (&String, &super::System)| {
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

/// Adds what the sources say to a solver's view of a vCluster. What a request says itself wins.
pub(crate) fn fill(view: &View, cluster: &mut ClusterView) {
    cluster.energy_price = view.inputs.energy.map(|price| price.normalized);
    cluster.storage = left(view);
    cluster.tenants = books::tenants(view);
    let ready = &view.inputs.data_ready;
    for (id, pending) in &mut cluster.pending {
        say(ready, *id, pending);
    }
}

/// Adds to `delta`, which leads from `old` to `new` otherwise, what the sources say since.
pub(crate) fn follow(old: &View, new: &View, vcluster: &VclusterName, delta: &mut Delta) {
    delta.energy_price = new.inputs.energy.map(|price| price.normalized);
    let (was, is) = (left(old), left(new));
    let gone = was.keys().filter(|name| !is.contains_key(*name));
    delta.storage.extend(gone.map(|name| (name.clone(), None)));
    let news = is
        .iter()
        .filter(|(name, left)| was.get(*name) != Some(*left));
    let news = news.map(|(name, left)| (name.clone(), Some(*left)));
    delta.storage.extend(news);
    let (was, is) = (books::tenants(old), books::tenants(new));
    let gone = was.keys().filter(|tenant| !is.contains_key(*tenant));
    delta
        .tenants
        .extend(gone.map(|tenant| (tenant.clone(), None)));
    let news = is
        .into_iter()
        .filter(|(tenant, stands)| was.get(tenant) != Some(stands));
    delta
        .tenants
        .extend(news.map(|(tenant, stands)| (tenant, Some(stands))));
    let (was, is) = (&old.inputs.data_ready, &new.inputs.data_ready);
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

/// One that waits, as the solver is to see it.
pub(crate) fn pending(view: &View, allocation: &Allocation) -> PendingView {
    let mut pending = PendingView::from(allocation);
    say(&view.inputs.data_ready, allocation.id, &mut pending);
    pending
}

fn say(ready: &BTreeMap<AllocationId, Fraction>, id: AllocationId, pending: &mut PendingView) {
    pending.data_ready = pending.data_ready.or_else(|| ready.get(&id).copied());
}
