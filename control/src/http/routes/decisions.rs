//! What schedulers were told and what they decided.

use crate::http::{Caller, answer::Fail, extract::Params, ops::decisions, state::Api};
use axum::{body::Body, extract::State, http::header::CONTENT_TYPE, response::IntoResponse};
use futures::StreamExt as _;
use lattice_api::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Range {
    /// From which moment on: a time, a date, or how long ago (`2h`). What is told begins before it, with all that
    /// schedulers knew then; all that is kept when left out.
    since: Option<String>,
}

/// Everything that this control's schedulers were told and what they decided, a line of JSON each: enough to decide
/// it again elsewhere (`lattice replay verify`). A control keeps what it schedules itself, for a while. For operators
/// of the whole cluster.
#[utoipa::path(get, path = "/decisions", tag = "allocations", params(Range), responses(
    (status = 200, body = String, content_type = "application/x-ndjson"),
    (status = 404, body = Problem, description = "None of that time are kept.")))]
pub(super) async fn decided(
    State(api): State<Api>,
    caller: Caller,
    Params(range): Params<Range>,
) -> Result<impl IntoResponse + use<>, Fail> {
    let pieces = decisions::since(&api, &caller, range.since.as_deref())?;
    let stop = api.stop().clone().cancelled_owned();
    let body = Body::from_stream(pieces.take_until(stop));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body))
}
