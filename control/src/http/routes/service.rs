//! About the service itself.

use crate::http::{
    Caller,
    answer::{Answer, Fail},
    meter,
    ops::status,
    state::Api,
};
use axum::{Json, extract::State, http::header::CONTENT_TYPE, response::IntoResponse};
use lattice_api::{Problem, status::StatusView};

/// The cluster in numbers, and who asks.
#[utoipa::path(get, path = "/status", tag = "service", responses(
    (status = 200, body = StatusView)))]
pub(super) async fn status(State(api): State<Api>, caller: Caller) -> Answer<StatusView> {
    Ok(Json(status::status(api.core(), &caller).await?))
}

/// The process answers. Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "service", security(()),
    responses((status = 200, body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The quorum is heard and there is a view to answer from. Needs no token.
#[utoipa::path(get, path = "/readyz", tag = "service", security(()), responses(
    (status = 200, body = String),
    (status = 503, body = Problem, description = "The quorum is not heard, or nothing is read yet.")))]
pub(super) async fn readyz(State(api): State<Api>) -> Result<&'static str, Fail> {
    status::ready(api.core())?;
    Ok("ready\n")
}

/// Numbers in the exposition format of Prometheus. Projects are named to operators only.
#[utoipa::path(get, path = "/metrics", tag = "service", responses(
    (status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(api): State<Api>, caller: Caller) -> impl IntoResponse {
    let text = meter::render(&api, &caller);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
