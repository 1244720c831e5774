//! REST routes. The comment of each handler documents its route; `/openapi.json` is generated from these comments.

mod accounting;
mod allocations;
mod audit;
mod authorities;
mod baselines;
mod certificates;
mod claims;
mod conformance;
mod dags;
mod decisions;
mod document;
mod events;
mod health;
mod history;
mod nodes;
pub(super) mod page;
mod projects;
mod quorum;
mod reservations;
mod service;
mod tenants;
mod tokens;
mod usage;
mod vclusters;

use super::{answer::method_not_allowed, ops::projects::headroom_project, state::Api};
use axum::{
    Router,
    extract::Request,
    http::{Method, header::ALLOW},
    middleware::Next,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::OpenApi};
use utoipa_axum::{router::OpenApiRouter, routes};

/// Paging parameters of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Paging {
    /// Items per page, 1 to 5000; default 200.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Expected version of an object to delete.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ExpectedVersion {
    /// Expected current version; the request is rejected if the version differs.
    expected_version: Option<u32>,
}

/// All routes with their documentation.
fn documented() -> OpenApiRouter<Api> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(service::status))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::inventory))
        .routes(routes!(nodes::diff))
        .routes(routes!(nodes::reprobe))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(claims::claim))
        .routes(routes!(claims::release))
        .routes(routes!(health::show))
        .routes(routes!(health::clear))
        .routes(routes!(history::of_node))
        .routes(routes!(history::changes))
        .routes(routes!(conformance::groups))
        .routes(routes!(conformance::drift))
        .routes(routes!(baselines::list))
        .routes(routes!(baselines::get, baselines::set, baselines::delete))
        .routes(routes!(baselines::diff))
        .routes(routes!(baselines::brake))
        .routes(routes!(baselines::release))
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::get, projects::update, projects::delete))
        .routes(routes!(projects::set_limits))
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::get, tenants::update, tenants::delete))
        .routes(routes!(accounting::status))
        .routes(routes!(accounting::reconcile))
        .routes(routes!(accounting::hook))
        .routes(routes!(usage::tenant))
        .routes(routes!(usage::user))
        .routes(routes!(tenants::limits, tenants::set_limits))
        .routes(routes!(tenants::set_policy))
        .routes(routes!(vclusters::list))
        .routes(routes!(vclusters::get, vclusters::set, vclusters::delete))
        .routes(routes!(vclusters::assign))
        .routes(routes!(allocations::list, allocations::submit))
        .routes(routes!(allocations::get, allocations::cancel))
        .routes(routes!(allocations::hold))
        .routes(routes!(allocations::release))
        .routes(routes!(allocations::requeue))
        .routes(routes!(allocations::extend))
        .routes(routes!(allocations::checkpoint))
        .routes(routes!(allocations::suspend))
        .routes(routes!(allocations::resume))
        .routes(routes!(allocations::explanation))
        .routes(routes!(allocations::logs))
        .routes(routes!(dags::list, dags::submit))
        .routes(routes!(dags::get, dags::cancel))
        .routes(routes!(dags::graph))
        .routes(routes!(decisions::decided))
        .routes(routes!(reservations::list))
        .routes(routes!(
            reservations::get,
            reservations::set,
            reservations::delete
        ))
        .routes(routes!(events::events))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(quorum::view))
        .routes(routes!(quorum::add))
        .routes(routes!(quorum::remove))
        .routes(routes!(quorum::step_down))
        .routes(routes!(quorum::backup))
        .routes(routes!(certificates::list))
        .routes(routes!(certificates::revoke))
        .routes(routes!(authorities::list, authorities::add))
        .routes(routes!(authorities::promote))
        .routes(routes!(authorities::retire))
        .routes(routes!(audit::query))
        .routes(routes!(audit::sign));
    OpenApiRouter::with_openapi(document::base_document())
        .nest("/api/v1", v1)
        .routes(routes!(service::healthz))
        .routes(routes!(service::readyz))
        .routes(routes!(service::metrics))
}

/// OpenAPI document of all REST routes.
pub fn openapi() -> OpenApi {
    let (_, document) = documented().split_for_parts();
    document::complete_document(document)
}

/// Restricts the headroom path of a project to GET and HEAD, although it shares a route with projects, which accept
/// changes.
pub(super) async fn allow_only_reads_of_headroom(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let project = path.strip_prefix("/api/v1/projects/");
    let is_headroom = project.and_then(headroom_project).is_some();
    if !is_headroom || matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let refused = method_not_allowed(request.method().clone(), request.uri().clone());
    ([(ALLOW, "GET,HEAD")], refused.await).into_response()
}

/// Router of REST, the OpenAPI document and the web page.
pub(crate) fn router(api: Api) -> Router {
    let (router, _) = documented().split_for_parts();
    router
        .route("/openapi.json", get(document::json))
        .merge(page::router())
        .with_state(api)
}
