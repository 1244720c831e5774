//! Project operations and limits.

use super::{change, paging, propose, read, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    page::Page,
    problem::{FieldError, Kind, Problem},
    project::{ChangeResult, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView},
    tenant::HeadroomView,
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Applied, Command, ProjectPath, Refusal,
    event::EventKind,
    project::Project,
    view::{Answer, Query},
};
use std::ops::Bound;

fn path(field: &str, text: &str) -> Result<ProjectPath, Problem> {
    ProjectPath::new(text).map_err(|error| {
        Problem::from(FieldError {
            field: field.to_owned(),
            reason: error.to_string(),
        })
    })
}

/// Parses a project path from a URL, with or without a trailing slash. An invalid path is an error of the field `path`.
fn parse_url_path(text: &str) -> Result<ProjectPath, Problem> {
    path("path", text.trim_end_matches('/'))
}

pub(crate) fn list(
    core: &Core,
    caller: &Caller,
    below: Option<&str>,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<ProjectView>, Problem> {
    let limit = paging::limit(limit)?;
    let view = core.view();
    let below = below
        .filter(|text| !text.is_empty())
        .map(|text| path("below", text))
        .transpose()?;
    if let Some(top) = &below
        && !(view.projects.contains_key(top) && caller.sees(top))
    {
        return Err(unknown(top));
    }
    let start = paging::after::<ProjectPath>(cursor)?.map_or(Bound::Unbounded, Bound::Excluded);
    let all = view.projects.range((start, Bound::Unbounded));
    let within = all
        .filter(|(path, _)| caller.sees(path))
        .filter(|(path, _)| below.as_ref().is_none_or(|top| path.is_within(top)));
    let page = paging::page(within, limit, |(path, _)| path.to_string());
    Ok(page.map(|(_, project)| ProjectView::from(project)))
}

pub(crate) fn get(core: &Core, caller: &Caller, text: &str) -> Result<ProjectView, Problem> {
    let path = parse_url_path(text)?;
    caller.check_sees(&path)?;
    let view = core.view();
    let project = view.projects.get(&path).ok_or_else(|| unknown(&path))?;
    Ok(project.into())
}

/// Path suffix of a headroom request. No project can have this name.
const HEADROOM: &str = "/headroom";

/// Project path of a headroom request; `None` for any other request path.
pub(crate) fn headroom_project(text: &str) -> Option<&str> {
    text.trim_end_matches('/').strip_suffix(HEADROOM)
}

/// Headroom of a project, from committed state.
pub(crate) async fn headroom(
    core: &Core,
    caller: &Caller,
    text: &str,
) -> Result<HeadroomView, Problem> {
    let path = parse_url_path(text)?;
    caller.check_sees(&path)?;
    let query = Query::Headroom { path: path.clone() };
    match read(core, query).await? {
        Answer::Headroom(Some(room)) => Ok(HeadroomView::new(&path, *room)),
        Answer::Headroom(None) => Err(unknown(&path)),
        _ => Err(unexpected()),
    }
}

fn unknown(path: &ProjectPath) -> Problem {
    Problem::from(&Refusal::UnknownProject { path: path.clone() })
}

pub(crate) async fn create(
    core: &Core,
    caller: &Caller,
    request: ProjectRequest,
    key: Option<String>,
) -> Result<ProjectView, Problem> {
    let path = path("path", &request.path)?;
    caller.check_sees(&path)?;
    check_tenant_change(caller, &path)?;
    let command = Command::NewProject {
        path: path.clone(),
        limits: request.limits.into(),
        admins: request.admins,
        description: request.description,
    };
    let applied = propose(core, caller, key, command).await?;
    changed_project(core, &applied, &path)
}

/// Record after a change: from its events, or the current record for a repeated request, which has no events.
fn changed_project(
    core: &Core,
    applied: &Applied,
    path: &ProjectPath,
) -> Result<ProjectView, Problem> {
    let of_path = |project: &&Project| project.path == *path;
    let records = applied.events.iter().filter_map(|event| match &event.kind {
        EventKind::Project { record } => Some(record),
        _ => None,
    });
    if let Some(record) = records.rev().find(of_path) {
        return Ok(record.into());
    }
    let view = core.view();
    let record = view.projects.get(path).ok_or_else(unexpected)?;
    Ok(record.into())
}

pub(crate) async fn update(
    core: &Core,
    caller: &Caller,
    text: &str,
    update: ProjectUpdate,
    key: Option<String>,
) -> Result<ProjectView, Problem> {
    update_with(core, caller, text, update, false, key).await
}

/// Updates limits; with `force`, also below the sum of the children's limits.
pub(super) async fn update_with(
    core: &Core,
    caller: &Caller,
    text: &str,
    update: ProjectUpdate,
    force: bool,
    key: Option<String>,
) -> Result<ProjectView, Problem> {
    let path = parse_url_path(text)?;
    caller.check_sees(&path)?;
    check_tenant_change(caller, &path)?;
    check_force(caller, force)?;
    let request = LimitsRequest {
        changes: vec![update.for_project(path.to_string())],
        force,
    };
    let applied = propose(core, caller, key, request.into_command()?).await?;
    changed_project(core, &applied, &path)
}

pub(crate) async fn delete(
    core: &Core,
    caller: &Caller,
    text: &str,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    let path = parse_url_path(text)?;
    caller.check_sees(&path)?;
    check_tenant_change(caller, &path)?;
    change(core, caller, key, Command::DeleteProject { path }).await
}

pub(crate) async fn set_limits(
    core: &Core,
    caller: &Caller,
    request: LimitsRequest,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    let force = request.force;
    let command = request.into_command()?;
    if let Command::SetLimits { changes } | Command::ForceLimits { changes } = &command {
        for change in changes {
            caller.check_sees(&change.path)?;
            check_tenant_change(caller, &change.path)?;
        }
    }
    check_force(caller, force)?;
    change(core, caller, key, command).await
}

/// Requires an administrator of the whole cluster for `force`, because overcommitting a level affects all projects that
/// share the nodes.
pub(super) fn check_force(caller: &Caller, force: bool) -> Result<(), Problem> {
    match force {
        true => caller.check_cluster_role(Role::Admin, "setting limits by force"),
        false => Ok(()),
    }
}

/// Rejects changes of a tenant itself by administrators of some tenants only. Such administrators may change the
/// projects below the tenant.
pub(super) fn check_tenant_change(caller: &Caller, path: &ProjectPath) -> Result<(), Problem> {
    if !path.is_tenant() || caller.tenants.is_none() {
        return Ok(());
    }
    let detail = format!(
        "limits of tenant \"{path}\" are set by administrators of the whole cluster; {} has the role \
         {} in some tenants only",
        caller.name, caller.role
    );
    Err(Problem::new(Kind::Forbidden, "forbidden", detail))
}
