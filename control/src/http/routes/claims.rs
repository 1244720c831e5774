//! Nodes that belong to one user.

use crate::http::{
    Caller,
    answer::Answer,
    extract::{Input, Key, Place},
    ops::claims,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::claim::{ClaimRequest, Claimed, ReleaseRequest, Released};

/// Makes nodes the caller's own for sensitive work, until they are released.
///
/// `id` is a node or a hostlist (`gpu[001-004]`): all of them or none. Each must be ready, nobody's and
/// held by nothing, fit the project's limits and the sensitive pool, and conform to its baselines by
/// its own signed word. A refusal with the code `ownership_conflict` names each node that cannot be
/// had and whose it is.
#[utoipa::path(post, path = "/nodes/{id}/claim", tag = "nodes", params(
    ("id" = String, Path, description = "Nodes, as a hostlist.", example = "gpu[001-004]"), Key),
    request_body = ClaimRequest, responses((status = 200, body = Claimed)))]
pub(super) async fn claim(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
    Input(request): Input<ClaimRequest>,
) -> Answer<Claimed> {
    let claimed = claims::claim(api.core(), &caller, &id, request, key).await?;
    Ok(Json(claimed))
}

/// Gives claimed nodes back. Each is wiped, and free once that is confirmed.
///
/// `id` is a node or a hostlist: all of them or none. For who claimed them, and for administrators,
/// who say why. While something runs on one of them none is released.
#[utoipa::path(post, path = "/nodes/{id}/release", tag = "nodes", params(
    ("id" = String, Path, description = "Nodes, as a hostlist.", example = "gpu[001-004]"), Key),
    request_body = ReleaseRequest, responses((status = 200, body = Released)))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
    Input(request): Input<ReleaseRequest>,
) -> Answer<Released> {
    let released = claims::release(api.core(), &caller, &id, request, key).await?;
    Ok(Json(released))
}
