//! Allocation operations: list, show and act.

use super::{
    elements, lost_work,
    names::{self, Names},
    outputs, paging, propose, read, time, unexpected,
    wait_causes::WaitLookup,
};
use crate::{caller::Caller, state::Api};
use lattice_api::{
    AllocationView,
    allocation::{CheckpointRequest, ExtendRequest, WalltimeChange, WorkloadAccess},
    duration,
    explanation::ExplanationView,
    page::Page,
    problem::Problem,
    text::rounded_duration,
};
use lattice_engine::{Core, explanation, run_condition::RunCondition};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, ProjectPath, Refusal, UnixMillis,
    checkpoint::DEFAULT_TIMEOUT_MS,
    command::RequestedCheckpoint,
    event::EventKind,
    view::{Answer, Query},
};
use lattice_view::{LastPlan, View};
use std::{ops::Bound, sync::Arc};

/// Records read from the quorum at a time.
const RECORDS_PER_READ: u32 = 1_000;
/// Maximum number of reads for one page. A page may be short when few records match; its cursor continues.
const MAX_READS: usize = 10;

pub(super) fn unknown(id: AllocationId) -> Problem {
    Problem::from(&Refusal::UnknownAllocation { id })
}

/// Filter of an allocation list.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    states: Vec<AllocationState>,
    within: Option<ProjectPath>,
    user: Option<String>,
}

impl Filter {
    /// Parses the filter; each state may itself be a comma-separated list.
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

    /// Whether the view contains every matching allocation.
    fn matches_live_only(&self) -> bool {
        !self.states.is_empty() && !self.states.iter().any(|s| s.is_terminal())
    }
}

pub(crate) async fn list(
    api: &Api,
    caller: &Caller,
    filter: &Filter,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<AllocationView>, Problem> {
    let core = api.core();
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
    if filter.matches_live_only() {
        let all = view
            .allocations
            .range((Bound::Excluded(after), Bound::Unbounded));
        let passing = all.map(|(_, a)| a).filter(|a| filter.passes(caller, a));
        let page = paging::page(passing, limit, |a| a.id.to_string());
        let names = Names::of(core, &view, stopped_by(page.items.iter().map(|a| &***a))).await;
        let plan = api
            .plans()
            .plan_for(core, &view, page.items.iter().map(|a| &***a))
            .await;
        let waits = WaitLookup::new(&view);
        let now = core.now();
        return Ok(page.map(|a| allocation_view(&names, (&plan, &waits, now), caller, a)));
    }
    let page = list_all(core, caller, filter, limit, after).await?;
    let names = Names::of(core, &view, stopped_by(&page.items)).await;
    let plan = api.plans().plan_for(core, &view, &page.items).await;
    let (waits, now) = (WaitLookup::new(&view), core.now());
    Ok(page.map(|a| allocation_view(&names, (&plan, &waits, now), caller, &a)))
}

/// Allocations that the stop reasons of these mention. They are collected at once, because the iterator would be part of
/// the caller's future, which must be `Send`.
fn stopped_by<'a>(all: impl IntoIterator<Item = &'a Allocation>) -> Vec<AllocationId> {
    all.into_iter()
        .filter_map(names::mentioned_in_stop)
        .collect()
}

/// Lists allocations including ended ones, which only the quorum has.
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
            limit: RECORDS_PER_READ,
            states: filter.states.clone(),
            within: filter.within.clone(),
        };
        let Answer::Allocations(found) = read(core, query).await? else {
            return Err(unexpected());
        };
        // A page may be short, because the quorum limits its bytes and the records it examines.
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

/// Returns the record from the view, or from the quorum once the allocation has ended. For an element that was never
/// placed, the record is derived from its array.
pub(super) async fn record(
    core: &Core,
    caller: &Caller,
    id: AllocationId,
) -> Result<Arc<Allocation>, Problem> {
    let record = match elements::find_record(core, id).await? {
        Some(record) => record,
        None => match elements::unplaced_element(core, id).await? {
            Some(element) => element,
            None => return Err(lost_work::unknown(core, caller, id).await),
        },
    };
    match caller.sees(&record.spec.project) {
        true => Ok(record),
        false => Err(unknown(id)),
    }
}

