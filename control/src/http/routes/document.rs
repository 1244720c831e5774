//! The OpenAPI document: what the routes say of themselves, made whole.

use super::{openapi, projects::__path_headroom};
use axum::{http::header::CONTENT_TYPE, response::IntoResponse};
use lattice_api::{problem::MEDIA_TYPE, tenant::HeadroomView};
use std::sync::OnceLock;
use utoipa::{
    PartialSchema as _, ToSchema as _,
    openapi::{
        InfoBuilder, OpenApi, OpenApiBuilder, RefOr, SecurityRequirement,
        path::{Operation, PathItem},
        response::Response,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

pub(super) fn about() -> OpenApi {
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

/// Adds what no single route says: the token, the media type of problems, and a word for each
/// answer.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    document
        .components
        .get_or_insert_default()
        .add_security_scheme("token", SecurityScheme::Http(bearer));
    // It stands behind another route, for the router's sake.
    let mut operation = <__path_headroom as utoipa::Path>::operation();
    operation.tags = Some(vec!["projects".to_owned()]);
    let headroom = PathItem::new(utoipa::openapi::HttpMethod::Get, operation);
    let path = format!("/api/v1{}", <__path_headroom as utoipa::Path>::path());
    document.paths.paths.insert(path, headroom);
    let mut schemas = vec![(HeadroomView::name().into_owned(), HeadroomView::schema())];
    HeadroomView::schemas(&mut schemas);
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        for operation in operations(&mut item) {
            // A function's name is unique in its module only, whose name is the tag.
            let tag = operation.tags.iter().flatten().next();
            let name = tag.zip(operation.operation_id.as_ref());
            operation.operation_id = name.map(|(tag, name)| format!("{tag}_{name}"));
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response {
                    describe(status, response);
                }
            }
        }
        // The router's sign for "the rest of the path" means nothing outside it.
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let methods = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
    ];
    methods.into_iter().flatten()
}

fn describe(status: &str, response: &mut Response) {
    let is_problem = !status.starts_with('2');
    if is_problem {
        let bodies = std::mem::take(&mut response.content).into_values();
        response.content = bodies.map(|body| (MEDIA_TYPE.to_owned(), body)).collect();
    }
    if response.description.is_empty() {
        let words = match status {
            "404" => "There is no such thing.",
            "409" => "It contradicts the present state.",
            "503" => "What is needed does not answer at present.",
            _ if is_problem => "Why not.",
            "201" => "It was made.",
            _ => "The answer.",
        };
        words.clone_into(&mut response.description);
    }
}

pub(super) async fn json() -> impl IntoResponse {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let text = DOCUMENT.get_or_init(|| {
        // A document made of plain values; were it ever not writable, the tests would see it.
        serde_json::to_string_pretty(&openapi()).unwrap_or_default()
    });
    ([(CONTENT_TYPE, "application/json")], text.as_str())
}
