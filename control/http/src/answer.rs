//! Error responses: every error is sent as `application/problem+json`.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lattice_api::problem::{Kind, MEDIA_TYPE, Problem};

/// A problem as a response.
#[derive(Debug)]
pub(crate) struct ProblemResponse(pub(crate) Problem);

impl<P: Into<Problem>> From<P> for ProblemResponse {
    fn from(problem: P) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"lattice\"");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Result of a handler.
pub(crate) type Answer<T> = Result<axum::Json<T>, ProblemResponse>;

/// Response to an unknown path.
pub(crate) async fn no_such_path(uri: axum::http::Uri) -> ProblemResponse {
    let detail = format!("unknown path {}; /openapi.json lists all paths", uri.path());
    Problem::new(Kind::NotFound, "no_such_path", detail).into()
}

/// Response to an unsupported method.
pub(crate) async fn method_not_allowed(
    method: axum::http::Method,
    uri: axum::http::Uri,
) -> ProblemResponse {
    let detail = format!(
        "{} does not support {method}; /openapi.json lists its methods",
        uri.path()
    );
    Problem::new(Kind::Method, "no_such_method", detail).into()
}
