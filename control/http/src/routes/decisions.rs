//! Routes of recorded scheduler inputs and decisions.

use crate::Caller;
use crate::{answer::ProblemResponse, extract::Params, ops::decisions, state::Api};
use axum::{body::Body, extract::State, http::header::CONTENT_TYPE, response::IntoResponse};
use futures::StreamExt as _;
use lattice_api::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Range {
    /// Start of the range: a time, a date, or an age (`2h`). The output begins with the complete inputs of the
    /// schedulers at that time. Default: everything that is kept.
    since: Option<String>,
}

/// Stream the recorded inputs and decisions of this control's schedulers, one JSON line each.
///
/// The output suffices to repeat the decisions elsewhere (`lattice replay verify`). A control keeps the records of its
/// own schedulers for a limited time. For operators of the whole cluster.
#[utoipa::path(get, path = "/decisions", tag = "allocations", params(Range), responses(
    (status = 200, body = String, content_type = "application/x-ndjson"),
    (status = 404, body = Problem, description = "No decisions of that time are stored.")))]
pub(super) async fn decided(
    State(api): State<Api>,
    caller: Caller,
    Params(range): Params<Range>,
) -> Result<impl IntoResponse + use<>, ProblemResponse> {
    let pieces = decisions::since(&api, &caller, range.since.as_deref())?;
    let stop = api.stop().clone().cancelled_owned();
    let body = Body::from_stream(pieces.take_until(stop));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body))
}
