//! vClusters: tenants' views of the nodes.

use super::{Expected, Paging};
use crate::http::{
    Caller,
    answer::Answer,
    extract::{Input, Key, Params, Place},
    ops::vclusters,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    project::Changed,
    schema::Name,
    vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
};

/// All vClusters by name, a page at a time: those that were defined, those that have nodes although
/// nobody has said what they are, and `default`.
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

/// One vCluster: for whom it is, and its nodes.
#[utoipa::path(get, path = "/vclusters/{name}", tag = "vclusters", params(("name" = inline(Name), Path)),
    responses((status = 200, body = VclusterView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Place(name): Place,
) -> Answer<VclusterView> {
    Ok(Json(vclusters::get(api.core(), &caller, &name).await?))
}

/// Says what a vCluster is, the first time too: a field left out stays, `null` opens it to all tenants.
/// What waits in it already stays. Settings of its scheduler alone define none: 404 where it is not there. For administrators of the whole cluster; kept in the audit.
#[utoipa::path(put, path = "/vclusters/{name}", tag = "vclusters", request_body = VclusterRequest,
    params(("name" = inline(Name), Path), Key),
    responses((status = 200, body = VclusterView)))]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    Place(name): Place,
    Key(key): Key,
    Input(request): Input<VclusterRequest>,
) -> Answer<VclusterView> {
    Ok(Json(
        vclusters::set(api.core(), &caller, &name, request, key).await?,
    ))
}

/// What was said of a vCluster holds no more. Refused with 409 while it has nodes: they would be open
/// to every tenant. For administrators of the whole cluster; kept in the audit.
#[utoipa::path(delete, path = "/vclusters/{name}", tag = "vclusters", params(
    ("name" = inline(Name), Path), Expected, Key),
    responses((status = 200, body = Changed)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Place(name): Place,
    Params(expected): Params<Expected>,
    Key(key): Key,
) -> Answer<Changed> {
    let version = expected.expected_version;
    Ok(Json(
        vclusters::delete(api.core(), &caller, &name, version, key).await?,
    ))
}

/// Nodes belong to a vCluster, and serve it, from now on: all of them or none.
///
/// Each must be held by nothing and claimed by nobody. A node of another vCluster that somebody has
/// defined is moved only when `from` names that one. A refusal with the code `ownership_conflict` names
/// each node that cannot be had and why. For administrators of the whole cluster; kept in the audit.
#[utoipa::path(post, path = "/vclusters/{name}/nodes", tag = "vclusters",
    request_body = VclusterNodesRequest, params(("name" = inline(Name), Path), Key),
    responses((status = 200, body = VclusterNodes)))]
pub(super) async fn assign(
    State(api): State<Api>,
    caller: Caller,
    Place(name): Place,
    Key(key): Key,
    Input(request): Input<VclusterNodesRequest>,
) -> Answer<VclusterNodes> {
    Ok(Json(
        vclusters::assign(api.core(), &caller, &name, request, key).await?,
    ))
}
