//! Node health routes.

use super::nodes::Freshness;
use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Params, PathParameter},
    ops::health,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    health::{ClearRequest, NodeHealthView},
    schema::Name,
};

/// Show the health of a node: the faults that its health checks and its BMC report.
///
/// Each fault has its component, evidence, start time and recommended action. The agent of the node is queried during
/// the request, and returns the result of its last pass, or of a new one with `fresh`. For a node that does not answer,
/// the last known faults are returned.
#[utoipa::path(get, path = "/nodes/{id}/health", tag = "nodes",
    params(("id" = inline(Name), Path), Freshness), responses(
    (status = 200, body = NodeHealthView)))]
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(p): Params<Freshness>,
) -> Answer<NodeHealthView> {
    Ok(Json(health::show(&api, &caller, &id, p.fresh).await?))
}

/// Clear the health reasons of one code after a repair.
///
/// A persisting fault returns with the next pass. For operators; the agent records the caller.
#[utoipa::path(post, path = "/nodes/{id}/health/clear", tag = "nodes",
    params(("id" = inline(Name), Path)), request_body = ClearRequest, responses(
    (status = 200, body = NodeHealthView)))]
pub(super) async fn clear(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Input(request): Input<ClearRequest>,
) -> Answer<NodeHealthView> {
    Ok(Json(health::clear(&api, &caller, &id, request).await?))
}
