//! REST, route by route. Each is documented where it stands; `/openapi.json` is made from that.

mod allocations;
mod conformance;
mod events;
mod nodes;
pub(super) mod page;
mod projects;
mod service;

use super::state::Api;
use axum::{Router, extract::State, response::IntoResponse, routing::get};
use std::sync::OnceLock;
use utoipa::openapi::{
    InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement,
    security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

/// Every route with its document.
fn documented() -> OpenApiRouter<Api> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(service::status))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::inventory))
        .routes(routes!(nodes::diff))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(conformance::groups))
        .routes(routes!(conformance::drift))
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::get, projects::update, projects::delete))
        .routes(routes!(projects::set_limits))
        .routes(routes!(allocations::list, allocations::submit))
        .routes(routes!(allocations::get, allocations::cancel))
        .routes(routes!(allocations::hold))
        .routes(routes!(allocations::release))
        .routes(routes!(allocations::explanation))
        .routes(routes!(allocations::logs))
        .routes(routes!(events::events));
    OpenApiRouter::with_openapi(about())
        .nest("/api/v1", v1)
        .routes(routes!(service::healthz))
        .routes(routes!(service::readyz))
        .routes(routes!(service::metrics))
}

fn about() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Lattice")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Nodes, conformance, projects, limits and allocations of one cluster. Every \"no\" is \
             application/problem+json.",
        ))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .security(Some([SecurityRequirement::new(
            "token",
            Vec::<String>::new(),
        )]))
        .build()
}

/// The document of everything that REST serves.
pub fn openapi() -> OpenApi {
    let (_, mut document) = documented().split_for_parts();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    document
        .components
        .get_or_insert_default()
        .add_security_scheme("token", SecurityScheme::Http(bearer));
    // The router's sign for "the rest of the path" means nothing outside it.
    let paths = std::mem::take(&mut document.paths.paths);
    let plain = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item));
    document.paths.paths = plain.collect();
    document
}

async fn openapi_json(State(_): State<Api>) -> impl IntoResponse {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let text = DOCUMENT.get_or_init(|| {
        // A document made of plain values; were it ever not writable, the tests would see it.
        serde_json::to_string_pretty(&openapi()).unwrap_or_default()
    });
    ([("content-type", "application/json")], text.as_str())
}

/// REST, the document, and the page.
pub(crate) fn router(api: Api) -> Router {
    let (router, _) = documented().split_for_parts();
    router
        .route("/openapi.json", get(openapi_json))
        .merge(page::router())
        .with_state(api)
}
