//! Values from the site's sources, and tenant standings, in solver input.

use super::pending::fill_readiness;
use crate::{
    standing::tenants,
    state::{BaseView, ViewNode, inputs::System},
};
use lattice_placement::{ClusterView, StorageView};
use std::collections::BTreeMap;

/// Remaining bandwidth of each storage system with a budget: the budget, less the use by others, less the bandwidth
/// promised to running allocations. In a plan, a promise is released at the end of its job.
pub fn remaining_bandwidth<N>(view: &BaseView<N>) -> BTreeMap<String, StorageView> {
    let system = |(name, system): (&String, &System)| {
        let promised = view.promised.get(name).copied().unwrap_or(0);
        let others = u128::from(system.counted_mb_s());
        let used = i128::try_from(others.saturating_add(promised)).unwrap_or(i128::MAX);
        let left = i128::from(system.budget_mb_s).saturating_sub(used);
        // Negative if more bandwidth was promised than exists: released bandwidth first makes up for that.
        let most = i128::from(i64::MAX);
        let left_mb_s = i64::try_from(left.clamp(-most, most)).unwrap_or_default();
        (name.clone(), StorageView { left_mb_s })
    };
    view.inputs.storage.iter().map(system).collect()
}

/// Adds the values of the sources and the tenants to the solver input of a vCluster. A value in a request takes
/// precedence.
pub(super) fn fill<N: ViewNode>(view: &BaseView<N>, cluster: &mut ClusterView) {
    cluster.energy_price = view.inputs.energy.map(|price| price.normalized);
    cluster.storage = remaining_bandwidth(view);
    cluster.tenants = tenants(view);
    let ready = &view.inputs.data_ready;
    for (id, pending) in &mut cluster.pending {
        fill_readiness(ready, *id, pending);
    }
}
