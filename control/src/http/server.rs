//! The port.

use super::{
    answer::{no_such_method, no_such_path},
    auth::Auth,
    meter, routes,
    state::{Api, Bounds},
};
use crate::{Core, grpc};
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
use lattice_mesh::Pin;
use std::{fmt, future::Future, io, net::TcpListener, sync::Arc, time::Duration};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Largest request body: a workload has 64 KiB at most, a batch of limits for thousands of
/// projects fits too.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
/// Time that requests in flight get when the port closes; streams never end by themselves.
const CLOSE_GRACE: Duration = Duration::from_millis(1_500);
/// Requests a second for each principal, and at once.
const REQUESTS_PER_SECOND: u32 = 10_000;
/// Connections at the same time: every stream that may be open, over HTTP/1.1, and as many more.
const MAX_CONNECTIONS: usize = 4_096;

/// What the port is opened with.
pub struct Port {
    /// Bound and non-blocking.
    pub listener: TcpListener,
    /// Certificate and protocols.
    pub tls: Arc<rustls::ServerConfig>,
    /// Who may ask.
    pub auth: Arc<Auth>,
    /// The authority that join tokens tell newcomers to trust.
    pub authority: Pin,
    /// Most members of one graph.
    pub max_dag_size: usize,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({:?}, {:?})", self.listener, self.auth)
    }
}

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

/// Takes the port over, and returns what serves it until `stop` and then lets requests in flight
/// end within a short grace. Must run inside a tokio runtime.
///
/// # Errors
/// When the port cannot be taken over. What serves it ends with an error only when it cannot go
/// on.
pub fn serve(
    core: Arc<Core>,
    port: Port,
    stop: CancellationToken,
) -> io::Result<impl Future<Output = io::Result<()>> + Send + 'static> {
    let bounds = Bounds {
        requests_per_second: REQUESTS_PER_SECOND,
        connections: MAX_CONNECTIONS,
        max_dag_size: port.max_dag_size,
        stop,
    };
    let api = Api::new(core, port.auth, port.authority, bounds);
    serve_with(api, port.listener, port.tls, Patience::default())
}

pub(crate) fn serve_with(
    api: Api,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    patience: Patience,
) -> io::Result<impl Future<Output = io::Result<()>> + Send + 'static> {
    let (stop, connections) = (api.stop().clone(), api.connections().clone());
    let app = app(api)?;
    let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(tls))?;
    let mut server = server.map(|acceptor| {
        acceptor
            .handshake_timeout(patience.handshake)
            .acceptor(connections)
    });
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

/// Runs what serves the port, and cancels `ended` when it ends though nobody asked it to: a control
/// that nobody can reach must not look like one that runs.
pub(crate) async fn watch_over(
    serving: impl Future<Output = io::Result<()>> + Send + 'static,
    stop: CancellationToken,
    ended: CancellationToken,
) {
    let outcome = AbortOnDropHandle::new(tokio::spawn(serving)).await;
    if stop.is_cancelled() {
        return;
    }
    let reason = match outcome {
        Ok(Ok(())) => "the server ended by itself".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::error!(reason, "the interfaces are no longer served");
    ended.cancel();
}

/// Everything that is served.
fn app(api: Api) -> io::Result<Router> {
    let rest = routes::router(api.clone());
    let all = grpc::add(rest, &api).map_err(io::Error::other)?;
    #[cfg(test)]
    let all = all.layer(middleware::from_fn(super::tests::documented::check));
    Ok(all
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn(routes::headroom_is_read))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::map_response(harden))
        .layer(middleware::map_response_with_state(api.clone(), tell_age))
        .layer(middleware::from_fn_with_state(api, meter::measure)))
}

/// What every answer tells of how old what it shows may be: milliseconds since the quorum was last
/// heard. Left out before the first time.
async fn tell_age(State(api): State<Api>, mut response: Response) -> Response {
    if let Some(age) = api.core().view_age_ms() {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static(VIEW_AGE_HEADER), age.into());
    }
    response
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
