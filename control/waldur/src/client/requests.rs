//! Requests to Waldur: one request with the token, and its reply.

use super::{WaldurClient, WaldurError, clock::DateSample};
use lattice_host::error_text::innermost;
use lattice_quorum_types::text::with_ellipsis;
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, DATE, HeaderValue, RETRY_AFTER},
    redirect,
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Timeout of a request. A request takes a sixth of a second on a small server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest reply that is read, in bytes.
const MAX_REPLY_BYTES: usize = 32 << 20;
/// Longest part of a reply in an error text, in bytes.
const MAX_SHOWN_BYTES: usize = 400;

/// Failure to create an HTTP client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The CA file cannot be parsed.
    #[error("the CA file cannot be parsed: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The HTTP client cannot be created.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] reqwest::Error),
}

/// Creates a client that trusts the system's CAs and those in `pem`.
///
/// # Errors
/// Returns an error when either set of CAs cannot be read, or TLS or the client cannot be set up.
pub fn http_client(pem: &[u8]) -> Result<Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let more = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    let verifier = match more.is_empty() {
        true => rustls_platform_verifier::Verifier::new(provider.clone())?,
        false => rustls_platform_verifier::Verifier::new_with_extra_roots(more, provider.clone())?,
    };
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(REQUEST_TIMEOUT)
        .redirect(redirect::Policy::none())
        .user_agent(concat!("lattice/", env!("CARGO_PKG_VERSION")));
    Ok(client.build()?)
}

/// Reply of Waldur.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    /// Number of objects of a list, if the reply contains it.
    pub(super) count: Option<usize>,
}

/// Whether a request may still be sent.
pub(super) type MaySend<'a> = &'a (dyn Fn() -> bool + Send + Sync);

impl WaldurClient {
    pub(super) fn url(&self, path: &str) -> String {
        // `api` ends with a slash, and no path begins with one.
        format!("{}{path}", self.api)
    }

    pub(super) async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, WaldurError> {
        let request = self.http.request(Method::GET, self.url(path)).query(query);
        Ok(self.send(path, request).await?.body)
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, WaldurError> {
        let request = self.http.request(Method::POST, self.url(path)).json(body);
        let answer = self.send(path, request).await;
        Ok(answer.map_err(|error| error.of_post(path))?.body)
    }

    /// Posts a body, unless `may_send` is false when the turn of the request has come. Returns whether it was sent.
    pub(super) async fn post_if(
        &self,
        path: &str,
        body: &Value,
        may_send: MaySend<'_>,
    ) -> Result<bool, WaldurError> {
        let request = self.http.request(Method::POST, self.url(path)).json(body);
        let answer = self.send_if(path, request, may_send).await;
        let sent = answer.map_err(|error| error.of_post(path))?;
        Ok(sent.is_some())
    }

    /// Sends a request with the token. If Waldur rejects a cached token, reads the token again and repeats the request
    /// once.
    pub(super) async fn send(
        &self,
        what: &str,
        request: RequestBuilder,
    ) -> Result<Answer, WaldurError> {
        let answer = self.send_if(what, request, &|| true).await?;
        answer.ok_or_else(|| WaldurError::Unreached {
            reason: format!("{what} was not sent"),
        })
    }

    /// [`Self::send`], unless `may_send` is false when the turn of the request has come, which may be minutes later.
    pub(super) async fn send_if(
        &self,
        what: &str,
        request: RequestBuilder,
        may_send: MaySend<'_>,
    ) -> Result<Option<Answer>, WaldurError> {
        let again = request.try_clone();
        let (token, is_new) = self.token().await?;
        match self.send_with_token(what, request, &token, may_send).await {
            Err(WaldurError::Denied { reason }) => {
                *self.token.lock().await = None;
                if is_new {
                    return Err(WaldurError::Denied { reason });
                }
                let (token, _) = self.token().await?;
                match again {
                    Some(again) => self.send_with_token(what, again, &token, may_send).await,
                    None => Err(WaldurError::Denied { reason }),
                }
            }
            answer => answer,
        }
    }

    /// The token, and whether it was read by this call.
    async fn token(&self) -> Result<(SecretString, bool), WaldurError> {
        let mut known = self.token.lock().await;
        if let Some(token) = &*known {
            return Ok((token.clone(), false));
        }
        let token = self.secrets.read(&self.token_ref).await?;
        *known = Some(token.clone());
        Ok((token, true))
    }

    async fn send_with_token(
        &self,
        what: &str,
        request: RequestBuilder,
        token: &SecretString,
        may_send: MaySend<'_>,
    ) -> Result<Option<Answer>, WaldurError> {
        let permit = self.pace.begin().await;
        if !may_send() {
            return Ok(None);
        }
        let begun = Instant::now();
        let answer = self.exchange(what, request, token).await;
        self.pace.end(permit, begun.elapsed());
        answer.map(Some)
    }

    async fn exchange(
        &self,
        what: &str,
        request: RequestBuilder,
        token: &SecretString,
    ) -> Result<Answer, WaldurError> {
        let begun = Instant::now();
        let request = request.header(AUTHORIZATION, authorization(token)?);
        let mut response = request.send().await.map_err(|error| unreached(&error))?;
        let status = response.status();
        let header = |name: &str| {
            response
                .headers()
                .get(name)?
                .to_str()
                .ok()
                .map(str::to_owned)
        };
        if let Some(date) = header(DATE.as_str()) {
            *self.date.lock() = DateSample::new(&date, begun, Instant::now());
        }
        let count = header("x-result-count").and_then(|count| count.parse().ok());
        let retry_after = header(RETRY_AFTER.as_str()).and_then(|after| after.parse().ok());
        let bytes = read_body(&mut response).await?;
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(WaldurError::Busy {
                what: what.to_owned(),
                status: status.as_u16(),
                retry_after: retry_after.map(Duration::from_secs),
            });
        }
        let body = parse_body(what, status, &bytes)?;
        match status {
            StatusCode::UNAUTHORIZED => Err(WaldurError::Denied {
                reason: error_text(&body),
            }),
            status if status.is_success() => Ok(Answer {
                status,
                body,
                count,
            }),
            status => Err(WaldurError::Refused {
                what: what.to_owned(),
                status: status.as_u16(),
                reason: error_text(&body),
            }),
        }
    }

