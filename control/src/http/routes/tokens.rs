//! Join tokens.

use crate::http::{
    Caller,
    answer::{Answer, Fail},
    extract::{Input, Key, Place},
    ops::tokens,
    state::Api,
};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::{
    Page, TokenCreated, TokenRequest, project::Changed, schema::Digits, token::TokenView,
};

/// A join token for new agents, quorum members or controls. Its text is told this once: only its
/// hash is kept. For administrators of the whole cluster.
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = TokenRequest, responses(
    (status = 201, body = TokenCreated)))]
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    Input(request): Input<TokenRequest>,
) -> Result<(StatusCode, Json<TokenCreated>), Fail> {
    let made = tokens::create(api.core(), &caller, api.authority(), request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Join tokens that can still be used, the first to end first. For administrators.
#[utoipa::path(get, path = "/tokens", tag = "tokens", responses(
    (status = 200, body = Page<TokenView>)))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Answer<Page<TokenView>> {
    Ok(Json(Page::whole(tokens::list(api.core(), &caller).await?)))
}

/// Withdraws a join token. Who enrolled with it stays. For administrators.
#[utoipa::path(delete, path = "/tokens/{id}", tag = "tokens", params(
    ("id" = inline(Digits), Path, description = "The first 8 to 64 characters of its hash."),
    Key),
    responses((status = 200, body = Changed)))]
pub(super) async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
) -> Answer<Changed> {
    Ok(Json(tokens::revoke(api.core(), &caller, &id, key).await?))
}
