//! Names of allocations in texts: those of array elements, from the view or from the quorum.

use super::elements;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lattice_api::problem::Problem;
use lattice_engine::{Core, ProposeError};
use lattice_quorum_types::{Allocation, AllocationId, AllocationName, Refusal};
use lattice_view::View;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Maximum number of names read from the quorum for one response. Further ended allocations are named by their numbers.
const MAX_READS: usize = 64;
/// Longest time for which a response waits for details that it can be given without, all of them together. Without a
/// majority of the quorum, a single read takes many seconds.
pub(super) const DETAIL_TIMEOUT: Duration = Duration::from_millis(500);

/// Names of the allocations that one response mentions.
pub(crate) struct Names<'a> {
    view: &'a View,
    /// Names of allocations that the view does not have.
    ended: BTreeMap<AllocationId, AllocationName>,
}

impl<'a> Names<'a> {
    /// Names of the allocations in the view; all others are named by their numbers.
    pub(crate) fn in_view(view: &'a View) -> Self {
        let ended = BTreeMap::new();
        Self { view, ended }
    }

    /// Names of the allocations in the view, and of these ended ones. An allocation that cannot be read in
    /// [`DETAIL_TIMEOUT`] is named by its number.
    pub(crate) async fn of(
        core: &Core,
        view: &'a View,
        ids: impl IntoIterator<Item = AllocationId>,
    ) -> Self {
        let mut names = Self::in_view(view);
        let unnamed = unnamed(view, ids);
        if unnamed.is_empty() {
            return names;
        }
        let reads: FuturesUnordered<_> =
            unnamed.into_iter().map(|id| ended_name(core, id)).collect();
        let timeout = tokio::time::sleep(DETAIL_TIMEOUT);
        let read: Vec<_> = reads.take_until(timeout).collect().await;
        names.ended = read.into_iter().flatten().collect();
        names
    }

    pub(crate) fn view(&self) -> &'a View {
        self.view
    }

    pub(crate) fn get(&self, id: AllocationId) -> AllocationName {
        let ended = self.ended.get(&id).copied();
        ended.unwrap_or_else(|| self.view.name_of(id))
    }
}

/// The first allocations, each once, that the view has no name for.
fn unnamed(view: &View, ids: impl IntoIterator<Item = AllocationId>) -> Vec<AllocationId> {
    let mut seen = BTreeSet::new();
    let ids = ids.into_iter().filter(|id| !view.has_name_of(*id));
    ids.filter(|id| seen.insert(*id)).take(MAX_READS).collect()
}

/// Reads the name of an allocation from the quorum; `None` if there is no answer or no such allocation.
fn ended_name(
    core: &Core,
    id: AllocationId,
) -> BoxFuture<'_, Option<(AllocationId, AllocationName)>> {
    async move {
        let record = elements::find_record(core, id).await.ok()?;
        let record: Option<Arc<Allocation>> = match record {
            Some(record) => Some(record),
            None => elements::unplaced_element(core, id).await.ok()?,
        };
        Some((id, record?.name()))
    }
    .boxed()
}

/// Allocations that the reason of a stop mentions.
pub(crate) fn mentioned_in_stop(a: &Allocation) -> Option<AllocationId> {
    a.stop.as_ref().and_then(|stop| stop.other_allocation())
}

/// Allocations that the answer for a single allocation mentions: in its stop, and as its dependencies.
pub(crate) fn mentioned(a: &Allocation) -> impl Iterator<Item = AllocationId> + '_ {
    let after = a.spec.terms.after.iter().map(|dependency| dependency.on);
    mentioned_in_stop(a).into_iter().chain(after)
}

/// Converts a refusal to a problem, with the names of the allocations that it mentions.
pub(crate) async fn refusal_problem(core: &Core, refusal: &Refusal) -> Problem {
    let view = core.view();
    let names = Names::of(core, &view, refusal.allocations()).await;
    Problem::of_refusal(refusal, &|id| names.get(id))
}

/// Converts the error of a proposal to a problem.
pub(crate) async fn problem(core: &Core, error: &ProposeError) -> Problem {
    match error {
        ProposeError::Refused(refusal) => refusal_problem(core, refusal).await,
        ProposeError::Unavailable(unavailable) => Problem::from(unavailable),
    }
}