pub(crate) async fn get(
    api: &Api,
    caller: &Caller,
    id: AllocationId,
) -> Result<AllocationView, Problem> {
    let core = api.core();
    let record = record(core, caller, id).await?;
    Ok(current_view(api, caller, &record).await)
}

/// Action on an allocation.
#[derive(Debug, Clone)]
pub(crate) enum AllocationAction {
    Cancel,
    Hold,
    Release,
    Requeue,
    Extend(ExtendRequest),
    Checkpoint(CheckpointRequest),
    Suspend,
    SuspendAfterCheckpoint,
    Resume,
}

impl AllocationAction {
    /// Builds the command; reads the allocation first if necessary.
    async fn command(
        &self,
        api: &Api,
        caller: &Caller,
        id: AllocationId,
    ) -> Result<Command, Problem> {
        let core = api.core();
        Ok(match self {
            AllocationAction::Cancel => Command::Cancel { id },
            AllocationAction::Hold => Command::Hold { id },
            AllocationAction::Release => Command::Release { id },
            AllocationAction::Requeue => Command::Requeue { id },
            AllocationAction::Suspend => Command::Suspend { id },
            AllocationAction::SuspendAfterCheckpoint => suspend_after(api, caller, id).await?,
            AllocationAction::Resume => Command::Resume { id },
            AllocationAction::Extend(request) => {
                let walltime_ms = match request.read()? {
                    WalltimeChange::Total(ms) => ms,
                    WalltimeChange::Increment(ms) => {
                        let present = record(core, caller, id).await?.spec.walltime_ms;
                        let unbounded = || {
                            let reason = "the allocation has no walltime; give an absolute walltime instead of an extension";
                            Problem::field("walltime", reason)
                        };
                        let sum = present.ok_or_else(unbounded)?.saturating_add(ms);
                        sum.min(duration::MAX_MS)
                    }
                };
                Command::SetWalltime { id, walltime_ms }
            }
            AllocationAction::Checkpoint(request) => checkpoint(api, caller, id, request).await?,
        })
    }
}

async fn checkpoint(
    api: &Api,
    caller: &Caller,
    id: AllocationId,
    request: &CheckpointRequest,
) -> Result<Command, Problem> {
    let core = api.core();
    let timeout_ms = request.timeout_ms()?.unwrap_or(DEFAULT_TIMEOUT_MS);
    let given = request.directory.clone().filter(|text| !text.is_empty());
    let directory = match given {
        Some(directory) => directory,
        None => {
            let record = record(core, caller, id).await?;
            let nowhere = || {
                let reason = "no checkpoint directory is configured for the allocation or the site; \
                              set `directory`";
                Problem::field("directory", reason)
            };
            // For an allocation without checkpoints, the quorum returns the error.
            match record.spec.terms.checkpoint {
                None => "/".to_owned(),
                Some(_) => api
                    .stores()
                    .checkpoints
                    .directory(&record)
                    .ok_or_else(nowhere)?,
            }
        }
    };
    Ok(Command::WriteCheckpoint {
        id,
        directory,
        timeout_ms,
    })
}

/// Builds the command to suspend after a checkpoint. The checkpoint uses the allocation's usual directory and the time
/// limit of its vCluster.
async fn suspend_after(api: &Api, caller: &Caller, id: AllocationId) -> Result<Command, Problem> {
    let core = api.core();
    let record = record(core, caller, id).await?;
    let directory = match record.spec.terms.checkpoint {
        // The quorum returns the error, unless another refusal has priority.
        None => "/".to_owned(),
        Some(_) => api.stores().checkpoints.directory(&record).ok_or_else(|| {
            let reason = "neither the allocation nor the site gives a checkpoint directory; \
                write a checkpoint first (`lattice checkpoint --directory`), then suspend without one";
            Problem::field("checkpoint", reason)
        })?,
    };
    let policy = core.view().movement_of(&record.spec.vcluster).checkpoint;
    let checkpoint = RequestedCheckpoint {
        directory,
        timeout_ms: policy.bounds(record.spec.sensitive).timeout_ms,
    };
    Ok(Command::SuspendAfterCheckpoint { id, checkpoint })
}

