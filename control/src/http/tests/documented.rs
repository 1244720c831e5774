//! Whatever any test here is answered over REST, the document says that it may be: status and media type.

use axum::{
    extract::{MatchedPath, Request},
    http::header::CONTENT_TYPE,
    middleware::Next,
    response::Response,
};
use serde_json::Value;
use std::sync::OnceLock;

/// Stands before every route of the port while tests run.
pub(in crate::http) async fn check(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (method, url) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    let Some(route) = route else { return response };
    let status = response.status();
    // Not the answer of an operation, and told of by none.
    if status.as_u16() == 405 {
        return response;
    }
    let media = response.headers().get(CONTENT_TYPE);
    let media = media.and_then(|value| value.to_str().ok());
    let path = match url.path().ends_with("/headroom") {
        true => "/api/v1/projects/{path}/headroom".to_owned(),
        false => route.as_str().replace("{*", "{"),
    };
    let method = match method.as_str() {
        "HEAD" => "get".to_owned(),
        method => method.to_lowercase(),
    };
    let Some(operation) = document().pointer(&pointer(["paths", &path, &method])) else {
        return response;
    };
    let told = operation.pointer(&pointer(["responses", status.as_str()]));
    let told = told.unwrap_or_else(|| panic!("{method} {url} answers {status}, untold of"));
    if let Some(media) = media {
        let essence = media.split(';').next().unwrap_or_default();
        let content = told.pointer(&pointer(["content", essence]));
        assert!(
            content.is_some(),
            "{method} {url} answers {status} as {media}, untold of"
        );
    }
    response
}

fn pointer<const N: usize>(parts: [&str; N]) -> String {
    let parts = parts.map(|part| part.replace('~', "~0").replace('/', "~1"));
    format!("/{}", parts.join("/"))
}

fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_value(crate::http::openapi()).unwrap())
}

/// A document without operations would let everything pass.
#[test]
fn it_is_looked_up_in_the_document() {
    let paths = document()["paths"].as_object().unwrap();
    assert!(paths.len() > 60, "{}", paths.len());
    let there = pointer([
        "paths",
        "/api/v1/projects/{path}/headroom",
        "get",
        "responses",
        "200",
    ]);
    assert!(document().pointer(&there).is_some());
    let not = pointer(["paths", "/api/v1/status", "get", "responses", "default"]);
    assert!(document().pointer(&not).is_none());
}
