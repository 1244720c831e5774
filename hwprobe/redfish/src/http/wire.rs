//! One HTTP request and its answer, within a deadline and a size limit.

use super::encoding;
use super::endpoint::{Endpoint, EndpointError};
use super::error::{FetchError, RedirectRefusal};
use super::trust::{self, PresentedFingerprint, Trust};
use crate::body;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue};
use reqwest::header::{IF_MATCH, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::error::Error as _;
use std::time::Duration;

/// Maximum number of redirects that one request follows.
const MAX_REDIRECTS: usize = 5;
/// Maximum size of a body that is searched for the error of an invalid session, in bytes. A larger body is a resource.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Messages of the base registry (DSP8011) that report an invalid session.
const SESSION_ERRORS: [&str; 2] = ["NoValidSession", "AuthenticationTokenRequired"];
/// Message of the base registry about a resource that the login does not open. With a status of success it stands for
/// 401; with 403 it is about the privileges of the account, which a new login does not change.
const UNAUTHORIZED: &str = "ResourceAtUriUnauthorized";

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
    /// Content codings of the body as received.
    codings: String,
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
        // BMCs that store large documents compressed refuse a client that accepts only plain ones (status 406).
        let accepted = HeaderValue::from_static(encoding::ACCEPTED);
        always.insert(ACCEPT_ENCODING, accepted);
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

    /// Sends the request, and again to the target of a redirect within the BMC's scheme, host and port. The caller
    /// evaluates the status.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
        ask: &HttpRequest,
        timeout: Duration,
    ) -> Result<Reply, FetchError> {
        let exchange = self.exchange(endpoint, credential, ask);
        match tokio::time::timeout(timeout, exchange).await {
            Ok(reply) => reply,
            Err(_) => Err(FetchError::Timeout { after: timeout }),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
        ask: &HttpRequest,
    ) -> Result<Reply, FetchError> {
        let mut url = endpoint
            .url_of(&ask.path)
            .ok_or(FetchError::OutsideService)?;
        let mut method = ask.method.clone();
        let mut requested = vec![url.clone()];
        loop {
            let request = self.request(method.clone(), url.clone(), credential, ask);
            let response = request.send().await;
            let response = response.map_err(|error| self.fetch_error(endpoint, &error))?;
            let reply = self.reply(endpoint, response).await?;
            let Some(location) = reply.redirect_location() else {
                let reply = reply.unpacked(self.body_limit)?;
                return Ok(reply.with_session_error());
            };
            let status = reply.status;
            let refused = |why| FetchError::Redirected {
                status,
                to: lattice_conformance::text::excerpt(location),
                why,
            };
            let target = endpoint.redirect_target(&url, location).map_err(refused)?;
            if requested.contains(&target) {
                return Err(refused(RedirectRefusal::Loop));
            }
            if requested.len() > MAX_REDIRECTS {
                return Err(refused(RedirectRefusal::TooMany));
            }
            // "See Other" may follow a change that was made, so a change is not repeated. A login without a token made
            // no session, and a session that has ended stays so; both are repeated, as for every other redirect.
            if status == StatusCode::SEE_OTHER.as_u16() && method == Method::PATCH {
                method = Method::GET;
            }
            requested.push(target.clone());
            url = target;
        }
    }

    fn request(
        &self,
        method: Method,
        url: Url,
        credential: &Credential,
        ask: &HttpRequest,
    ) -> RequestBuilder {
        let is_same = method == ask.method;
        let mut request = with_credential(self.client.request(method, url), credential);
        if let Some(body) = ask.body.as_ref().filter(|_| is_same) {
            request = request.json(body);
        }
        if let Some(etag) = ask.if_match.as_ref().filter(|_| is_same) {
            request = request.header(IF_MATCH, etag);
        }
        request
    }

    /// The answer with its body as received.
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
        // A location may contain letters that a URL should have encoded.
        let location = headers.get(LOCATION).map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            text.replace(char::is_control, "")
        });
        let codings = headers.get_all(CONTENT_ENCODING).into_iter();
        let codings: Vec<&str> = codings.filter_map(|value| value.to_str().ok()).collect();
        Ok(Reply {
            status: response.status().as_u16(),
            etag: text(ETAG.as_str()),
            location,
            codings: codings.join(","),
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
    /// Target of a redirect. A login with a token succeeded, whatever its status is; its location is the session.
    fn redirect_location(&self) -> Option<&str> {
        let is_redirect = matches!(self.status, 300..=399)
            && self.status != StatusCode::NOT_MODIFIED.as_u16()
            && self.token.is_none();
        self.location.as_deref().filter(|_| is_redirect)
    }

    /// The answer with its body unpacked. The status of an error is valid without its body.
    fn unpacked(mut self, limit: usize) -> Result<Self, FetchError> {
        let packed = std::mem::take(&mut self.body);
        match encoding::unpack(&self.codings, packed, limit) {
            Ok(body) => self.body = body,
            Err(_) if self.success().is_err() => {}
            Err(error) => return Err(error),
        }
        Ok(self)
    }

    /// The answer with status 401 if its body reports an invalid session. Some BMCs send that error with a status of
    /// success; without this rule the client would keep the invalid session.
    fn with_session_error(mut self) -> Self {
        let is_success = matches!(self.status, 200..=299);
        let is_error = self.status >= 400;
        // A login with a token succeeded.
        let may_be_invalid = (is_success || is_error) && self.token.is_none();
        if !may_be_invalid || self.body.len() > MAX_ERROR_BYTES {
            return self;
        }
        let is_invalid = body::parse(&self.body).is_ok_and(|value| {
            body::is_error_with(&value, &SESSION_ERRORS)
                || is_success && body::is_error_with(&value, &[UNAUTHORIZED])
        });
        if is_invalid {
            self.status = StatusCode::UNAUTHORIZED.as_u16();
        }
        self
    }

    /// Whether the body was compressed.
    pub fn was_compressed(&self) -> bool {
        encoding::is_compressed(&self.codings)
    }

    /// The resource of a 2xx answer, or the error for its status, or for a body in place of the resource.
    pub fn resource(&self) -> Result<Value, FetchError> {
        let value = self.json()?;
        if body::is_error(&value) {
            return Err(FetchError::ErrorBody {
                status: self.status,
                message: body::message(&value),
            });
        }
        if body::is_anonymous(&value) {
            let status = self.status;
            return Err(FetchError::NotResource { status });
        }
        Ok(value)
    }

    /// The JSON of a 2xx answer, or the error for its status.
    pub fn json(&self) -> Result<Value, FetchError> {
        self.success()?;
        body::parse(&self.body).map_err(|error| FetchError::NotJson {
            why: error.to_string(),
        })
    }

    /// `Ok` for a 2xx answer, else the error for its status.
    pub fn success(&self) -> Result<(), FetchError> {
        let status = self.status;
        match status {
            200..=299 => Ok(()),
            300..=399 => Err(FetchError::Redirected {
                status,
                to: self.location.clone().unwrap_or_default(),
                why: RedirectRefusal::InvalidTarget,
            }),
            401 | 403 => Err(FetchError::Denied {
                status,
                message: self.message(),
            }),
            404 | 410 => Err(FetchError::Absent),
            _ => Err(FetchError::Status {
                status,
                message: self.message(),
            }),
        }
    }

    /// The delay that a busy BMC demands, if any.
    pub fn demanded_delay(&self) -> Option<Duration> {
        let is_busy = self.status == StatusCode::SERVICE_UNAVAILABLE
            || self.status == StatusCode::TOO_MANY_REQUESTS;
        self.retry_after.filter(|_| is_busy)
    }

    /// The first message id and text of an error, shortened.
    pub fn message(&self) -> String {
        body::message(&body::parse(&self.body).unwrap_or_default())
    }
}
