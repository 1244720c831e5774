//! Names of allocations in texts: those of array elements, from the view or from the quorum.

use super::elements;
use lattice_api::problem::Problem;
use lattice_engine::{Core, ProposeError};
use lattice_quorum_types::{Allocation, AllocationId, AllocationName, Refusal};
use lattice_view::View;
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of names read from the quorum for one response. Further ended allocations are named by their numbers.
const MAX_READS: usize = 64;

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

    /// Names of the allocations in the view, and of these ended ones. An allocation that cannot be read is named by its
    /// number.
    pub(crate) async fn of(
        core: &Core,
        view: &'a View,
        ids: impl IntoIterator<Item = AllocationId>,
    ) -> Self {
        let mut names = Self::in_view(view);
        for id in ids {
            if view.has_name_of(id) || names.ended.contains_key(&id) {
                continue;
            }
            if names.ended.len() == MAX_READS {
                break;
            }
            let name = ended_name(core, id).await;
            names
                .ended
                .insert(id, name.unwrap_or(AllocationName::of_id(id)));
        }
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

async fn ended_name(core: &Core, id: AllocationId) -> Option<AllocationName> {
    let record = elements::find_record(core, id).await.ok()?;
    let record: Option<Arc<Allocation>> = match record {
        Some(record) => Some(record),
        None => elements::unplaced_element(core, id).await.ok()?,
    };
    Some(record?.name())
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
