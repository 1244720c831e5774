//! Join tokens.

use crate::http::{Caller, answer::Fail, extract::Input, ops::tokens, state::Api};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::{Problem, TokenCreated, TokenRequest};

/// A join token for new agents, quorum members or controls. Its text is told this once: only its
/// hash is kept. For administrators of the whole cluster.
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = TokenRequest, responses(
    (status = 201, body = TokenCreated), (status = "default", body = Problem)))]
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    Input(request): Input<TokenRequest>,
) -> Result<(StatusCode, Json<TokenCreated>), Fail> {
    let made = tokens::create(api.core(), &caller, api.authority(), request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}