pub(crate) async fn act(
    api: &Api,
    caller: &Caller,
    id: AllocationId,
    act: AllocationAction,
    key: Option<String>,
) -> Result<AllocationView, Problem> {
    let core = api.core();
    // Checked first, so that a caller without write permission does not learn which objects exist.
    caller.check_writes()?;
    if caller.tenants.is_some() {
        record(core, caller, id).await?;
    }
    let command = act.command(api, caller, id).await?;
    let applied = match propose(core, caller, key, command).await {
        Err(problem) if problem.code == "unknown_allocation" => {
            return Err(lost_work::unknown(core, caller, id).await);
        }
        applied => applied?,
    };
    let changed = applied.events.iter().rev().find_map(|e| match &e.kind {
        EventKind::Allocation { record, .. } if record.id == id => Some(record),
        _ => None,
    });
    match changed {
        Some(record) => Ok(current_view(api, caller, record).await),
        None => get(api, caller, id).await,
    }
}

pub(crate) async fn explanation(
    api: &Api,
    caller: &Caller,
    id: AllocationId,
) -> Result<ExplanationView, Problem> {
    let core = api.core();
    let record = record(core, caller, id).await?;
    let view = core.view();
    let sight = visibility(&view, caller, &record);
    let names = Names::of(core, &view, names::mentioned(&record)).await;
    let plan = api.plans().plan_for(core, &view, [&*record]).await;
    let name = |id| names.get(id);
    let mut explained = explanation::explain(&view, &plan, &record, sight, &name);
    if let Some(waits) = WaitLookup::new(&view).of(&record) {
        explained.summary = super::wait_causes::wait_text(&record, &waits, &name);
    }
    let now = core.now();
    if let Some(condition) = RunCondition::of(&view, &record, now) {
        if let Some(wrong) = condition.problem_text(now) {
            explained.summary += &format!("; {wrong}");
        }
        explained.ends_at = condition.ends_at.map(time);
        explained.kill_at = condition.kill_at.map(time);
        explained.node_problems = condition.problem_views();
    }
    Ok(explained)
}

/// Whether the caller sees the full workload: its owner, an administrator of its project or tenant, or an operator.
pub(crate) fn visibility(view: &View, caller: &Caller, a: &Allocation) -> WorkloadAccess {
    let administers = || {
        let levels = a.spec.project.ancestors();
        levels
            .filter_map(|path| view.projects.get(&path))
            .any(|project| project.admins.iter().any(|admin| **admin == *caller.name))
    };
    if caller.sees_all() || *a.user == *caller.name || administers() {
        WorkloadAccess::Full
    } else {
        WorkloadAccess::WithoutWorkload
    }
}

/// View of an allocation for the caller at this time. `plan` comes from [`Core::plan_for`].
pub(crate) fn allocation_view(
    names: &Names<'_>,
    (plan, waits, now): (&LastPlan, &WaitLookup<'_>, UnixMillis),
    caller: &Caller,
    a: &Allocation,
) -> AllocationView {
    let (view, name) = (names.view(), |id| names.get(id));
    let mut shown = AllocationView::new(a, visibility(view, caller, a), &name);
    shown.reason = explanation::reason(view, plan, a);
    if let Some(condition) = RunCondition::of(view, a, now) {
        shown.reason = condition.text(now);
        shown.ends_at = condition.ends_at.map(time);
        let left = condition.ends_at.map(|at| at.since(now));
        shown.time_left = left.map(rounded_duration);
        shown.kill_at = condition.kill_at.map(time);
        shown.node_problems = condition.problem_views();
    }
    if let Some(waits) = waits.of(a) {
        shown.reason = Some(super::wait_causes::wait_text(a, &waits, &name));
        shown.waits_for = Some((&waits).into());
    }
    if let Some(workload) = &mut shown.workload {
        *workload = view.workload(a).into();
    }
    shown
}

async fn current_view(api: &Api, caller: &Caller, a: &Allocation) -> AllocationView {
    let core = api.core();
    let view = core.view();
    let names = Names::of(core, &view, names::mentioned(a)).await;
    let mut shown = {
        let plan = api.plans().plan_for(core, &view, [a]).await;
        let waits = WaitLookup::new(&view);
        allocation_view(&names, (&plan, &waits, core.now()), caller, a)
    };
    if shown.workload.is_some() {
        // Only the record of an ended array must be read, from the quorum.
        let places = outputs::places(core, &view, a);
        let places = tokio::time::timeout(names::DETAIL_TIMEOUT, places).await;
        shown.output = places.ok().and_then(Result::ok);
    }
    shown
}
