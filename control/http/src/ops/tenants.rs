//! Tenants (the roots of the project tree), and cluster-wide limits.

use super::{change, paging, projects, propose, read, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    page::Page,
    problem::Problem,
    project::{ChangeResult, ProjectRequest, ProjectUpdate, ProjectView},
    tenant::{
        LimitPolicyUpdate, SystemLimitsUpdate, SystemLimitsView, TenantRequest, TenantUpdate,
        TenantView,
    },
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Command, ProjectPath,
    budget::{MAX_BURST_PPM, ONE_PPM, SoftPatch},
    limit::{LimitPatch, OnLimit, Patch},
    view::{Answer, Query},
};
use lattice_view::View;
use std::ops::Bound;

/// Checks that the text names a tenant rather than a project below one.
fn check_tenant_name(text: &str) -> Result<&str, Problem> {
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
    Ok(page.map(|(_, root)| tenant_view(&view, ProjectView::from(root))))
}

/// View of a tenant with its soft limits (budgets, target share and burst allowance), and the handling of its submits
/// that do not fit with the present usage.
fn tenant_view(view: &View, root: ProjectView) -> TenantView {
    let path = ProjectPath::new(&root.path).ok();
    let budget = path.as_ref().and_then(|path| view.budgets.get(path));
    let on_limit = path.as_ref().and_then(|path| view.on_limits.get(path));
    TenantView::new(
        root,
        budget.map_or_else(Default::default, |budget| budget.soft),
        on_limit.copied().unwrap_or_default(),
    )
}

pub(crate) fn get(core: &Core, caller: &Caller, id: &str) -> Result<TenantView, Problem> {
    let project = projects::get(core, caller, check_tenant_name(id)?)?;
    Ok(tenant_view(&core.view(), project))
}

pub(crate) async fn create(
    core: &Core,
    caller: &Caller,
    request: TenantRequest,
    key: Option<String>,
) -> Result<TenantView, Problem> {
    let soft = request.soft();
    let on_limit = request.on_limit()?;
    // Invalid soft limits are rejected before the tenant is created, so that no tenant is created without them.
    check_soft(&request)?;
    let request = ProjectRequest {
        path: check_tenant_name(&request.id)?.to_owned(),
        limits: ProjectUpdate {
            max_nodes: request.max_nodes,
            max_concurrent_allocations: request.max_concurrent_allocations,
        },
        admins: request.admins,
        description: request.description,
    };
    let made = projects::create(core, caller, request, key.clone()).await?;
    if soft.is_none() && on_limit.is_none() {
        return Ok(tenant_view(&core.view(), made));
    }
    let tenant =
        ProjectPath::new(&made.path).map_err(|error| Problem::field("id", error.to_string()))?;
    let limits = LimitPatch::default();
    let command = update_command(tenant, limits, soft.unwrap_or_default(), false, on_limit);
    let key = key.map(|key| format!("{key} budget"));
    if let Err(mut problem) = propose(core, caller, key, command).await {
        problem.detail = format!(
            "tenant \"{}\" was created, without its limits: {}. Set them with PUT, or repeat the \
             request with its key",
            made.path, problem.detail
        );
        return Err(problem);
    }
    Ok(tenant_view(&core.view(), made))
}

/// Command for a change of a tenant. Only a change of `on_limit` needs the privilege of an administrator in every case.
fn update_command(
    tenant: ProjectPath,
    limits: LimitPatch,
    soft: SoftPatch,
    force: bool,
    on_limit: Option<OnLimit>,
) -> Command {
    match on_limit {
        Some(on_limit) => Command::SetTenant {
            tenant,
            limits,
            soft,
            force,
            on_limit,
        },
        None => Command::UpdateTenant {
            tenant,
            limits,
            soft,
            force,
        },
    }
}

fn check_soft(request: &TenantRequest) -> Result<(), Problem> {
    let within = |patch: Patch, least: u64, most: u64| match patch {
        Patch::Set(ppm) => (least..=most).contains(&ppm),
        Patch::Unlimited | Patch::Unchanged => true,
    };
    if !within(request.fair_share_target, 0, ONE_PPM) {
        return Err(Problem::field(
            "fair_share_target",
            "must be a fraction of the cluster: 0 to 1",
        ));
    }
    match within(request.burst_allowance, ONE_PPM, MAX_BURST_PPM) {
        true => Ok(()),
        false => Err(Problem::field(
            "burst_allowance",
            "must be a multiple of the tenant's share: 1 to 10000",
        )),
    }
}

pub(crate) async fn update(
    core: &Core,
    caller: &Caller,
    id: &str,
    update: TenantUpdate,
    key: Option<String>,
) -> Result<TenantView, Problem> {
    let tenant = tenant(core, caller, id)?;
    // An accounting system may set the limits of all tenants visible to it.
    if !caller.is_accounting() {
        projects::check_tenant_change(caller, &tenant)?;
    }
    projects::check_force(caller, update.force)?;
    let on_limit = update.on_limit()?;
    let (limits, soft) = (update.limits(), update.soft());
    let command = update_command(tenant.clone(), limits, soft, update.force, on_limit);
    propose(core, caller, key, command).await?;
    get(core, caller, tenant.as_str())
}

/// Path of the tenant with this name, if visible to the caller.
pub(super) fn tenant(core: &Core, caller: &Caller, id: &str) -> Result<ProjectPath, Problem> {
    let project = projects::get(core, caller, check_tenant_name(id)?)?;
    ProjectPath::new(&project.path).map_err(|error| Problem::field("id", error.to_string()))
}

pub(crate) async fn delete(
    core: &Core,
    caller: &Caller,
    id: &str,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    projects::delete(core, caller, check_tenant_name(id)?, key).await
}

/// Cluster-wide limits, from committed state.
pub(crate) async fn system(core: &Core, caller: &Caller) -> Result<SystemLimitsView, Problem> {
    caller.check_cluster_role(Role::Viewer, "reading the limits of the whole cluster")?;
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
    caller.check_cluster_role(Role::Admin, "setting the limits of the whole cluster")?;
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
    caller.check_cluster_role(Role::Admin, "choosing how limits are enforced")?;
    let policy = update.policy()?;
    change(core, caller, key, Command::SetLimitPolicy { policy }).await?;
    system(core, caller).await
}
