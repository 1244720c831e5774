//! HTTPS transport: the connection pool to one server, and the reading of its answers.

use crate::{
    ClientError,
    pending::{PendingRequest, PendingRequests},
};
use lattice_api::{
    Page, Problem,
    problem::MEDIA_TYPE,
    status::{StatusView, VIEW_AGE_HEADER},
};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Timeout for opening a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a complete answer that is not a stream. It is longer than the server's own deadlines, so that the caller
/// receives the server's report of a slow component.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer that is read into memory, bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Value of `view_age_ms` while there was no answer, or the last answer had no view age.
const NO_VIEW_AGE_MS: u64 = u64::MAX;
/// Page size for complete lists, items.
const PAGE_ITEMS: u32 = 1_000;

/// Server address, CA and token.
#[derive(Clone)]
pub struct Endpoint {
    /// `https://host:port`.
    pub url: String,
    /// CA certificate that signed the server's certificate, PEM; no other CA is trusted.
    pub ca_pem: String,
    /// Bearer token.
    pub token: SecretString,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Typed client. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: HeaderValue,
    view_age_ms: Arc<AtomicU64>,
    pending: PendingRequests,
}

fn endpoint_error(reason: impl Into<String>) -> ClientError {
    ClientError::Endpoint {
        reason: reason.into(),
    }
}

