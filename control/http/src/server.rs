//! Server of the TLS port.

use super::{
    answer::{method_not_allowed, no_such_path},
    auth::Auth,
    extract::MAX_BODY_BYTES,
    metrics, routes,
    state::{Api, Bounds, Stores},
};
use crate::grpc;
use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderName, HeaderValue, header},
    middleware,
    response::Response,
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use hyper_util::rt::TokioTimer;
use lattice_api::status::VIEW_AGE_HEADER;
use lattice_engine::Core;
use lattice_mesh::Pin;
use std::{fmt, future::Future, io, net::TcpListener, sync::Arc, time::Duration};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Time for requests in flight to complete when the port closes. The stop signal ends the streams.
const CLOSE_GRACE: Duration = Duration::from_millis(1_500);
/// Requests per second and principal, also the burst size.
const REQUESTS_PER_SECOND: u32 = 10_000;
/// Maximum number of connections: one for every possible stream over HTTP/1.1, and as many for other requests.
const MAX_CONNECTIONS: usize = 4_096;

/// Parameters of the port.
pub struct Port {
    /// Listening socket, bound and non-blocking.
    pub listener: TcpListener,
    /// Certificate and protocols.
    pub tls: Arc<rustls::ServerConfig>,
    /// Authentication of callers.
    pub auth: Arc<Auth>,
    /// Certificate authority that join tokens name while the cluster state has none.
    pub authority: Pin,
    /// Maximum number of members of a DAG.
    pub max_dag_size: usize,
    /// Default for the output files of requests that name none; `None`: the nodes keep the output.
    pub default_output: Option<String>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({:?}, {:?})", self.listener, self.auth)
    }
}

/// Timeouts for a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerTimeouts {
    /// Timeout of the TLS handshake.
    pub(crate) handshake: Duration,
    /// Timeout of a complete request head, also of the next one on an idle connection.
    pub(crate) head: Duration,
    /// Interval of HTTP/2 keep-alive pings, and timeout of each answer.
    pub(crate) keep_alive: Duration,
}

impl Default for PeerTimeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(60),
            keep_alive: Duration::from_secs(20),
        }
    }
}

/// Takes over the port. The returned future serves it until `stop`, then gives requests in flight a short grace period.
/// Must be called inside a tokio runtime.
///
/// # Errors
/// The port cannot be taken over. The future returns an error only if it cannot continue.
pub fn serve(
    core: Arc<Core>,
    stores: Stores,
    port: Port,
    stop: CancellationToken,
) -> io::Result<impl Future<Output = io::Result<()>> + Send + 'static> {
    let bounds = Bounds {
        requests_per_second: REQUESTS_PER_SECOND,
        connections: MAX_CONNECTIONS,
        max_dag_size: port.max_dag_size,
        default_output: port.default_output,
        stop,
    };
    let api = Api::new(core, stores, port.auth, port.authority, bounds);
    serve_with(api, port.listener, port.tls, PeerTimeouts::default())
}

pub(crate) fn serve_with(
    api: Api,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    timeouts: PeerTimeouts,
) -> io::Result<impl Future<Output = io::Result<()>> + Send + 'static> {
    let (stop, connections) = (api.stop().clone(), api.connections().clone());
    let app = app(api)?;
    let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(tls))?;
    let mut server = server.map(|acceptor| {
        acceptor
            .handshake_timeout(timeouts.handshake)
            .acceptor(connections)
    });
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(timeouts.keep_alive)
        .keep_alive_timeout(timeouts.keep_alive);
    let handle = Handle::new();
    let serving = server.handle(handle.clone()).serve(app.into_make_service());
    Ok(async move {
        tokio::pin!(serving);
        tokio::select! {
            ended = &mut serving => ended,
            () = stop.cancelled() => {
                handle.graceful_shutdown(Some(CLOSE_GRACE));
                serving.await
            }
        }
    })
}

/// Runs the server, and cancels `ended` if it ends without being stopped: a control that no client can reach must not
/// appear to run.
pub async fn run_until_stopped(
    serving: impl Future<Output = io::Result<()>> + Send + 'static,
    stop: CancellationToken,
    ended: CancellationToken,
) {
    let outcome = AbortOnDropHandle::new(tokio::spawn(serving)).await;
    if stop.is_cancelled() {
        return;
    }
    let reason = match outcome {
        Ok(Ok(())) => "HTTP server task ended unexpectedly".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::error!(reason, "API server stopped");
    ended.cancel();
}

/// Router of everything that is served.
fn app(api: Api) -> io::Result<Router> {
    let rest = routes::router(api.clone());
    let all = grpc::add(rest, &api).map_err(io::Error::other)?;
    #[cfg(test)]
    let all = all.layer(middleware::from_fn(super::tests::documented::check));
    Ok(all
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(routes::allow_only_reads_of_headroom))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::map_response(add_security_headers))
        .layer(middleware::map_response_with_state(
            api.clone(),
            add_view_age,
        ))
        .layer(middleware::from_fn_with_state(api, metrics::measure)))
}

/// Adds the age of the view to every response: milliseconds since the last message from the quorum. Left out before the
/// first message.
async fn add_view_age(State(api): State<Api>, mut response: Response) -> Response {
    if let Some(age) = api.core().view_age_ms() {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static(VIEW_AGE_HEADER), age.into());
    }
    response
}

/// Adds security headers for browsers: no type sniffing, no frames, no referrer, no caching, no foreign content.
async fn add_security_headers(mut response: Response) -> Response {
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