    /// Sends a request that Waldur rejects with status 409 if it was done before. That status counts as success.
    pub(super) async fn post_once(&self, path: &str, body: &Value) -> Result<(), WaldurError> {
        match self.post(path, body).await {
            Ok(_) | Err(WaldurError::Refused { status: 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Header with the token, which is in no log.
fn authorization(token: &SecretString) -> Result<HeaderValue, WaldurError> {
    let value = HeaderValue::from_str(&format!("Token {}", token.expose_secret()));
    let mut value = value.map_err(|_| WaldurError::Denied {
        reason: "the token contains characters that are not valid in an HTTP header".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn unreached(error: &reqwest::Error) -> WaldurError {
    WaldurError::Unreached {
        reason: innermost(error).to_string(),
    }
}

/// Body of a reply, up to [`MAX_REPLY_BYTES`].
async fn read_body(response: &mut Response) -> Result<Vec<u8>, WaldurError> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| unreached(&error))? {
        if bytes.len() + piece.len() > MAX_REPLY_BYTES {
            return Err(WaldurError::Unreached {
                reason: format!("the reply is longer than {MAX_REPLY_BYTES} bytes"),
            });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// JSON of a body; `null` for an empty one.
fn parse_body(what: &str, status: StatusCode, bytes: &[u8]) -> Result<Value, WaldurError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    match serde_json::from_slice(bytes) {
        Ok(body) => Ok(body),
        // Waldur replies to unknown routes with an HTML page.
        Err(_) if status == StatusCode::NOT_FOUND => Ok(Value::Null),
        Err(_) => Err(WaldurError::Unreached {
            reason: format!("the reply to {what} is not valid JSON"),
        }),
    }
}

/// Error text of a reply, shortened.
fn error_text(body: &Value) -> String {
    let text = match body {
        Value::Null => return "the reply has no error text".to_owned(),
        Value::Object(fields) if fields.len() == 1 => match fields.get("detail") {
            Some(Value::String(detail)) => detail.clone(),
            _ => body.to_string(),
        },
        other => other.to_string(),
    };
    with_ellipsis(&text, MAX_SHOWN_BYTES)
}
