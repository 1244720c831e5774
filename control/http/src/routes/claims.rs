//! Node claim routes.

use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Key, PathParameter},
    ops::claims,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::claim::{ClaimRequest, ClaimResult, ReleaseRequest, ReleaseResult};

/// Claim nodes for the caller's sensitive jobs, until they are released.
///
/// `id` is a node or a hostlist (`gpu[001-004]`), all or none. Each node must be ready, unclaimed and not held, and fit
/// the project's limits and the sensitive pool. It must conform to its baselines by its own signed attestation. A
/// refusal with the code `ownership_conflict` names each unavailable node and its owner.
#[utoipa::path(post, path = "/nodes/{id}/claim", tag = "nodes", params(
    ("id" = String, Path, description = "Nodes, as a hostlist.", example = "gpu[001-004]"), Key),
    request_body = ClaimRequest, responses((status = 200, body = ClaimResult)))]
pub(super) async fn claim(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
    Input(request): Input<ClaimRequest>,
) -> Answer<ClaimResult> {
    let claimed = claims::claim(api.core(), &caller, &id, request, key).await?;
    Ok(Json(claimed))
}

/// Release claimed nodes.
///
/// Each node is wiped, and is free once the wipe is confirmed.
///
/// `id` is a node or a hostlist, all or none. For the owner of the claim, and for administrators, which must give a
/// reason. While an allocation holds one of the nodes, none is released. With `wipe`, an administrator of the whole
/// cluster repeats or waives failed wipes instead, one node after the other.
#[utoipa::path(post, path = "/nodes/{id}/release", tag = "nodes", params(
    ("id" = String, Path, description = "Nodes, as a hostlist.", example = "gpu[001-004]"), Key),
    request_body = ReleaseRequest, responses((status = 200, body = ReleaseResult)))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
    Input(request): Input<ReleaseRequest>,
) -> Answer<ReleaseResult> {
    let released = claims::release(api.core(), &caller, &id, request, key).await?;
    Ok(Json(released))
}
