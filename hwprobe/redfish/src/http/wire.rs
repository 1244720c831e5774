//! One HTTP request and its answer, within a deadline and a size limit.

use super::endpoint::{Endpoint, EndpointError};
use super::error::FetchError;
use super::trust::{self, PresentedFingerprint, Trust};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, ETAG, IF_MATCH, LOCATION, RETRY_AFTER};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::error::Error as _;
use std::time::Duration;

/// Authentication of a request.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    /// No authentication.
    None,
    /// Session token.
    Token(SecretString),
    /// User name and password.
    Basic(String, SecretString),
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub(super) struct HttpRequest {
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
    pub if_match: Option<String>,
}

/// An HTTP answer with any status.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub status: u16,
    pub etag: Option<String>,
    pub location: Option<String>,
    pub token: Option<SecretString>,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

/// The HTTP client of one endpoint.
#[derive(Debug)]
pub(super) struct HttpClient {
    client: Client,
    shown: PresentedFingerprint,
    body_limit: usize,
}

impl HttpRequest {
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, None)
    }

    pub fn new(method: Method, path: impl Into<String>, body: Option<Value>) -> Self {
        Self {
            method,
            path: path.into(),
            body,
            if_match: None,
        }
    }
}

impl HttpClient {
    pub fn new(endpoint: &Endpoint, body_limit: usize) -> Result<Self, EndpointError> {
        let (tls, shown) = trust::config(&endpoint.trust)?;
        let mut always = HeaderMap::new();
        always.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // No compression, so that a small answer stays small.
        always.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .default_headers(always)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(1)
            .tcp_nodelay(true)
            .build()
            .map_err(EndpointError::Client)?;
        Ok(Self {
            client,
            shown,
            body_limit,
        })
    }

    /// Sends the request once. The caller evaluates the status.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
        ask: &HttpRequest,
        timeout: Duration,
    ) -> Result<Reply, FetchError> {
        let url = endpoint
            .url_of(&ask.path)
            .ok_or(FetchError::OutsideService)?;
        let mut request = self.client.request(ask.method.clone(), url);
        request = with_credential(request, credential);
        if let Some(body) = &ask.body {
            request = request.json(body);
        }
        if let Some(etag) = &ask.if_match {
            request = request.header(IF_MATCH, etag);
        }
        let exchange = async {
            let response = request.send().await;
            let response = response.map_err(|error| self.fetch_error(endpoint, &error))?;
            self.reply(endpoint, response).await
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(reply) => reply,
            Err(_) => Err(FetchError::Timeout { after: timeout }),
        }
    }

    async fn reply(
        &self,
        endpoint: &Endpoint,
        mut response: Response,
    ) -> Result<Reply, FetchError> {
        let limit = self.body_limit;
        let too_large = FetchError::TooLarge { limit };
        let length = response.content_length().unwrap_or(0);
        if usize::try_from(length).map_or(true, |length| length > limit) {
            return Err(too_large);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.fetch_error(endpoint, &error))?
        {
            if body.len() + chunk.len() > limit {
                return Err(too_large);
            }
            body.extend_from_slice(&chunk);
        }
        let headers = response.headers();
        let text = |name: &str| {
            let value = headers.get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        Ok(Reply {
            status: response.status().as_u16(),
            etag: text(ETAG.as_str()),
            location: text(LOCATION.as_str()),
            token: text("x-auth-token").map(SecretString::from),
            retry_after: text(RETRY_AFTER.as_str())
                .and_then(|seconds| seconds.trim().parse().ok())
                .map(Duration::from_secs),
            body,
        })
    }

    /// Converts an error of the HTTP client. The text of the error may contain the URL, which contains no secret.
    fn fetch_error(&self, endpoint: &Endpoint, error: &reqwest::Error) -> FetchError {
        if let Some(refused) = tls_refusal(error)
            && let Some(shown) = self.shown.pin()
        {
            return match endpoint.trust {
                Trust::Pinned(pinned) if pinned != shown => {
                    FetchError::OtherCertificate { pinned, shown }
                }
                _ => FetchError::Untrusted {
                    shown,
                    why: refused,
                },
            };
        }
        let why = innermost(error);
        if error.is_connect() {
            FetchError::Unreachable { why }
        } else {
            FetchError::Broken { why }
        }
    }
}

fn with_credential(request: RequestBuilder, credential: &Credential) -> RequestBuilder {
    match credential {
        Credential::None => request,
        Credential::Basic(user, password) => {
            request.basic_auth(user, Some(password.expose_secret()))
        }
        Credential::Token(token) => match HeaderValue::from_str(token.expose_secret()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header("X-Auth-Token", value)
            }
            // Cannot occur: the token came from a header.
            Err(_) => request,
        },
    }
}

/// The TLS error about the certificate, if that was the failure.
fn tls_refusal(error: &reqwest::Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = inner.downcast_ref() {
            return Some(why.to_string());
        }
        // The source of an I/O error skips the contained error.
        let io = inner.downcast_ref::<std::io::Error>();
        cause = match io.and_then(std::io::Error::get_ref) {
            Some(held) => Some(held as &(dyn std::error::Error + 'static)),
            None => inner.source(),
        };
    }
    None
}

/// The innermost cause, which is the most specific one.
fn innermost(error: &reqwest::Error) -> String {
    let text = lattice_host::error_text::innermost(error).to_string();
    // Omits the links to a library's documentation.
    let end = text.find(": https://").unwrap_or(text.len());
    text[..end].to_owned()
}

impl Reply {
    /// The JSON of a 2xx answer, or the error for its status.
    pub fn json(&self) -> Result<Value, FetchError> {
        self.success()?;
        serde_json::from_slice(&self.body).map_err(|error| FetchError::NotJson {
            why: error.to_string(),
        })
    }

    /// `Ok` for a 2xx answer, else the error for its status.
    pub fn success(&self) -> Result<(), FetchError> {
        let (status, message) = (self.status, self.message());
        match status {
            200..=299 => Ok(()),
            300..=399 => Err(FetchError::Redirected {
                to: self.location.clone().unwrap_or_default(),
            }),
            401 | 403 => Err(FetchError::Denied { status, message }),
            404 | 410 => Err(FetchError::Absent),
            _ => Err(FetchError::Status { status, message }),
        }
    }

    /// The delay that a busy BMC demands, if any.
    pub fn demanded_delay(&self) -> Option<Duration> {
        let is_busy = self.status == StatusCode::SERVICE_UNAVAILABLE
            || self.status == StatusCode::TOO_MANY_REQUESTS;
        self.retry_after.filter(|_| is_busy)
    }

    /// The first message id and text of an error, shortened (DSP0266, section 8.6).
    pub fn message(&self) -> String {
        const LONGEST: usize = 200;
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let info = &body["error"]["@Message.ExtendedInfo"][0];
        let parts = [
            &info["MessageId"],
            &info["Message"],
            &body["error"]["message"],
        ];
        let mut texts = parts.into_iter().filter_map(Value::as_str);
        let text = match (texts.next(), texts.next()) {
            (Some(id), Some(message)) => format!("{id}: {message}"),
            (Some(only), None) => only.to_owned(),
            _ => String::new(),
        };
        let plain = |letter: &char| !letter.is_control();
        text.chars().filter(plain).take(LONGEST).collect()
    }
}
