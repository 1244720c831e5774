//! The quorum itself.

use crate::http::{
    Caller,
    answer::{Answer, Fail},
    extract::{Input, Key, Params, Place},
    ops::quorum,
    state::Api,
};
use axum::{Json, body::Body, extract::State, http::header::CONTENT_TYPE, response::IntoResponse};
use futures::StreamExt;
use lattice_api::{
    Problem,
    quorum::{AddMemberRequest, QuorumStep, QuorumView, StepDownRequest},
};
use serde::Deserialize;
use utoipa::IntoParams;

/// The `Idempotency-Key` of a change that takes many calls.
#[derive(IntoParams)]
#[into_params(names("Idempotency-Key"), parameter_in = Header)]
#[expect(
    dead_code,
    reason = "it is read as any other key; its document is another"
)]
struct Once(
    /// What is done under one key is written down once.
    #[param(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    Option<String>,
);

/// Who the members are, who leads, how far each is, and what somebody should look at. Answered also
/// when there is no leader. For operators.
#[utoipa::path(get, path = "/quorum", tag = "quorum", responses(
    (status = 200, body = QuorumView)))]
pub(super) async fn view(State(api): State<Api>, caller: Caller) -> Answer<QuorumView> {
    Ok(Json(quorum::view(api.core(), &caller).await?))
}

/// One step of adding a member, some seconds at most: a learner first, a voter once it has
/// everything. Repeat it until it is done. For administrators.
#[utoipa::path(post, path = "/quorum/members", tag = "quorum", params(Once),
    request_body = AddMemberRequest, responses(
    (status = 200, body = QuorumStep)))]
pub(super) async fn add(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<AddMemberRequest>,
) -> Answer<QuorumStep> {
    Ok(Json(quorum::add(api.core(), &caller, request, key).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Removal {
    /// Why; it is written down.
    #[serde(default)]
    #[param(required = true, min_length = 1, max_length = 512, pattern = "[^ ]")]
    reason: String,
    /// Even when a majority of the rest does not answer: then nothing can be changed until it does.
    #[serde(default)]
    force: bool,
}

/// One step of removing a member; the leader hands over first. Repeat it until it is done. Refused
/// while a majority of the rest does not answer. For administrators.
#[utoipa::path(delete, path = "/quorum/members/{id}", tag = "quorum", params(
    ("id" = u64, Path, description = "Its number."), Removal, Once),
    responses((status = 200, body = QuorumStep)))]
pub(super) async fn remove(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(r): Params<Removal>,
    Key(key): Key,
) -> Answer<QuorumStep> {
    let Ok(id) = id.parse() else {
        return Err(Problem::field("id", format!("{id:?} is not a member's number")).into());
    };
    let step = quorum::remove(api.core(), &caller, id, r.force, &r.reason, key).await?;
    Ok(Json(step))
}

/// Lets another member lead, with a pause of one election. For administrators.
#[utoipa::path(post, path = "/quorum/step-down", tag = "quorum", params(Once),
    request_body = StepDownRequest, responses(
    (status = 200, body = QuorumStep)))]
pub(super) async fn step_down(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<StepDownRequest>,
) -> Answer<QuorumStep> {
    let step = quorum::step_down(api.core(), &caller, request, key).await?;
    Ok(Json(step))
}

/// A backup of the whole state at one revision, as the bytes of a file that says itself whether it
/// is whole. Everything that was acknowledged before the request is in it; no key is. For
/// administrators.
#[utoipa::path(post, path = "/quorum/backup", tag = "quorum", params(Once),
    responses((status = 200, body = String, content_type = "application/octet-stream")))]
pub(super) async fn backup(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
) -> Result<impl IntoResponse + use<>, Fail> {
    let pieces = quorum::backup(&api, &caller, key).await?;
    let stop = api.stop().clone().cancelled_owned();
    let body = Body::from_stream(pieces.take_until(stop));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body))
}
