//! vCluster routes.

use super::{ExpectedVersion, Paging};
use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Key, Params, PathParameter},
    ops::vclusters,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    project::ChangeResult,
    schema::Name,
    vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
};

/// List all vClusters by name, a page at a time: defined ones, undefined ones with nodes, and `default`.
#[utoipa::path(get, path = "/vclusters", tag = "vclusters", params(Paging), responses(
    (status = 200, body = Page<VclusterView>)))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(p): Params<Paging>,
) -> Answer<Page<VclusterView>> {
    let (limit, cursor) = (p.limit, p.cursor.as_deref());
    Ok(Json(
        vclusters::list(api.core(), &caller, limit, cursor).await?,
    ))
}

/// Show a vCluster: its tenants, nodes and settings, and the control that schedules it.
#[utoipa::path(get, path = "/vclusters/{name}", tag = "vclusters", params(("name" = inline(Name), Path)),
    responses((status = 200, body = VclusterView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
) -> Answer<VclusterView> {
    Ok(Json(vclusters::get(api.core(), &caller, &name).await?))
}

/// Define a vCluster, or change its definition.
///
/// A field left out stays; `null` as `tenants` opens the vCluster to all tenants. Allocations already waiting in it
/// stay. Scheduler settings alone do not define a vCluster: 404 if it does not exist. For administrators of the whole
/// cluster; recorded in the audit.
#[utoipa::path(put, path = "/vclusters/{name}", tag = "vclusters", request_body = VclusterRequest,
    params(("name" = inline(Name), Path), Key),
    responses((status = 200, body = VclusterView)))]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Key(key): Key,
    Input(request): Input<VclusterRequest>,
) -> Answer<VclusterView> {
    Ok(Json(
        vclusters::set(api.core(), &caller, &name, request, key).await?,
    ))
}

/// Delete the definition of a vCluster.
///
/// Rejected with 409 while the vCluster has nodes, because they would be open to every tenant. For administrators of
/// the whole cluster; recorded in the audit.
#[utoipa::path(delete, path = "/vclusters/{name}", tag = "vclusters", params(
    ("name" = inline(Name), Path), ExpectedVersion, Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Params(expected): Params<ExpectedVersion>,
    Key(key): Key,
) -> Answer<ChangeResult> {
    let version = expected.expected_version;
    Ok(Json(
        vclusters::delete(api.core(), &caller, &name, version, key).await?,
    ))
}

/// Assign nodes to a vCluster as their home and current vCluster, all or none.
///
/// Each node must be neither held nor claimed. A node of another defined vCluster is moved only if `from` names that
/// vCluster. A refusal with the code `ownership_conflict` names each unavailable node and the reason. For
/// administrators of the whole cluster; recorded in the audit.
#[utoipa::path(post, path = "/vclusters/{name}/nodes", tag = "vclusters",
    request_body = VclusterNodesRequest, params(("name" = inline(Name), Path), Key),
    responses((status = 200, body = VclusterNodes)))]
pub(super) async fn assign(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Key(key): Key,
    Input(request): Input<VclusterNodesRequest>,
) -> Answer<VclusterNodes> {
    Ok(Json(
        vclusters::assign(api.core(), &caller, &name, request, key).await?,
    ))
}
