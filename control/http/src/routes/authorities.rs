//! Certificate authority routes.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{Input, Key, Params, PathParameter},
    ops::authorities,
    state::Api,
};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::{
    Page,
    authority::{AuthorityRequest, AuthorityView},
    project::ChangeResult,
    schema::Digits,
};
use serde::Deserialize;
use utoipa::IntoParams;

/// List the trusted certificate authorities, in the order in which they were added.
///
/// For operators of the whole cluster.
#[utoipa::path(get, path = "/authorities", tag = "authorities", responses(
    (status = 200, body = Page<AuthorityView>)))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Answer<Page<AuthorityView>> {
    let all = authorities::list(api.core(), &caller).await?;
    Ok(Json(Page::single(all)))
}

/// Trust an additional certificate authority.
///
/// The issuing authority does not change. For administrators of the whole cluster.
#[utoipa::path(post, path = "/authorities", tag = "authorities", params(Key),
    request_body = AuthorityRequest, responses(
    (status = 201, body = ChangeResult)))]
pub(super) async fn add(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<AuthorityRequest>,
) -> Result<(StatusCode, Json<ChangeResult>), ProblemResponse> {
    let made = authorities::add(api.core(), &caller, request, key).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Promote a trusted certificate authority to the issuing one.
///
/// All members then renew their certificates. For administrators of the whole cluster.
#[utoipa::path(post, path = "/authorities/{pin}/promote", tag = "authorities", params(
    ("pin" = inline(Digits), Path, description = "Pin of the authority, or at least its first 8 characters."),
    Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn promote(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(pin): PathParameter,
    Key(key): Key,
) -> Answer<ChangeResult> {
    Ok(Json(
        authorities::promote(api.core(), &caller, &pin, key).await?,
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ForceQuery {
    /// Retire the authority although its certificates are still in use; their members must enrol again.
    #[serde(default)]
    force: bool,
}

/// Retire a certificate authority.
///
/// Rejected for the issuing authority, and, without `force`, while its certificates are in use. For administrators of
/// the whole cluster.
#[utoipa::path(delete, path = "/authorities/{pin}", tag = "authorities", params(
    ("pin" = inline(Digits), Path, description = "Pin of the authority, or at least its first 8 characters."),
    ForceQuery, Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn retire(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(pin): PathParameter,
    Params(f): Params<ForceQuery>,
    Key(key): Key,
) -> Answer<ChangeResult> {
    Ok(Json(
        authorities::retire(api.core(), &caller, &pin, f.force, key).await?,
    ))
}
