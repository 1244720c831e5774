//! The page: three files, compiled in.

use crate::http::state::Api;
use axum::{Router, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/", get(html))
        .route("/page.css", get(css))
        .route("/page.js", get(js))
        .route("/icon.svg", get(icon))
}

async fn html() -> impl IntoResponse {
    let text = include_str!("../../../web/page.html");
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], text)
}

async fn css() -> impl IntoResponse {
    let text = include_str!("../../../web/page.css");
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], text)
}

async fn js() -> impl IntoResponse {
    let text = include_str!("../../../web/page.js");
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], text)
}

async fn icon() -> impl IntoResponse {
    let text = include_str!("../../../web/icon.svg");
    ([(CONTENT_TYPE, "image/svg+xml")], text)
}
