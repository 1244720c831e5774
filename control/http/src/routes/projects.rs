//! Project routes and limits.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{Input, Key, Params, PathParameter},
    ops::projects,
    state::Api,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use lattice_api::{
    Page, Problem,
    project::{ChangeResult, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView},
    schema::ProjectPath,
    tenant::HeadroomView,
};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// Only this project and its descendants.
    below: Option<String>,
    /// Items per page, 1 to 5000; default 200.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the project tree, parents before children, a page at a time.
#[utoipa::path(get, path = "/projects", tag = "projects", params(Part), responses(
    (status = 200, body = Page<ProjectView>),
    (status = 404, body = Problem, description = "No such parent project.")))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(p): Params<Part>,
) -> Answer<Page<ProjectView>> {
    let (below, cursor) = (p.below.as_deref(), p.cursor.as_deref());
    Ok(Json(projects::list(
        api.core(),
        &caller,
        below,
        p.limit,
        cursor,
    )?))
}

/// Create a project below its parent, or a tenant.
#[utoipa::path(post, path = "/projects", tag = "projects", request_body = ProjectRequest,
    params(Key),
    responses((status = 201, body = ProjectView)))]
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<ProjectRequest>,
) -> Result<(StatusCode, Json<ProjectView>), ProblemResponse> {
    let made = projects::create(api.core(), &caller, request, key).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Show a project or tenant.
#[utoipa::path(get, path = "/projects/{*path}", tag = "projects", params(("path" = inline(ProjectPath), Path)),
    responses((status = 200, body = ProjectView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(path): PathParameter,
) -> Result<Response, ProblemResponse> {
    match projects::headroom_project(&path) {
        Some(path) => Ok(headroom(State(api), caller, PathParameter(path.to_owned()))
            .await?
            .into_response()),
        None => Ok(Json(projects::get(api.core(), &caller, &path)?).into_response()),
    }
}

/// Show the headroom of a project under its limits, with every level that applies.
// The router does not support a wildcard followed by a fixed segment, so the handler above calls this one.
#[utoipa::path(get, path = "/projects/{path}/headroom", tag = "projects",
    params(("path" = inline(ProjectPath), Path)), responses(
    (status = 200, body = HeadroomView)))]
pub(super) async fn headroom(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(path): PathParameter,
) -> Answer<HeadroomView> {
    Ok(Json(projects::headroom(api.core(), &caller, &path).await?))
}

/// Change the limits of a project.
///
/// A field left out stays; `null` removes the limit.
#[utoipa::path(put, path = "/projects/{*path}", tag = "projects", params(("path" = inline(ProjectPath), Path), Key),
    request_body = ProjectUpdate, responses(
    (status = 200, body = ProjectView)))]
pub(super) async fn update(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(path): PathParameter,
    Key(key): Key,
    Input(update): Input<ProjectUpdate>,
) -> Answer<ProjectView> {
    Ok(Json(
        projects::update(api.core(), &caller, &path, update, key).await?,
    ))
}

/// Delete an empty project.
#[utoipa::path(delete, path = "/projects/{*path}", tag = "projects",
    params(("path" = inline(ProjectPath), Path), Key), responses(
    (status = 200, body = ChangeResult)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(path): PathParameter,
    Key(key): Key,
) -> Answer<ChangeResult> {
    Ok(Json(
        projects::delete(api.core(), &caller, &path, key).await?,
    ))
}

/// Change several limits, all or none, checked on the resulting tree.
#[utoipa::path(put, path = "/limits", tag = "projects", request_body = LimitsRequest,
    params(Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn set_limits(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<LimitsRequest>,
) -> Answer<ChangeResult> {
    Ok(Json(
        projects::set_limits(api.core(), &caller, request, key).await?,
    ))
}
