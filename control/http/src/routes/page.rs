//! Web page: a few files, compiled in.

use crate::state::Api;
use axum::{Router, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, media type and content of each file.
pub(crate) const FILES: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("../../../web/page.html")),
    ("/page.css", CSS, include_str!("../../../web/page.css")),
    ("/page.js", JS, include_str!("../../../web/page.js")),
    ("/api.js", JS, include_str!("../../../web/api.js")),
    ("/model.js", JS, include_str!("../../../web/model.js")),
    ("/dom.js", JS, include_str!("../../../web/dom.js")),
    ("/nodes.js", JS, include_str!("../../../web/nodes.js")),
    ("/panels.js", JS, include_str!("../../../web/panels.js")),
    ("/icon.svg", SVG, include_str!("../../../web/icon.svg")),
];

pub(super) fn router() -> Router<Api> {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, media, text)| {
            router.route(path, get(move || file(media, text)))
        })
}

async fn file(media: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, media)], text)
}
