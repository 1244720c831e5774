//! Service routes: status, health, readiness and metrics.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::CallerWithoutView,
    metrics,
    ops::status,
    state::Api,
};
use axum::{Json, extract::State, http::header::CONTENT_TYPE, response::IntoResponse};
use lattice_api::{Problem, status::StatusView};

/// Show the cluster status, and the principal and roles of the caller.
#[utoipa::path(get, path = "/status", tag = "service", responses(
    (status = 200, body = StatusView)))]
pub(super) async fn status(State(api): State<Api>, caller: Caller) -> Answer<StatusView> {
    Ok(Json(status::status(api.core(), &caller).await?))
}

/// Check that the process answers.
///
/// Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "service", security(()),
    responses((status = 200, body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Check that the quorum is reached and a view is available.
///
/// Needs no token.
#[utoipa::path(get, path = "/readyz", tag = "service", security(()), responses(
    (status = 200, body = String),
    (status = 503, body = Problem, description = "No update from the quorum, or no state read yet.")))]
pub(super) async fn readyz(State(api): State<Api>) -> Result<&'static str, ProblemResponse> {
    status::ready(api.core())?;
    Ok("ready\n")
}

/// Return metrics in the Prometheus exposition format.
///
/// Project names are included for operators and tenant administrators only. While this control has no view of the
/// cluster, `lattice_view_available` is 0 and the series that derive from the view are absent.
#[utoipa::path(get, path = "/metrics", tag = "service", responses(
    (status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(
    State(api): State<Api>,
    CallerWithoutView(caller): CallerWithoutView,
) -> impl IntoResponse {
    let text = metrics::render(&api, &caller);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
