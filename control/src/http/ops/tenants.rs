//! Tenants, which are the roots of the tree, and what holds for the whole cluster.

use super::{change, paging, projects, propose, read, unexpected};
use crate::{
    Core,
    http::caller::{Caller, Role},
};
use lattice_api::{
    page::Page,
    problem::{Kind, Problem},
    project::{Changed, ProjectRequest, ProjectUpdate},
    tenant::{
        LimitPolicyUpdate, SystemLimitsUpdate, SystemLimitsView, TenantRequest, TenantUpdate,
        TenantView,
    },
};
use lattice_quorum_types::{
    Command, ProjectPath,
    view::{Answer, Query},
};
use std::ops::Bound;

/// Who may be told that a name is a project and no tenant.
fn root(text: &str) -> Result<&str, Problem> {
    match text.contains('/') {
        false => Ok(text),
        true => Err(Problem::field(
            "id",
            "a tenant is the root of a tree: give one name without '/'",
        )),
    }
}

pub(crate) fn list(
    core: &Core,
    caller: &Caller,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<TenantView>, Problem> {
    let limit = paging::limit(limit)?;
    let view = core.view();
    let start = paging::after::<ProjectPath>(cursor)?.map_or(Bound::Unbounded, Bound::Excluded);
    let roots = view.projects.range((start, Bound::Unbounded));
    let roots = roots.filter(|(path, _)| path.is_tenant() && caller.sees(path));
    let page = paging::page(roots, limit, |(path, _)| path.to_string());
    Ok(page.map(|(_, root)| lattice_api::project::ProjectView::from(root).into()))
}

pub(crate) fn get(core: &Core, caller: &Caller, id: &str) -> Result<TenantView, Problem> {
    Ok(projects::get(core, caller, root(id)?)?.into())
}

pub(crate) async fn create(
    core: &Core,
    caller: &Caller,
    request: TenantRequest,
    key: Option<String>,
) -> Result<TenantView, Problem> {
    let request = ProjectRequest {
        path: root(&request.id)?.to_owned(),
        limits: ProjectUpdate {
            max_nodes: request.max_nodes,
            max_concurrent_allocations: request.max_concurrent_allocations,
        },
        admins: request.admins,
        description: request.description,
    };
    Ok(projects::create(core, caller, request, key).await?.into())
}

pub(crate) async fn update(
    core: &Core,
    caller: &Caller,
    id: &str,
    update: TenantUpdate,
    key: Option<String>,
) -> Result<TenantView, Problem> {
    let force = update.force;
    let update = update.of_root()?;
    let updated = projects::update_with(core, caller, root(id)?, update, force, key).await?;
    Ok(updated.into())
}

pub(crate) async fn delete(
    core: &Core,
    caller: &Caller,
    id: &str,
    key: Option<String>,
) -> Result<Changed, Problem> {
    projects::delete(core, caller, root(id)?, key).await
}

/// A tenant's own limits are set by administrators of the whole cluster, not by its own.
pub(super) fn check_root(caller: &Caller, path: &ProjectPath) -> Result<(), Problem> {
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

/// What is limited for the whole cluster, as it is committed.
pub(crate) async fn system(core: &Core, caller: &Caller) -> Result<SystemLimitsView, Problem> {
    caller.check_whole(Role::Viewer, "reading the limits of the whole cluster")?;
    match read(core, Query::System).await? {
        Answer::System(view) => Ok(view.into()),
        _ => Err(unexpected()),
    }
}

pub(crate) async fn set_system(
    core: &Core,
    caller: &Caller,
    update: SystemLimitsUpdate,
    key: Option<String>,
) -> Result<SystemLimitsView, Problem> {
    caller.check_whole(Role::Admin, "setting the limits of the whole cluster")?;
    let patch = update.into();
    propose(core, caller, key, Command::SetSystemLimits { patch }).await?;
    system(core, caller).await
}

pub(crate) async fn set_policy(
    core: &Core,
    caller: &Caller,
    update: LimitPolicyUpdate,
    key: Option<String>,
) -> Result<SystemLimitsView, Problem> {
    caller.check_whole(Role::Admin, "choosing what limits mean")?;
    let policy = update.policy()?;
    change(core, caller, key, Command::SetLimitPolicy { policy }).await?;
    system(core, caller).await
}
