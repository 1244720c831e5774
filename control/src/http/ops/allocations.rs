//! Allocations.

use super::{paging, propose, read, unexpected};
use crate::{Core, LastPlan, View, http::caller::Caller};
use lattice_api::{
    AllocationView, allocation::Sight, explanation::ExplanationView, page::Page, problem::Problem,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, ProjectPath, Refusal,
    event::EventKind,
    view::{Answer, Query},
};
use std::{ops::Bound, sync::Arc};

/// Records read from the quorum at a time.
const CHUNK: u32 = 1_000;
/// Reads for one page. A page may come out short when few records match; its cursor goes on.
const MAX_READS: usize = 10;

/// A number from a path.
pub(crate) fn number(text: &str) -> Result<AllocationId, Problem> {
    text.parse()
        .map_err(|e: lattice_quorum_types::id::InvalidId| Problem::field("id", e.to_string()))
}

fn unknown(id: AllocationId) -> Problem {
    Problem::from(&Refusal::UnknownAllocation { id })
}

/// Which allocations to list.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    states: Vec<AllocationState>,
    within: Option<ProjectPath>,
    user: Option<String>,
}

impl Filter {
    /// Reads the texts; each state may itself be a list with commas.
    pub(crate) fn new<'a>(
        states: impl IntoIterator<Item = &'a str>,
        project: Option<&str>,
        user: Option<String>,
    ) -> Result<Self, Problem> {
        let words = states.into_iter().flat_map(|s| s.split(','));
        let states = words.map(str::trim).filter(|s| !s.is_empty());
        let states: Result<_, _> = states.map(str::parse).collect();
        let project = project.filter(|p| !p.is_empty()).map(ProjectPath::new);
        Ok(Self {
            states: states.map_err(|e: String| Problem::field("state", e))?,
            within: project
                .transpose()
                .map_err(|e| Problem::field("project", e.to_string()))?,
            user: user.filter(|u| !u.is_empty()),
        })
    }

    fn passes(&self, caller: &Caller, a: &Allocation) -> bool {
        caller.sees(&a.spec.project)
            && (self.states.is_empty() || self.states.contains(&a.state))
            && self
                .within
                .as_ref()
                .is_none_or(|top| a.spec.project.is_within(top))
            && self.user.as_ref().is_none_or(|user| a.user == *user)
    }

    /// Whether the view holds everything that passes.
    fn is_live(&self) -> bool {
        !self.states.is_empty() && !self.states.iter().any(|s| s.is_terminal())
    }
}

