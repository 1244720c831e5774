//! The port.

use super::{
    answer::{no_such_method, no_such_path},
    auth::Auth,
    meter, routes,
    state::Api,
};
use crate::{Core, grpc};
use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{HeaderName, HeaderValue, header},
    middleware,
    response::Response,
};
use axum_server::{Handle, accept::NoDelayAcceptor, tls_rustls::RustlsConfig};
use hyper_util::rt::TokioTimer;
use std::{net::TcpListener, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Largest request body: a workload has 64 KiB at most, a batch of limits for thousands of
/// projects fits too.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Time that requests in flight get when the port closes; streams never end by themselves.
const CLOSE_GRACE: Duration = Duration::from_millis(1_500);
/// Requests a second for each principal, and at once.
const REQUESTS_PER_SECOND: u32 = 10_000;

/// How long the port waits for a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For the handshake.
    pub(crate) handshake: Duration,
    /// For a whole request head, an idle connection's next one included.
    pub(crate) head: Duration,
    /// Between signs of life on HTTP/2, and for the answer to each.
    pub(crate) alive: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(60),
            alive: Duration::from_secs(20),
        }
    }
}

/// Serves until `stop`; then lets requests in flight end within a short grace.
pub async fn serve(
    core: Arc<Core>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    auth: Arc<Auth>,
    stop: CancellationToken,
) {
    let api = Api::new(core, auth, REQUESTS_PER_SECOND, stop.clone());
    serve_with(app(api), listener, tls, stop, Patience::default()).await;
}

pub(crate) async fn serve_with(
    app: Router,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
    patience: Patience,
) {
    let app = app.into_make_service();
    let mut server = match axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(tls)) {
        Ok(server) => server.map(|acceptor| {
            acceptor
                .handshake_timeout(patience.handshake)
                .acceptor(NoDelayAcceptor::new())
        }),
        Err(error) => {
            tracing::error!(%error, "the interfaces cannot be served");
            return;
        }
    };
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience.alive)
        .keep_alive_timeout(patience.alive);
    let handle = Handle::new();
    let serving = server.handle(handle.clone()).serve(app);
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => {
            if let Err(error) = ended {
                tracing::error!(%error, "the interfaces are no longer served");
            }
        }
        () = stop.cancelled() => {
            handle.graceful_shutdown(Some(CLOSE_GRACE));
            let _ = serving.await;
        }
    }
}

/// Everything that is served.
pub(crate) fn app(api: Api) -> Router {
    let rest = routes::router(api.clone());
    grpc::add(rest, &api)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::map_response(harden))
        .layer(middleware::from_fn_with_state(api, meter::measure))
}

/// What every answer tells a browser: take types as they are named, show it in no frame, keep
/// nothing, load nothing from elsewhere.
async fn harden(mut response: Response) -> Response {
    const HEADERS: [(HeaderName, &str); 5] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}
