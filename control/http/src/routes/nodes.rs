//! Node routes.

use super::Paging;
use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Key, Params, PathParameter},
    ops::{drains, node_comparison, nodes},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page, Problem,
    conformance::DiffView,
    inventory::InventoryView,
    node::{DrainRequest, DrainResult, NodeView, ReprobeResult, UndrainResult},
    schema::Name,
};
use lattice_conformance::Inventory;
use serde::Deserialize;
use utoipa::IntoParams;

/// List all nodes by name, a page at a time.
#[utoipa::path(get, path = "/nodes", tag = "nodes", params(Paging), responses(
    (status = 200, body = Page<NodeView>)))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(p): Params<Paging>,
) -> Answer<Page<NodeView>> {
    Ok(Json(nodes::list(
        &api,
        &caller,
        p.limit,
        p.cursor.as_deref(),
    )?))
}

/// Show a node.
///
/// For operators of the whole cluster the response includes its certificate, while the quorum answers.
#[utoipa::path(get, path = "/nodes/{id}", tag = "nodes", params(("id" = inline(Name), Path)), responses(
    (status = 200, body = NodeView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
) -> Answer<NodeView> {
    Ok(Json(nodes::show(&api, &caller, &id).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Freshness {
    /// Read again instead of returning the last reading. For operators, because it causes load on the node.
    #[serde(default)]
    pub(super) fresh: bool,
}

/// Show the complete inventory of a node.
///
/// The records of its agent are merged with the last readings of its BMC.
#[utoipa::path(get, path = "/nodes/{id}/inventory", tag = "nodes",
    params(("id" = inline(Name), Path), Freshness), responses(
    (status = 200, body = InventoryView)))]
pub(super) async fn inventory(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(p): Params<Freshness>,
) -> Answer<Inventory> {
    Ok(Json(nodes::inventory(&api, &caller, &id, p.fresh).await?))
}

/// Probe a node again.
///
/// For operators, because it causes load on the node.
///
/// The node publishes a difference after the second reading that shows it; the node history records the caller as the
/// cause.
#[utoipa::path(post, path = "/nodes/{id}/reprobe", tag = "nodes", params(("id" = inline(Name), Path)),
    responses((status = 200, body = ReprobeResult)))]
pub(super) async fn reprobe(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
) -> Answer<ReprobeResult> {
    Ok(Json(nodes::reprobe(&api, &caller, &id).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// Another node; a conformance group, by at least 8 digits of its digest; or `majority` for that of the node's
    /// cohort.
    with: Option<String>,
    /// The node's own state at a time: a time, a date, `yesterday`, or an age (`2d`).
    since: Option<String>,
}

/// Compare nodes and groups, key by key: two nodes, a node with the majority of its cohort, or a node with its earlier
/// state.
///
/// Give either `with` or `since`. With `with`, either side may be a conformance group, given by its digest. One of its
/// nodes represents it, and only the classes that define the group are compared.
#[utoipa::path(get, path = "/nodes/{id}/diff", tag = "nodes",
    params(("id" = inline(Name), Path), DiffQuery), responses(
    (status = 200, body = DiffView),
    (status = 409, body = Problem, description = "The cohort of the node is unknown or too small for a comparison.")))]
pub(super) async fn diff(
    State(api): State<Api>,
    _: Caller,
    PathParameter(id): PathParameter,
    Params(p): Params<DiffQuery>,
) -> Answer<DiffView> {
    let (with, since) = (p.with.as_deref(), p.since.as_deref());
    Ok(Json(node_comparison::diff(&api, &id, with, since).await?))
}

/// Drain a node.
///
/// The node receives no new jobs, and running jobs continue. For operators.
///
/// With `force_release` the node is also taken from the allocation that holds it, although its processes are not known
/// to be gone. The rank counts as lost, the reason is recorded in the audit, and the node stays drained by the caller.
#[utoipa::path(post, path = "/nodes/{id}/drain", tag = "nodes", params(("id" = inline(Name), Path), Key),
    request_body = DrainRequest, responses(
    (status = 200, body = DrainResult)))]
pub(super) async fn drain(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
    Input(request): Input<DrainRequest>,
) -> Answer<DrainResult> {
    Ok(Json(
        drains::drain(api.core(), &caller, &id, request, key).await?,
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GateQuery {
    /// Skip the node's health gate. For administrators of the whole cluster; recorded in the audit.
    #[serde(default)]
    skip_gate: bool,
}

/// Undrain a node.
///
/// Clears the caller's own drain reason, and that of a failed site hook; reasons of other owners stay. If all reasons
/// belong to other owners, the request is rejected. For operators.
///
/// If no reason remains, the node's health gate is checked first. If the gate fails, the response is 409 and the node
/// stays drained. For a node that is not drained, nothing is checked or cleared.
#[utoipa::path(post, path = "/nodes/{id}/undrain", tag = "nodes",
    params(("id" = inline(Name), Path), GateQuery, Key),
    responses((status = 200, body = UndrainResult)))]
pub(super) async fn undrain(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(gate): Params<GateQuery>,
    Key(key): Key,
) -> Answer<UndrainResult> {
    Ok(Json(
        drains::undrain(&api, &caller, &id, gate.skip_gate, key).await?,
    ))
}
