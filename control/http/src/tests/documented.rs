//! Every response over REST in any of these tests must be documented: status and media type.

use crate::ops::projects::headroom_project;
use axum::{
    body::Body,
    extract::{MatchedPath, Request},
    http::{Method, StatusCode, header::CONTENT_TYPE},
    middleware::Next,
    response::Response,
};
use lattice_api::problem::MEDIA_TYPE;
use serde_json::Value;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Undocumented responses. Every fixture checks the list when it ends, because a test may take a broken connection for
/// what it waits for.
static UNDOCUMENTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(super) fn check_all_documented() {
    let undocumented = UNDOCUMENTED.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        undocumented.is_empty(),
        "the document does not tell of {undocumented:#?}"
    );
}

/// Middleware before every route of the port while tests run.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (method, url) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    if let Some(route) = route
        && let Err(what) = check_documented(&method, url.path(), route.as_str(), &response)
    {
        let answered = format!("{method} {url}: {} is answered, {what}", response.status());
        UNDOCUMENTED.lock().unwrap().push(answered);
    }
    response
}

fn check_documented(
    method: &Method,
    path: &str,
    route: &str,
    response: &Response,
) -> Result<(), &'static str> {
    // The web page and gRPC calls are not part of the document; an unsupported method is documented nowhere.
    let is_rest =
        route.starts_with("/api/v1/") || ["/metrics", "/healthz", "/readyz"].contains(&route);
    let status = response.status();
    if !is_rest || status == StatusCode::METHOD_NOT_ALLOWED {
        return Ok(());
    }
    let is_headroom = path
        .strip_prefix("/api/v1/projects/")
        .and_then(headroom_project);
    let path = match is_headroom {
        Some(_) => "/api/v1/projects/{path}/headroom".to_owned(),
        None => route.replace("{*", "{"),
    };
    let method = match *method {
        Method::HEAD => "get".to_owned(),
        _ => method.as_str().to_lowercase(),
    };
    let operation = document().pointer(&pointer(["paths", &path, &method]));
    let operation = operation.ok_or("which is no operation")?;
    let documented = operation.pointer(&pointer(["responses", status.as_str()]));
    let documented = documented.ok_or("a status that its operation does not tell")?;
    let Some(media) = response.headers().get(CONTENT_TYPE) else {
        return Ok(());
    };
    let essence = media
        .to_str()
        .ok()
        .and_then(|media| media.split(';').next());
    let content = documented.pointer(&pointer(["content", essence.unwrap_or_default()]));
    content
        .map(drop)
        .ok_or("with a media type that is not told")
}

fn pointer<const N: usize>(parts: [&str; N]) -> String {
    let parts = parts.map(|part| part.replace('~', "~0").replace('/', "~1"));
    format!("/{}", parts.join("/"))
}

fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_value(crate::openapi()).unwrap())
}

#[test]
fn observes_unreported_change() {
    let answered = |status: u16, media: &'static str| {
        let response = Response::builder().status(status);
        response
            .header(CONTENT_TYPE, media)
            .body(Body::empty())
            .unwrap()
    };
    let json = "application/json";
    let documented = |method: Method, path: &str, route: &str, response: &Response| {
        check_documented(&method, path, route, response).is_ok()
    };
    let (status, projects) = ("/api/v1/status", "/api/v1/projects/{*path}");
    assert!(documented(
        Method::GET,
        status,
        status,
        &answered(200, json)
    ));
    assert!(documented(
        Method::HEAD,
        status,
        status,
        &answered(429, MEDIA_TYPE)
    ));
    assert!(!documented(
        Method::GET,
        status,
        status,
        &answered(404, MEDIA_TYPE)
    ));
    assert!(!documented(
        Method::GET,
        status,
        status,
        &answered(200, "text/plain")
    ));
    assert!(!documented(
        Method::PUT,
        status,
        status,
        &answered(200, json)
    ));
    let path = "/api/v1/projects/atlas";
    assert!(documented(
        Method::PUT,
        path,
        projects,
        &answered(200, json)
    ));
    let path = "/api/v1/projects/atlas/headroom";
    assert!(documented(
        Method::GET,
        path,
        projects,
        &answered(200, json)
    ));
    assert!(!documented(
        Method::PUT,
        path,
        projects,
        &answered(200, json)
    ));
}
