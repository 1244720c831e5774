//! OpenAPI document: the documentation of the routes, completed with the content that no single route documents.

use super::{openapi, projects::__path_headroom};
use axum::{http::header::CONTENT_TYPE, response::IntoResponse};
use lattice_api::{
    Problem,
    event::{CompactedEvents, ObservedChanges},
    problem::MEDIA_TYPE,
    tenant::HeadroomView,
};
use std::sync::OnceLock;
use utoipa::{
    ToSchema,
    openapi::{
        Content, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder, Schema,
        SecurityRequirement,
        path::{Operation, ParameterIn, PathItem},
        response::Response,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

pub(super) fn base_document() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Lattice")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Nodes, conformance, projects, limits and allocations of one cluster. Every refusal is \
             application/problem+json. The header lattice-view-age-ms of an answer has the age of the \
             view that the answer derives from. While the answering control has no view, such answers \
             are refused: status 503, code no_view.",
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

/// Adds the content that no single route documents: the token, the possible errors of each operation, a description of
/// each response, and the types of the event stream.
pub(super) fn complete_document(mut document: OpenApi) -> OpenApi {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    document
        .components
        .get_or_insert_default()
        .add_security_scheme("token", SecurityScheme::Http(bearer));
    // The headroom route shares a path with another route in the router.
    let mut operation = <__path_headroom as utoipa::Path>::operation();
    operation.tags = Some(vec!["projects".to_owned()]);
    let headroom = PathItem::new(utoipa::openapi::HttpMethod::Get, operation);
    let path = format!("/api/v1{}", <__path_headroom as utoipa::Path>::path());
    document.paths.paths.insert(path, headroom);
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas_of::<HeadroomView>());
    components.schemas.extend(schemas_of::<Problem>());
    // The event stream carries these types in addition to the changes that its operation names.
    components.schemas.extend(schemas_of::<ObservedChanges>());
    components.schemas.extend(schemas_of::<CompactedEvents>());
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        for (writes, operation) in operations(&mut item) {
            // A function name is unique only in its module; the module name is the tag.
            let tag = operation.tags.iter().flatten().next();
            let name = tag.zip(operation.operation_id.as_ref());
            operation.operation_id = name.map(|(tag, name)| format!("{tag}_{name}"));
            add_problem_responses(operation, writes);
        }
        // The wildcard syntax of the router has no meaning outside it.
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    document
}

/// Schemas of a type and of the types it refers to, by name.
fn schemas_of<T: ToSchema>() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    schemas
}

/// Operations of a path, each with whether it may change state.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let methods = [
        (false, &mut item.get),
        (true, &mut item.put),
        (true, &mut item.post),
        (true, &mut item.delete),
    ];
    methods
        .into_iter()
        .filter_map(|(writes, operation)| Some((writes, operation.as_mut()?)))
}

/// Adds the possible errors of an operation. Errors that the operation itself describes are not changed.
fn add_problem_responses(operation: &mut Operation, writes: bool) {
    let parameters = operation.parameters.iter().flatten();
    let is_of_one = parameters
        .clone()
        .any(|p| matches!(p, RefOr::T(p) if p.parameter_in == ParameterIn::Path));
    let is_read = parameters.count() > 0 || operation.request_body.is_some();
    // `security(())` removes the token requirement.
    let is_closed = operation.security.is_none();
    let has_body = operation.request_body.is_some();
    let problems = [
        (
            is_read,
            "400",
            "The request is not valid; `field` names the invalid field.",
        ),
        (is_closed, "401", "No token, or an unknown token."),
        (
            is_closed,
            "403",
            "The role of the token does not permit this.",
        ),
        (
            is_of_one || has_body,
            "404",
            "The object, or one that the request names, does not exist or is not visible to the \
             caller.",
        ),
        (
            writes,
            "409",
            "The request conflicts with the present state.",
        ),
        (has_body, "413", "The body is too long."),
        (
            has_body,
            "415",
            "The media type of the body is not supported.",
        ),
        (is_closed, "429", "Too many requests."),
        (is_closed, "500", "Internal error of the server."),
        (
            is_closed,
            "503",
            "A required service does not answer at present, or this control has no view yet \
             (`no_view`); try again.",
        ),
    ];
    let responses = &mut operation.responses.responses;
    for (can_be, status, description) in problems {
        if can_be && !responses.contains_key(status) {
            let response = ResponseBuilder::new()
                .description(description)
                .content(
                    MEDIA_TYPE,
                    Content::new(Some(Ref::from_schema_name(Problem::name()))),
                )
                .build();
            responses.insert(status.to_owned(), RefOr::T(response));
        }
    }
    for (status, response) in responses {
        if let RefOr::T(response) = response {
            describe(status, response);
        }
    }
}

fn describe(status: &str, response: &mut Response) {
    if !status.starts_with('2') {
        let bodies = std::mem::take(&mut response.content).into_values();
        response.content = bodies.map(|body| (MEDIA_TYPE.to_owned(), body)).collect();
    }
    if response.description.is_empty() {
        let words = match status {
            "201" => "Created.",
            "204" => "Done.",
            _ => "The requested data.",
        };
        words.clone_into(&mut response.description);
    }
}

pub(super) async fn json() -> impl IntoResponse {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let text = DOCUMENT.get_or_init(|| {
        // The document consists of plain values; a serialization failure would fail the tests.
        serde_json::to_string_pretty(&openapi()).unwrap_or_default()
    });
    ([(CONTENT_TYPE, "application/json")], text.as_str())
}