pub(crate) async fn list(
    core: &Core,
    caller: &Caller,
    filter: &Filter,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<AllocationView>, Problem> {
    let limit = paging::limit(limit)?;
    let after = paging::after::<AllocationId>(cursor)?.unwrap_or(AllocationId(0));
    let view = core.view();
    if let Some(top) = &filter.within
        && !(view.projects.contains_key(top) && caller.sees(top))
    {
        return Err(Problem::from(&Refusal::UnknownProject {
            path: top.clone(),
        }));
    }
    if filter.is_live() {
        let all = view
            .allocations
            .range((Bound::Excluded(after), Bound::Unbounded));
        let passing = all.map(|(_, a)| a).filter(|a| filter.passes(caller, a));
        let page = paging::page(passing, limit, |a| a.id.to_string());
        let plan = core.plan_for(&view, page.items.iter().map(|a| &***a)).await;
        return Ok(page.map(|a| shown(&view, &plan, caller, a)));
    }
    let page = list_all(core, caller, filter, limit, after).await?;
    let plan = core.plan_for(&view, &page.items).await;
    Ok(page.map(|a| shown(&view, &plan, caller, &a)))
}

/// With those that have ended, which only the quorum has.
async fn list_all(
    core: &Core,
    caller: &Caller,
    filter: &Filter,
    limit: usize,
    mut after: AllocationId,
) -> Result<Page<Allocation>, Problem> {
    let mut items: Vec<Allocation> = Vec::new();
    for _ in 0..MAX_READS {
        let query = Query::Allocations {
            after,
            limit: CHUNK,
            states: filter.states.clone(),
            within: filter.within.clone(),
        };
        let Answer::Allocations(found) = read(core, query).await? else {
            return Err(unexpected());
        };
        // A page may come out short: the quorum bounds its bytes, and what it reads for it.
        let is_last = found.is_empty();
        after = found.last().map_or(after, |a| a.id);
        let room = limit + 1 - items.len();
        items.extend(
            found
                .into_iter()
                .filter(|a| filter.passes(caller, a))
                .take(room),
        );
        if is_last || items.len() > limit {
            return Ok(paging::page(items.into_iter(), limit, |a| a.id.to_string()));
        }
    }
    Ok(Page {
        items,
        next_cursor: Some(after.to_string()),
    })
}

/// The record, out of the view or, once it has ended, out of the quorum.
pub(super) async fn record(
    core: &Core,
    caller: &Caller,
    id: AllocationId,
) -> Result<Arc<Allocation>, Problem> {
    let live = core.view().allocation(id).cloned();
    let record = match live {
        Some(live) => live,
        None => match read(core, Query::Allocation { id }).await? {
            Answer::Allocation(Some(ended)) => Arc::from(ended),
            Answer::Allocation(None) => return Err(unknown(id)),
            _ => return Err(unexpected()),
        },
    };
    match caller.sees(&record.spec.project) {
        true => Ok(record),
        false => Err(unknown(id)),
    }
}

pub(crate) async fn get(
    core: &Core,
    caller: &Caller,
    id: AllocationId,
) -> Result<AllocationView, Problem> {
    let record = record(core, caller, id).await?;
    Ok(shown_now(core, caller, &record).await)
}

/// What a person may do to an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Cancel,
    Hold,
    Release,
}

pub(crate) async fn act(
    core: &Core,
    caller: &Caller,
    id: AllocationId,
    act: Act,
    key: Option<String>,
) -> Result<AllocationView, Problem> {
    let command = match act {
        Act::Cancel => Command::Cancel { id },
        Act::Hold => Command::Hold { id },
        Act::Release => Command::Release { id },
    };
    if caller.tenants.is_some() {
        record(core, caller, id).await?;
    }
    let applied = propose(core, caller, key, command).await?;
    let changed = applied.events.iter().rev().find_map(|e| match &e.kind {
        EventKind::Allocation { record, .. } if record.id == id => Some(record),
        _ => None,
    });
    match changed {
        Some(record) => Ok(shown_now(core, caller, record).await),
        None => get(core, caller, id).await,
    }
}

pub(crate) async fn explanation(
    core: &Core,
    caller: &Caller,
    id: AllocationId,
) -> Result<ExplanationView, Problem> {
    let record = record(core, caller, id).await?;
    let view = core.view();
    let sight = sight(&view, caller, &record);
    let plan = core.plan_for(&view, [&*record]).await;
    Ok(super::explain::explain(&plan, &record, sight))
}

/// Whether the caller may see what runs: its own, of a project it administers, or as an operator.
pub(crate) fn sight(view: &View, caller: &Caller, a: &Allocation) -> Sight {
    let administers = || {
        let levels = a.spec.project.ancestors();
        levels
            .filter_map(|path| view.projects.get(&path))
            .any(|project| project.admins.iter().any(|admin| **admin == *caller.name))
    };
    if caller.sees_all() || *a.user == *caller.name || administers() {
        Sight::Full
    } else {
        Sight::Outline
    }
}

/// An allocation as the caller may see it. `plan`: [`Core::plan_for`] it.
pub(crate) fn shown(
    view: &View,
    plan: &LastPlan,
    caller: &Caller,
    a: &Allocation,
) -> AllocationView {
    let mut shown = AllocationView::new(a, sight(view, caller, a));
    shown.reason = super::explain::reason(plan, a);
    shown
}

async fn shown_now(core: &Core, caller: &Caller, a: &Allocation) -> AllocationView {
    let view = core.view();
    let plan = core.plan_for(&view, [a]).await;
    shown(&view, &plan, caller, a)
}