/// Creates the TLS configuration. It names ring explicitly, since an embedding program need not have installed a
/// default provider.
fn tls(ca_pem: &str) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        let certificate =
            certificate.map_err(|e| endpoint_error(format!("the CA is not valid PEM: {e}")))?;
        roots
            .add(certificate)
            .map_err(|e| endpoint_error(format!("the CA certificate cannot be used: {e}")))?;
    }
    if roots.is_empty() {
        return Err(endpoint_error("the CA holds no certificate"));
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|e| endpoint_error(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed session would skip the check of the server's present certificate.
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

impl Client {
    /// Checks the endpoint and creates its client, without connecting.
    ///
    /// # Errors
    /// [`ClientError::Endpoint`] for a URL that is not `https://host:port`, a CA that is not a usable certificate in
    /// PEM, or a token that is not valid in a header.
    pub fn new(endpoint: Endpoint) -> Result<Self, ClientError> {
        let base = Url::parse(&endpoint.url)
            .map_err(|e| endpoint_error(format!("{:?} is not a URL: {e}", endpoint.url)))?;
        if base.scheme() != "https" || base.host_str().is_none() {
            let reason = format!("{:?} must be https://host:port", endpoint.url);
            return Err(endpoint_error(reason));
        }
        let bearer = format!("Bearer {}", endpoint.token.expose_secret());
        let mut authorization = HeaderValue::from_str(&bearer).map_err(|_| {
            endpoint_error("the token contains characters that are not valid in an HTTP header")
        })?;
        authorization.set_sensitive(true);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(&endpoint.ca_pem)?)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("lattice-client/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| endpoint_error(e.to_string()))?;
        Ok(Self {
            http,
            base,
            authorization,
            view_age_ms: Arc::new(AtomicU64::new(NO_VIEW_AGE_MS)),
            pending: PendingRequests::default(),
        })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &Url {
        &self.base
    }

    /// Returns the age of the view that the last answer was based on: below a second while the quorum answers. `None`
    /// before the first answer, and after an answer without an age.
    pub fn view_age(&self) -> Option<Duration> {
        match self.view_age_ms.load(Ordering::Relaxed) {
            NO_VIEW_AGE_MS => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Returns the oldest request of this client and its clones that has no answer yet.
    pub fn oldest_pending(&self) -> Option<PendingRequest> {
        self.pending.oldest()
    }

    /// Returns counts, and the state of the services.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.get(&["status"]).await
    }

    /// Checks that the server is up; it may not have a view yet.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn healthz(&self) -> Result<(), ClientError> {
        self.probe("healthz").await
    }

    /// Checks that the server has a view of the cluster and receives data from the quorum.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] with the missing condition while it does not.
    pub async fn readyz(&self) -> Result<(), ClientError> {
        self.probe("readyz").await
    }

    async fn probe(&self, path: &str) -> Result<(), ClientError> {
        let mut url = self.base.clone();
        url.set_path(path);
        let request = self.http.get(url).timeout(ANSWER_TIMEOUT);
        self.send(request).await.map(drop)
    }

    /// Creates a request to `/api/v1/` and the segments, each percent-encoded.
    pub(crate) fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        // An https URL always has a path, so this branch is always taken.
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(["api", "v1"]).extend(segments);
        }
        self.http
            .request(method, url)
            .header(AUTHORIZATION, self.authorization.clone())
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        segments: &[&str],
    ) -> Result<T, ClientError> {
        self.answer(self.request(Method::GET, segments)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.answer(self.request(Method::POST, segments).json(body))
            .await
    }

    /// Sends a request, and reads the JSON of the answer.
    pub(crate) async fn answer<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, ClientError> {
        let response = self.send(request.timeout(ANSWER_TIMEOUT)).await?;
        let url = response.url().to_string();
        let bytes = self.body(response).await?;
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Protocol {
            url,
            reason: e.to_string(),
        })
    }

    /// Sends a request, and turns an unsuccessful answer into its error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = request.build().map_err(|e| self.unreachable(e))?;
        let pending = self
            .pending
            .begin(request.method().as_str(), request.url().path());
        let response = self.http.execute(request).await;
        drop(pending);
        let response = response.map_err(|e| self.unreachable(e))?;
        let age = response.headers().get(VIEW_AGE_HEADER);
        let age = age.and_then(|value| value.to_str().ok()?.parse().ok());
        self.view_age_ms
            .store(age.unwrap_or(NO_VIEW_AGE_MS), Ordering::Relaxed);
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let url = response.url().to_string();
        let is_problem = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|t| t.as_bytes().starts_with(MEDIA_TYPE.as_bytes()));
        let body = self.body(response).await?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if is_problem => Err(ClientError::from_problem(problem)),
            _ => Err(ClientError::Protocol {
                url,
                reason: foreign_answer_reason(status),
            }),
        }
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.unreachable(e))? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(ClientError::Protocol {
                    url: response.url().to_string(),
                    reason: format!("the answer is larger than {MAX_ANSWER_BYTES} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(crate) fn unreachable(&self, error: reqwest::Error) -> ClientError {
        ClientError::Unreachable {
            url: self.base.origin().ascii_serialization(),
            source: Box::new(error.without_url()),
        }
    }

    /// Returns one page of a list.
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: &[(&str, String)],
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Page<T>, ClientError> {
        let mut request = self.request(Method::GET, segments).query(query);
        if let Some(limit) = limit {
            request = request.query(&[("limit", limit)]);
        }
        if let Some(cursor) = cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        self.answer(request).await
    }

    /// Reads all pages of a list in sequence.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: &[(&str, String)],
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self
                .page(segments, query, Some(PAGE_ITEMS), cursor.as_deref())
                .await?;
            items.extend(page.items);
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(items),
            }
        }
    }
}

fn foreign_answer_reason(status: StatusCode) -> String {
    format!("{status} without a problem document; is this a Lattice server?")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn endpoint(url: &str, ca_pem: &str, token: &str) -> Endpoint {
        Endpoint {
            url: url.to_owned(),
            ca_pem: ca_pem.to_owned(),
            token: token.into(),
        }
    }

    #[test]
    fn an_endpoint_that_cannot_work_is_refused_with_what_is_wrong() {
        for (url, ca, wanted) in [
            ("not a url", "", "is not a URL"),
            ("http://127.0.0.1:1", "", "must be https"),
            ("https://127.0.0.1:1", "", "holds no certificate"),
            (
                "https://127.0.0.1:1",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "cannot be used",
            ),
        ] {
            let error = Client::new(endpoint(url, ca, "t")).unwrap_err();
            assert!(error.to_string().contains(wanted), "{url}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
        let error = Client::new(endpoint("https://127.0.0.1:1", "", "a\nb")).unwrap_err();
        assert!(error.to_string().contains("token"), "{error}");
    }

    #[test]
    fn a_token_is_not_shown() {
        let shown = format!("{:?}", endpoint("https://h:1", "", "very-secret"));
        assert!(!shown.contains("very-secret"), "{shown}");
    }
}
