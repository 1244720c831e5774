//! Quorum routes. The members answer them, so they need no view of this control: with them an operator finds and
//! repairs what keeps the view away.

use crate::{
    answer::{Answer, ProblemResponse},
    extract::{CallerWithoutView, Input, Key, Params, PathParameter},
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

/// `Idempotency-Key` of a change that takes several calls.
#[derive(IntoParams)]
#[into_params(names("Idempotency-Key"), parameter_in = Header)]
#[expect(
    dead_code,
    reason = "the extractor `Key` reads the header; this type only documents it"
)]
struct Once(
    /// Idempotency key. Calls with the same key are recorded once.
    #[param(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    Option<String>,
);

/// Show the quorum: members, leader, replication state, and conditions that need attention.
///
/// Answered also without a leader, and by a control without a view. For operators of the whole cluster.
#[utoipa::path(get, path = "/quorum", tag = "quorum", responses(
    (status = 200, body = QuorumView)))]
pub(super) async fn view(
    State(api): State<Api>,
    CallerWithoutView(caller): CallerWithoutView,
) -> Answer<QuorumView> {
    Ok(Json(quorum::view(api.core(), &caller).await?))
}

/// Add a quorum member.
///
/// Each call makes one step of at most some seconds: first the member becomes a learner, then a voter once it has
/// caught up. Repeat the call until the member is a voter. For administrators of the whole cluster.
#[utoipa::path(post, path = "/quorum/members", tag = "quorum", params(Once),
    request_body = AddMemberRequest, responses(
    (status = 200, body = QuorumStep)))]
pub(super) async fn add(
    State(api): State<Api>,
    CallerWithoutView(caller): CallerWithoutView,
    Key(key): Key,
    Input(request): Input<AddMemberRequest>,
) -> Answer<QuorumStep> {
    Ok(Json(quorum::add(api.core(), &caller, request, key).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Removal {
    /// Reason for the removal; recorded in the audit.
    #[serde(default)]
    #[param(required = true, min_length = 1, max_length = 512, pattern = "[^ ]")]
    reason: String,
    /// Remove the member even if a majority of the remaining members does not answer. Until that majority answers
    /// again, no change is possible.
    #[serde(default)]
    force: bool,
}

/// Remove a quorum member.
///
/// Each call makes one step; a leader hands over first. Repeat the call until the member is removed. Rejected without
/// `force` while a majority of the other members does not answer. For administrators of the whole cluster.
#[utoipa::path(delete, path = "/quorum/members/{id}", tag = "quorum", params(
    ("id" = u64, Path, description = "Member number."), Removal, Once),
    responses((status = 200, body = QuorumStep)))]
pub(super) async fn remove(
    State(api): State<Api>,
    CallerWithoutView(caller): CallerWithoutView,
    PathParameter(id): PathParameter,
    Params(r): Params<Removal>,
    Key(key): Key,
) -> Answer<QuorumStep> {
    let Ok(id) = id.parse() else {
        return Err(Problem::field("id", format!("{id:?} is not a member's number")).into());
    };
    let step = quorum::remove(api.core(), &caller, id, r.force, &r.reason, key).await?;
    Ok(Json(step))
}

/// Transfer leadership to another member.
///
/// The quorum pauses for one election. For administrators of the whole cluster.
#[utoipa::path(post, path = "/quorum/step-down", tag = "quorum", params(Once),
    request_body = StepDownRequest, responses(
    (status = 200, body = QuorumStep)))]
pub(super) async fn step_down(
    State(api): State<Api>,
    CallerWithoutView(caller): CallerWithoutView,
    Key(key): Key,
    Input(request): Input<StepDownRequest>,
) -> Answer<QuorumStep> {
    let step = quorum::step_down(api.core(), &caller, request, key).await?;
    Ok(Json(step))
}

/// Create a backup of the whole state at one revision.
///
/// The file format shows whether a backup is complete. The backup contains everything acknowledged before the request,
/// and no keys. For administrators of the whole cluster.
#[utoipa::path(post, path = "/quorum/backup", tag = "quorum", params(Once),
    responses((status = 200, body = String, content_type = "application/octet-stream")))]
pub(super) async fn backup(
    State(api): State<Api>,
    CallerWithoutView(caller): CallerWithoutView,
    Key(key): Key,
) -> Result<impl IntoResponse + use<>, ProblemResponse> {
    let pieces = quorum::backup(&api, &caller, key).await?;
    let stop = api.stop().clone().cancelled_owned();
    let body = Body::from_stream(pieces.take_until(stop));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body))
}
