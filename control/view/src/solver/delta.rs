//! Solver input of one vCluster as a delta for a running planner.

use super::{
    changes::{Changes, ComparedEntries},
    home::HomeRule,
    loans::Loans,
    pending::{elements, fill_readiness, pending, waits_for_plan},
    sensitive_pool::pool,
    site::remaining_bandwidth,
};
use crate::{
    standing::tenants,
    state::{BaseView, ViewNode},
};
use lattice_placement::{ClusterView, Delta, LevelView, NodeView, PendingView, RunningView};
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, VclusterName};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Difference between two views, as a delta for the planner of one vCluster.
pub fn delta<N: ViewNode>(
    old: &BaseView<N>,
    new: &BaseView<N>,
    vcluster: &VclusterName,
    age_ms: u64,
) -> Delta {
    Changes::between(old, new).delta(new, vcluster, age_ms)
}

/// Whether a delta changes anything that a plan depends on. A delta may contain entries that are equal to the known
/// ones: nodes of other vClusters, nodes that only answered another ping, records with only another revision.
pub fn affects_plan(delta: &Delta, known: &ClusterView) -> bool {
    let Delta {
        // Revision and age only show how fresh a plan is.
        revision: _,
        age_ms: _,
        nodes,
        on_loan,
        reserved,
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
        || differs(on_loan, &known.on_loan)
        || differs(reserved, &known.reserved)
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

impl Changes {
    /// Delta for the planner of a vCluster that leads from the earlier view to `new`, the present view with age
    /// `age_ms`.
    pub fn delta<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        age_ms: u64,
    ) -> Delta {
        let mut delta = Delta {
            revision: new.revision,
            age_ms,
            limit_policy: new.system.limit_policy,
            sensitive_pool: pool(new),
            ..Delta::default()
        };
        self.follow_nodes(new, vcluster, &mut delta);
        for name in &self.reservations {
            let known = new.reservations.get(name).map(|known| known.spec.clone());
            delta.reserved.insert(name.clone(), known);
        }
        let waits = |id: AllocationId| {
            let held = new.allocation(id);
            let waits = held.filter(|held| waits_for_plan(new, held, vcluster));
            waits.map(|held| PendingView::from(&**held))
        };
        for id in &self.allocations {
            delta.pending.insert(*id, waits(*id));
            let holds = new.allocation(*id).filter(|held| held.state.holds());
            let running = holds.map(|held| RunningView::from(&**held));
            delta.running.insert(*id, running);
        }
        self.follow_elements(new, vcluster, &mut delta);
        for id in &self.promises {
            delta.pending.insert(*id, waits(*id));
        }
        for path in &self.projects {
            let level = new.projects.get(path).map(LevelView::from);
            delta.levels.insert(path.clone(), level);
        }
        follow_inputs(&self.before, new, vcluster, &mut delta);
        self.follow_home_rule(new, vcluster, &mut delta);
        delta
    }

    /// Adds changed nodes that the vCluster uses, and changed nodes that it has lent.
    fn follow_nodes<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        delta: &mut Delta,
    ) {
        let mut loans = Loans::new(new, vcluster);
        // The nodes are in order, so collecting them into a map is faster than inserting each.
        let nodes = self.nodes.iter().map(|(id, lent_by)| {
            let entry = new.nodes.get(id);
            let own = entry.and_then(|entry| {
                let record = entry.record().filter(|r| r.current == *vcluster)?;
                Some(NodeView::new(record, entry.facts()))
            });
            let loan = entry.and_then(|entry| loans.of(&**entry));
            if loan.is_some() || lent_by.as_ref() == Some(vcluster) {
                delta.on_loan.insert(id.clone(), loan);
            }
            (id.clone(), own)
        });
        delta.nodes = nodes.collect();
        if !Arc::ptr_eq(&self.before.vclusters, &new.vclusters) {
            // With other settings of vClusters, the return of all lent nodes may take another time.
            let all = loans.all();
            let all = all.into_iter().map(|(id, loan)| (id, Some(loan)));
            delta.on_loan.extend(all);
        }
    }

    /// Adds elements of changed arrays that may be placed now, and removes those that may not any more. An element that
    /// has got an allocation of its own is already in the delta.
    fn follow_elements<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        delta: &mut Delta,
    ) {
        for (id, was) in &self.arrays {
            let is = new.allocation(*id);
            let of = |array: Option<&Arc<Allocation>>| {
                array.map_or_else(BTreeSet::new, |array| elements(array, vcluster))
            };
            let (before, after) = (of(was.as_ref()), of(is));
            for gone in before.difference(&after) {
                delta.pending.entry(*gone).or_insert(None);
            }
            let Some(is) = is else { continue };
            let waits = PendingView::from(&**is);
            // All elements have the request of their array, so a change of the array changes each element.
            let is_same = (was.as_ref()).is_some_and(|was| PendingView::from(&**was) == waits);
            let news = after.iter().filter(|id| !is_same || !before.contains(id));
            let news = news.map(|id| (*id, Some(waits.clone())));
            delta.pending.extend(news);
        }
    }

    /// Marks waiting allocations that must not use borrowed nodes: those in the delta, and all others if the rule has
    /// changed.
    fn follow_home_rule<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        delta: &mut Delta,
    ) {
        let is_same_rule = Arc::ptr_eq(&self.before.vclusters, &new.vclusters);
        if delta.pending.is_empty() && is_same_rule {
            return;
        }
        let home = HomeRule::of(&new.vclusters);
        if !is_same_rule && HomeRule::of(&self.before.vclusters) != home {
            let waits = new.allocations.values();
            let waits = waits.filter(|held| waits_for_plan(new, held, vcluster));
            let waits = waits.map(|held| (held.id, held));
            let arrays = new.arrays.ids().filter_map(|id| new.allocation(id));
            let elements = arrays.flat_map(|array| {
                elements(array, vcluster)
                    .into_iter()
                    .map(move |id| (id, array))
            });
            for (id, held) in waits.chain(elements) {
                let known = delta.pending.entry(id);
                known.or_insert_with(|| Some(pending(new, held)));
            }
        }
        for (id, pending) in &mut delta.pending {
            if let (Some(pending), Some(held)) = (pending, new.waiting(*id)) {
                home.apply(&held.spec, pending);
            }
        }
    }
}

/// Adds changed values from the site's sources (energy, storage, data readiness) and changed tenants to `delta`.
fn follow_inputs<N: ViewNode>(
    before: &ComparedEntries,
    new: &BaseView<N>,
    vcluster: &VclusterName,
    delta: &mut Delta,
) {
    delta.energy_price = new.inputs.energy.map(|price| price.normalized);
    delta
        .storage
        .extend(differences(&before.storage, remaining_bandwidth(new)));
    delta
        .tenants
        .extend(differences(&before.tenants, tenants(new)));
    let (was, is) = (&before.data_ready, &new.inputs.data_ready);
    for (id, pending) in &mut delta.pending {
        if let Some(pending) = pending {
            fill_readiness(is, *id, pending);
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
        // Elements of an array keep the value from when they were added. An allocation with promised nodes is not
        // planned.
        let planned = allocation.progress.tally.is_none() && !new.promises.is_promised(*id);
        let waits = allocation.state == AllocationState::Pending && planned;
        if waits && allocation.spec.vcluster == *vcluster && !delta.pending.contains_key(id) {
            delta.pending.insert(*id, Some(pending(new, allocation)));
        }
    }
}

/// Entries of `is` that are missing in `was` or have another value there, and `None` for keys of `was` that are missing
/// in `is`.
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
