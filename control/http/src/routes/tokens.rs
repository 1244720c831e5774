//! Join token routes.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{Input, Key, PathParameter},
    ops::tokens,
    state::Api,
};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::{
    Page, TokenCreated, TokenRequest, project::ChangeResult, schema::Digits, token::TokenView,
};

/// Create a join token for new agents, quorum members or controls.
///
/// Only this response contains the token text; the cluster stores only its hash. For administrators of the whole
/// cluster.
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = TokenRequest, responses(
    (status = 201, body = TokenCreated)))]
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    Input(request): Input<TokenRequest>,
) -> Result<(StatusCode, Json<TokenCreated>), ProblemResponse> {
    let made = tokens::create(api.core(), &caller, api.authority(), request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// List usable join tokens, the first to expire first.
///
/// For administrators of the whole cluster.
#[utoipa::path(get, path = "/tokens", tag = "tokens", responses(
    (status = 200, body = Page<TokenView>)))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Answer<Page<TokenView>> {
    Ok(Json(Page::single(tokens::list(api.core(), &caller).await?)))
}

/// Revoke a join token.
///
/// Members that enrolled with the token stay enrolled. For administrators of the whole cluster.
#[utoipa::path(delete, path = "/tokens/{id}", tag = "tokens", params(
    ("id" = inline(Digits), Path, description = "First 8 to 64 characters of the token's hash."),
    Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<ChangeResult> {
    Ok(Json(tokens::revoke(api.core(), &caller, &id, key).await?))
}
