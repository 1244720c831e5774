//! Complete solver input of one vCluster, for a new planner.

use super::{
    home::HomeRule,
    loans::Loans,
    pending::{elements, waits_for_plan},
    sensitive_pool::pool,
    site::fill,
};
use crate::state::{BaseView, ViewNode};
use lattice_placement::{ClusterView, NodeFacts, PendingView};
use lattice_quorum_types::{
    VclusterName,
    id::ReservationName,
    reservation::{Reservation, ReservationSpec},
};
use std::{collections::BTreeMap, sync::Arc};

/// Complete solver input of one vCluster.
pub fn full_input<N: ViewNode>(
    view: &BaseView<N>,
    vcluster: &VclusterName,
    age_ms: u64,
) -> ClusterView {
    let facts = |id: &_| view.node(id).map_or_else(NodeFacts::default, |n| n.facts());
    let records = ClusterView::of_records(
        vcluster,
        view.nodes.values().filter_map(|n| n.record()),
        view.allocations.values().map(|held| &**held),
        view.projects.values(),
        facts,
    );
    let mut cluster = ClusterView {
        revision: view.revision,
        age_ms,
        limit_policy: view.system.limit_policy,
        sensitive_pool: pool(view),
        on_loan: Loans::new(view, vcluster).all(),
        reserved: reserved(&view.reservations),
        ..records
    };
    // An array is not placed, but its elements are. An allocation with promised nodes gets them when they are free.
    cluster.pending.retain(|id, _| {
        let held = view.allocation(*id);
        held.is_some_and(|held| waits_for_plan(view, held, vcluster))
    });
    for array in view.arrays.ids().filter_map(|id| view.allocation(id)) {
        let elements = elements(array, vcluster);
        let waits = |id| (id, PendingView::from(&**array));
        cluster.pending.extend(elements.into_iter().map(waits));
    }
    fill(view, &mut cluster);
    let home = HomeRule::of(&view.vclusters);
    for (id, pending) in &mut cluster.pending {
        if let Some(held) = view.waiting(*id) {
            home.apply(&held.spec, pending);
        }
    }
    cluster
}

/// All reservations of the site. A planner ignores reserved nodes that are not in its view.
fn reserved(
    reservations: &BTreeMap<ReservationName, Arc<Reservation>>,
) -> BTreeMap<ReservationName, ReservationSpec> {
    let spec =
        |(name, known): (&ReservationName, &Arc<Reservation>)| (name.clone(), known.spec.clone());
    reservations.iter().map(spec).collect()
}
