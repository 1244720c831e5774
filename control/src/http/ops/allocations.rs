//! Allocations.

use super::{judge, nodes::agent_problem, paging, propose, read, unexpected};
use crate::{
    Core, LogChunks, LogError, View, core,
    http::{caller::Caller, state::Api, streams::StreamPlace},
};
use axum::BoxError;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use lattice_api::{
    AllocationRequest, AllocationView, Submitted,
    allocation::Sight,
    explanation::ExplanationView,
    page::Page,
    problem::{Kind, Problem},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId, Outcome, ProjectPath, Refusal,
    event::EventKind,
    spec::OutputFiles,
    view::{Answer, Query},
    wire::LogStream,
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

pub(crate) async fn submit(
    core: &Core,
    caller: &Caller,
    request: AllocationRequest,
    key: Option<String>,
    dry_run: bool,
) -> Result<Submitted, Problem> {
    let spec = Box::new(request.into_spec()?);
    caller.check_sees(&spec.project)?;
    let command = Command::Submit { spec };
    if dry_run {
        return Ok(Submitted {
            id: None,
            revision: judge(core, caller, command).await?,
            dry_run,
        });
    }
    let applied = propose(core, caller, key, command).await?;
    let Outcome::Submitted { id } = applied.outcome else {
        return Err(unexpected());
    };
    Ok(Submitted {
        id: Some(id),
        revision: applied.revision,
        dry_run,
    })
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
        return Ok(page.map(|a| shown(&view, caller, a)));
    }
    let page = list_all(core, caller, filter, limit, after).await?;
    Ok(page.map(|a| shown(&view, caller, &a)))
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
        let is_last = found.len() < CHUNK as usize;
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
async fn record(
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
    Ok(shown(&core.view(), caller, &record))
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
        Some(record) => Ok(shown(&core.view(), caller, record)),
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
    Ok(super::explain::explain(&view, &record, sight))
}

/// Which output to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRequest {
    pub(crate) rank: u32,
    pub(crate) stream: LogStream,
    pub(crate) offset: u64,
    pub(crate) follow: bool,
}

/// A rank's output; an error breaks the answer off.
type Output = BoxStream<'static, Result<Bytes, BoxError>>;

/// The output, with a place among the open streams for as long as it is read. Who follows a rank
/// that has not begun waits for it within the answer.
pub(crate) async fn logs(
    api: &Api,
    caller: &Caller,
    id: AllocationId,
    log: LogRequest,
) -> Result<Output, Problem> {
    let core = api.core();
    let record = record(core, caller, id).await?;
    if sight(&core.view(), caller, &record) == Sight::Outline {
        let detail = format!(
            "the output of allocation {id} is for {}, the administrators of {} and operators",
            record.user, record.spec.project
        );
        return Err(Problem::new(Kind::Forbidden, "forbidden", detail));
    }
    if let Some(path) = output_file(&record.spec.workload.output, log.stream) {
        return Err(in_file(&record, log, path));
    }
    let node = record.ranks.get(log.rank as usize).map(|rank| &rank.node);
    let place = api.streams().open(&caller.name, node)?;
    let is_to_begin = core::begun(&record, log.rank).is_none() && !record.state.is_terminal();
    if log.follow && is_to_begin && log.rank < record.spec.nodes {
        let (api, name, node) = (api.clone(), caller.name.clone(), node.cloned());
        let later = async move { once_begun(&api, &name, (place, node), id, log).await };
        return Ok(stream::once(later).try_flatten().boxed());
    }
    let chunks = core
        .read_log(id, log.rank, log.stream, log.offset, log.follow)
        .await
        .map_err(|error| log_problem(&error))?;
    Ok(holding(place, chunks))
}

fn output_file(files: &OutputFiles, stream: LogStream) -> Option<&str> {
    let file = match stream {
        LogStream::Stdout => &files.stdout,
        LogStream::Stderr => &files.stderr,
    };
    file.as_deref()
}

/// Nobody but its owner reads a file of theirs: it is said where it is.
fn in_file(record: &Allocation, log: LogRequest, pattern: &str) -> Problem {
    let what = match log.stream {
        LogStream::Stdout => "standard output",
        LogStream::Stderr => "standard error",
    };
    let (id, rank) = (record.id, log.rank);
    let place = record.ranks.get(rank as usize);
    let path = match place {
        Some(place) => filled_in(pattern, id, rank, &place.node),
        None => pattern.to_owned(),
    };
    let below = match (path.starts_with('/'), &record.spec.workload.working_dir) {
        (true, _) => String::new(),
        (false, Some(folder)) => format!(", in {folder}"),
        (false, None) => ", in its working directory".to_owned(),
    };
    let node = place.map_or(String::new(), |place| format!(" on {}", place.node));
    let detail = format!(
        "the {what} of allocation {id} rank {rank} is not kept as a log: it goes to {path}{below}\
         {node}, a file of {}",
        record.user
    );
    Problem::new(Kind::Conflict, "output_in_file", detail)
}

/// The name as the node fills it in.
fn filled_in(pattern: &str, id: AllocationId, rank: u32, node: &NodeId) -> String {
    let mut path = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            path.push(c);
            continue;
        }
        match rest.next() {
            Some('j') => path.push_str(&id.to_string()),
            Some('r') => path.push_str(&rank.to_string()),
            Some('n') => path.push_str(node.as_str()),
            other => path.extend(other),
        }
    }
    path
}

fn log_problem(error: &LogError) -> Problem {
    let problem = |kind, code: &'static str| Problem::new(kind, code, error.to_string());
    match error {
        LogError::UnknownAllocation { .. } => problem(Kind::NotFound, "unknown_allocation"),
        LogError::NotStarted { .. } => problem(Kind::Conflict, "not_started"),
        LogError::NoSuchRank { .. } => problem(Kind::NotFound, "no_such_rank"),
        LogError::Unavailable(unavailable) => Problem::from(unavailable),
        LogError::Agent(agent) => agent_problem(agent),
    }
}

/// The output of a rank from when it begins; nothing when it never does. `held` is the place of
/// who waits, and the node it counts for.
async fn once_begun(
    api: &Api,
    name: &Arc<str>,
    held: (StreamPlace, Option<NodeId>),
    id: AllocationId,
    log: LogRequest,
) -> Result<Output, BoxError> {
    let (mut place, counted) = held;
    let Some(node) = api.core().rank_begins(id, log.rank).await? else {
        return Ok(stream::empty().boxed());
    };
    if counted.as_ref() != Some(&node) {
        drop(place);
        let opened = api.streams().open(name, Some(&node));
        place = opened.map_err(|problem| problem.detail)?;
    }
    let core = api.core();
    let chunks = core
        .read_log(id, log.rank, log.stream, log.offset, log.follow)
        .await?;
    Ok(holding(place, chunks))
}

fn holding(place: StreamPlace, chunks: LogChunks) -> Output {
    let chunks = chunks.map(move |chunk| {
        let _held_while_read = &place;
        Ok(chunk?)
    });
    chunks.boxed()
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

/// An allocation as the caller may see it.
pub(crate) fn shown(view: &View, caller: &Caller, a: &Allocation) -> AllocationView {
    let mut shown = AllocationView::new(a, sight(view, caller, a));
    shown.reason = super::explain::reason(view, a);
    shown
}
