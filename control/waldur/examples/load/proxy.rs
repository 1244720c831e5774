//! Proxy between the synchronisation and Waldur: delays, counts and refuses requests.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::Response,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Length of a UUID in Waldur's paths.
const UUID_CHARS: usize = 32;

/// Requests that passed the proxy.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// Number of requests by method and path, with `U` in place of each UUID.
    pub by_path: BTreeMap<String, usize>,
    /// Largest number of requests at the same time.
    pub most_at_once: usize,
}

impl Passed {
    /// Number of all requests.
    pub fn calls(&self) -> usize {
        self.by_path.values().sum()
    }

    /// Number of read requests.
    pub fn reads(&self) -> usize {
        let reads = self.by_path.iter();
        let reads = reads.filter(|(path, _)| path.starts_with("GET"));
        reads.map(|(_, calls)| calls).sum()
    }
}

/// Proxy; see the module documentation.
pub struct Proxy {
    http: reqwest::Client,
    /// Address of Waldur, without a slash at the end.
    upstream: String,
    delay_ms: AtomicU64,
    is_down: AtomicBool,
    at_once: AtomicUsize,
    passed: Mutex<Passed>,
}

impl Proxy {
    /// Starts a proxy for Waldur at `upstream`. Returns it with its own address.
    pub async fn start(upstream: &str, http: reqwest::Client) -> (Arc<Self>, String) {
        let proxy = Arc::new(Self {
            http,
            upstream: upstream.trim_end_matches('/').to_owned(),
            delay_ms: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            at_once: AtomicUsize::new(0),
            passed: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(proxy.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (proxy, address)
    }

    /// Delays each later request by this time.
    pub fn set_delay(&self, ms: u64) {
        self.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Answers later requests with status 503, or forwards them again.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Requests since the last call.
    pub fn take(&self) -> Passed {
        std::mem::take(&mut *self.passed.lock().unwrap())
    }

    fn count(&self, method: &Method, uri: &Uri) {
        let at_once = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        let is_uuid = |part: &str| {
            part.len() == UUID_CHARS && part.chars().all(|char| char.is_ascii_hexdigit())
        };
        let parts = uri.path().split('/');
        let parts = parts.map(|part| if is_uuid(part) { "U" } else { part });
        let path = format!("{method} {}", parts.collect::<Vec<_>>().join("/"));
        let mut passed = self.passed.lock().unwrap();
        passed.most_at_once = passed.most_at_once.max(at_once);
        *passed.by_path.entry(path).or_default() += 1;
    }

    async fn forward(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, reqwest::Error> {
        let sent = self
            .http
            .request(method, format!("{}{uri}", self.upstream))
            .headers(headers)
            .body(body)
            .send()
            .await?;
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = sent.status();
        *answer.headers_mut() = sent.headers().clone();
        *answer.body_mut() = Body::from(sent.bytes().await?);
        Ok(answer)
    }
}

async fn pass(
    State(proxy): State<Arc<Proxy>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    proxy.count(&method, &uri);
    let delay = proxy.delay_ms.load(Ordering::Relaxed);
    if delay > 0 {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let answer = match proxy.is_down.load(Ordering::Relaxed) {
        true => None,
        false => proxy.forward(method, &uri, headers, body).await.ok(),
    };
    proxy.at_once.fetch_sub(1, Ordering::Relaxed);
    answer.unwrap_or_else(|| {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        answer
    })
}
