//! Nodes.

use super::Paging;
use crate::http::{
    Caller,
    answer::Answer,
    extract::{Input, Key, Params, Place},
    ops::{compared, drains, nodes},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page, Problem,
    conformance::DiffView,
    inventory::InventoryView,
    node::{DrainRequest, Drained, NodeView, Reprobed, Undrained},
    schema::Name,
};
use lattice_hwprobe::Inventory;
use serde::Deserialize;
use utoipa::IntoParams;

/// Every node by name, a page at a time.
#[utoipa::path(get, path = "/nodes", tag = "nodes", params(Paging), responses(
    (status = 200, body = Page<NodeView>)))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(p): Params<Paging>,
) -> Answer<Page<NodeView>> {
    Ok(Json(nodes::list(
        api.core(),
        &caller,
        p.limit,
        p.cursor.as_deref(),
    )?))
}

/// One node. Operators are told of its certificate too, while the quorum answers.
#[utoipa::path(get, path = "/nodes/{id}", tag = "nodes", params(("id" = inline(Name), Path)), responses(
    (status = 200, body = NodeView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
) -> Answer<NodeView> {
    Ok(Json(nodes::show(api.core(), &caller, &id).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Freshness {
    /// Look again instead of answering with the last reading. For operators: it is work for the
    /// node.
    #[serde(default)]
    pub(super) fresh: bool,
}

/// Everything its probes read, as the node tells it: the document is its agent's, handed on as it came.
#[utoipa::path(get, path = "/nodes/{id}/inventory", tag = "nodes",
    params(("id" = inline(Name), Path), Freshness), responses(
    (status = 200, body = InventoryView)))]
pub(super) async fn inventory(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(p): Params<Freshness>,
) -> Answer<Inventory> {
    Ok(Json(
        nodes::inventory(api.core(), &caller, &id, p.fresh).await?,
    ))
}

/// Probes a node anew. For operators: it is work for the node.
///
/// What differs from what the node announces is announced once it was read twice; the change is put
/// down to the caller in the node's history.
#[utoipa::path(post, path = "/nodes/{id}/reprobe", tag = "nodes", params(("id" = inline(Name), Path)),
    responses((status = 200, body = Reprobed)))]
pub(super) async fn reprobe(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
) -> Answer<Reprobed> {
    Ok(Json(nodes::reprobe(api.core(), &caller, &id).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct With {
    /// Another node; a conformance group, by 8 digits of its digest or more; or `majority` for that of
    /// its cohort.
    with: Option<String>,
    /// The node itself at a moment: a time, a date, `yesterday`, or how long ago (`2d`).
    since: Option<String>,
}

/// Two nodes, a node and the majority of its cohort, or a node as it was and is, key by key. Give
/// either `with` or `since`. With `with`, the digest of a conformance group may stand in either place:
/// one of its nodes stands for it, and is compared in the classes that it is a group by.
#[utoipa::path(get, path = "/nodes/{id}/diff", tag = "nodes",
    params(("id" = inline(Name), Path), With), responses(
    (status = 200, body = DiffView),
    (status = 409, body = Problem, description = "It is in no cohort, or not known well enough, to be compared.")))]
pub(super) async fn diff(
    State(api): State<Api>,
    _: Caller,
    Place(id): Place,
    Params(p): Params<With>,
) -> Answer<DiffView> {
    let (with, since) = (p.with.as_deref(), p.since.as_deref());
    Ok(Json(compared::diff(api.core(), &id, with, since).await?))
}

/// Gives it no new work; what runs there runs on. For operators.
///
/// With `force_release` it is also taken from the allocation that holds it, although nobody knows
/// that its processes are gone: the rank counts as lost, the reason is kept in the audit, and the
/// node stays drained by who did it.
#[utoipa::path(post, path = "/nodes/{id}/drain", tag = "nodes", params(("id" = inline(Name), Path), Key),
    request_body = DrainRequest, responses(
    (status = 200, body = Drained)))]
pub(super) async fn drain(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
    Input(request): Input<DrainRequest>,
) -> Answer<Drained> {
    Ok(Json(
        drains::drain(api.core(), &caller, &id, request, key).await?,
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Gate {
    /// Without asking the node's health gate. For administrators; kept in the audit.
    #[serde(default)]
    skip_gate: bool,
}

/// Clears the caller's own drain reason; those of others stay. For operators.
///
/// Where none is left the node's health gate is asked first; when it does not let the node back,
/// the answer is 409 and the node stays drained. Of a node that is not drained nothing is asked and
/// nothing cleared.
#[utoipa::path(post, path = "/nodes/{id}/undrain", tag = "nodes",
    params(("id" = inline(Name), Path), Gate, Key),
    responses((status = 200, body = Undrained)))]
pub(super) async fn undrain(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(gate): Params<Gate>,
    Key(key): Key,
) -> Answer<Undrained> {
    Ok(Json(
        drains::undrain(api.core(), &caller, &id, gate.skip_gate, key).await?,
    ))
}
