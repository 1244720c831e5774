//! What is wrong with a node's hardware.

use super::nodes::Freshness;
use crate::http::{
    Caller,
    answer::Answer,
    extract::{Input, Params, Place},
    ops::health,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    health::{ClearRequest, NodeHealthView},
    schema::Name,
};

/// What a node's health checks say: each reason with the part, the evidence, since when, and what
/// helps. Asked of the node itself.
#[utoipa::path(get, path = "/nodes/{id}/health", tag = "nodes",
    params(("id" = inline(Name), Path), Freshness), responses(
    (status = 200, body = NodeHealthView)))]
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(p): Params<Freshness>,
) -> Answer<NodeHealthView> {
    Ok(Json(health::show(api.core(), &caller, &id, p.fresh).await?))
}

/// Somebody repaired it: ends the reasons of one code. What is still wrong comes back with the next
/// pass. For operators; the agent writes down who did it.
#[utoipa::path(post, path = "/nodes/{id}/health/clear", tag = "nodes",
    params(("id" = inline(Name), Path)), request_body = ClearRequest, responses(
    (status = 200, body = NodeHealthView)))]
pub(super) async fn clear(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Input(request): Input<ClearRequest>,
) -> Answer<NodeHealthView> {
    Ok(Json(
        health::clear(api.core(), &caller, &id, request).await?,
    ))
}
