//! Waiting allocations, and elements of arrays that have no allocation yet, in solver input.

use super::home::HomeRule;
use crate::state::BaseView;
use lattice_placement::{Fraction, PendingView};
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, VclusterName};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of elements of one array in the queue of a plan. Further elements follow when these are placed: a
/// plan with a hundred thousand equal jobs would give no more information.
const ELEMENTS_AT_ONCE: usize = 1000;

/// First elements of an array that may be placed now and have no allocation of their own yet.
pub fn elements(array: &Allocation, vcluster: &VclusterName) -> BTreeSet<AllocationId> {
    let waits = array.state == AllocationState::Pending && array.spec.vcluster == *vcluster;
    let (Some(spec), Some(tally)) = (&array.spec.terms.array, &array.progress.tally) else {
        return BTreeSet::new();
    };
    if !waits {
        return BTreeSet::new();
    }
    let most = spec
        .max_running()
        .map_or(u32::MAX, |most| most.saturating_sub(tally.alive));
    let most = usize::try_from(most)
        .unwrap_or(usize::MAX)
        .min(ELEMENTS_AT_ONCE);
    let pending = tally.pending.iter().take(most);
    spec.numbers(array.id).of_ascending(pending).collect()
}

/// Whether an allocation, other than an array, waits for the next plan of this vCluster.
pub(super) fn waits_for_plan<N>(
    view: &BaseView<N>,
    held: &Allocation,
    vcluster: &VclusterName,
) -> bool {
    held.state == AllocationState::Pending
        && held.spec.vcluster == *vcluster
        && held.progress.tally.is_none()
        && !view.promises.is_promised(held.id)
}

/// Waiting allocation in solver input, with the rule for borrowed nodes applied.
pub fn waiting<N>(view: &BaseView<N>, home: &HomeRule, held: &Allocation) -> PendingView {
    let mut known = pending(view, held);
    home.apply(&held.spec, &mut known);
    known
}

/// Waiting allocation in solver input, without the rule for borrowed nodes.
pub fn pending<N>(view: &BaseView<N>, allocation: &Allocation) -> PendingView {
    let mut pending = PendingView::from(allocation);
    fill_readiness(&view.inputs.data_ready, allocation.id, &mut pending);
    pending
}

/// Sets the data readiness to the value that the source reports, unless the request has a value.
pub(super) fn fill_readiness(
    ready: &BTreeMap<AllocationId, Fraction>,
    id: AllocationId,
    pending: &mut PendingView,
) {
    pending.data_ready = pending.data_ready.or_else(|| ready.get(&id).copied());
}
