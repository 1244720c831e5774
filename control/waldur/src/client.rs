//! Client of the parts of Waldur's REST API that accounting needs.
//!
//! The design follows the observed behaviour of a real Waldur. Usage is reported as absolute totals of a month, so a
//! repeat changes nothing. Waldur creates a second object with the same `backend_id` without an error, so every object
//! is looked up before it is created. A reply that is not JSON counts as an outage, except with status 404.

mod clock;
mod credit;
mod objects;
mod orders;
mod resources;
mod scope;
mod usage;

pub use clock::{GUARD_AFTER_MS, GUARD_BEFORE_MS, MonthPhase};
pub use credit::{HoursLimit, PurchasedLimits, purchased_limits};
pub use objects::{ObjectParameters, Objects};
pub use orders::{OpenOrder, OrderKind};
pub use resources::KnownResource;
pub use scope::ResourceScope;
pub use usage::{Amounts, MonthUsage};

use crate::secret::{SecretError, SecretRef, Secrets};
use clock::DateSample;
use jiff::tz::TimeZone;
use lattice_host::error_text::innermost;
use lattice_ledger::Month;
use lattice_quorum_types::{UnixMillis, text::with_ellipsis};
use reqwest::{
    Client, Method, RequestBuilder, StatusCode, Url,
    header::{AUTHORIZATION, DATE, HeaderValue, RETRY_AFTER},
    redirect,
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// Timeout of a request. A request takes a sixth of a second on a small server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest reply that is read, in bytes.
const MAX_REPLY_BYTES: usize = 32 << 20;
/// Objects per page. Waldur 7 returns no more; 8 returns at most 100.
const PAGE_SIZE: usize = 300;
/// Longest part of a reply in an error text, in bytes.
const MAX_SHOWN_BYTES: usize = 400;

/// Error of a request to Waldur.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaldurError {
    /// The connection failed, or the reply is not a valid one of Waldur. The outcome of the request is unknown.
    #[error("Waldur is unreachable or its reply is invalid: {reason}")]
    Unreached {
        /// Innermost cause, or the fault of the reply.
        reason: String,
    },
    /// Waldur cannot handle the request now.
    #[error("Waldur answered with status {status}")]
    Busy {
        /// HTTP status: 429, or 500 and above.
        status: u16,
        /// Time to wait before a retry, if the reply contains it.
        retry_after: Option<Duration>,
    },
    /// Waldur rejects the token, or the token is not valid in an HTTP header.
    #[error("Waldur rejects the token: {reason}")]
    Denied {
        /// Reason from the reply.
        reason: String,
    },
    /// The token cannot be read.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// Waldur rejects the request.
    #[error("Waldur rejected {what} with status {status}: {reason}")]
    Refused {
        /// Path of the request.
        what: String,
        /// HTTP status: 400, 403, 404, 409, …
        status: u16,
        /// Reason from the reply.
        reason: String,
    },
}

impl WaldurError {
    /// Whether a retry may succeed. A transient error stops the round; a rejected request is set aside and blocks
    /// nothing.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Time to wait before a retry, if the reply contained it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

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

/// Client of one Waldur instance for one cluster. See the module documentation.
#[derive(Debug)]
pub struct WaldurClient {
    /// Cluster of the resources.
    cluster: String,
    http: Client,
    api: Url,
    secrets: Secrets,
    token_ref: SecretRef,
    token: Mutex<Option<SecretString>>,
    /// The last `Date` header.
    date: parking_lot::Mutex<Option<DateSample>>,
}

/// Reply of Waldur.
struct Answer {
    status: StatusCode,
    body: Value,
    count: Option<usize>,
}

impl WaldurClient {
    /// Creates a client of `cluster` for the API at `api`, which ends in `/api/`.
    pub fn new(
        cluster: &str,
        http: Client,
        api: Url,
        secrets: Secrets,
        token_ref: SecretRef,
    ) -> Self {
        let token = Mutex::new(None);
        Self {
            cluster: cluster.to_owned(),
            http,
            api,
            secrets,
            token_ref,
            token,
            date: parking_lot::Mutex::default(),
        }
    }

    /// Cluster of the resources.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Whether usage can be reported now, and for which month, by Waldur's clock as its last answer showed it. `now` is
    /// our own time, which counts only where Waldur shows none.
    pub fn month_phase(&self, now: UnixMillis, zone: &TimeZone) -> MonthPhase {
        clock::phase_by(*self.date.lock(), now, zone)
    }

    /// Present month, and the time until the guard before its end begins, by Waldur's clock as its last answer showed it.
    /// `None` while a month ends about now.
    pub fn time_to_guard(&self, now: UnixMillis, zone: &TimeZone) -> Option<(Month, Duration)> {
        clock::guard_by(*self.date.lock(), now, zone)
    }

    /// Difference of Waldur's clock from ours in milliseconds, positive where Waldur's is ahead; `None` while it is
    /// unknown.
    pub fn clock_skew_ms(&self, now: UnixMillis) -> Option<i64> {
        clock::skew_ms(*self.date.lock(), now)
    }

    /// Version of Waldur, such as `7.0.7+2.g1ea6cb820`; `None` where the token's user may not read it. Waldur 7 shows it
    /// to staff and support alone.
    ///
    /// # Errors
    /// Returns a [`WaldurError`], but none for a refusal.
    pub async fn version(&self) -> Result<Option<String>, WaldurError> {
        match self.get("version/", &[]).await {
            Ok(answer) => Ok(answer["version"].as_str().map(str::to_owned)),
            Err(WaldurError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that Waldur answers and accepts the token. Returns its version, as far as the token's user may read it.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn check_access(&self) -> Result<String, WaldurError> {
        self.get("customers/", &[("page_size", "1")]).await?;
        let version = self.version().await?;
        Ok(version.unwrap_or_else(|| "unknown to this user".to_owned()))
    }

    fn url(&self, path: &str) -> String {
        // `api` ends with a slash, and no path begins with one.
        format!("{}{path}", self.api)
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, WaldurError> {
        let ask = self.http.request(Method::GET, self.url(path)).query(query);
        Ok(self.send(path, ask).await?.body)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, WaldurError> {
        let ask = self.http.request(Method::POST, self.url(path)).json(body);
        Ok(self.send(path, ask).await?.body)
    }

    /// Fetches all pages of a list. A list with a missing page is an error: limits and usage must not be computed from a
    /// part of it.
    async fn list(&self, path: &str, query: &[(&str, &str)]) -> Result<Vec<Value>, WaldurError> {
        let incomplete = |page: usize, fetched: usize, count: usize| WaldurError::Unreached {
            reason: format!(
                "page {page} of {path} is missing: {fetched} of {count} objects were returned"
            ),
        };
        let mut all: Vec<Value> = Vec::new();
        let mut count = None;
        for page in 1.. {
            let ask = self.http.request(Method::GET, self.url(path)).query(query);
            let place = [("page", page), ("page_size", PAGE_SIZE)];
            let answer = match self.send(path, ask.query(&place)).await {
                Err(WaldurError::Refused { status: 404, .. }) if page > 1 => match count {
                    Some(count) => return Err(incomplete(page, all.len(), count)),
                    // Waldur has no page after the last one.
                    None => break,
                },
                answer => answer?,
            };
            count = answer.count.or(count);
            let Value::Array(items) = answer.body else {
                let reason = format!("the reply to {path} is not a list");
                return Err(WaldurError::Unreached { reason });
            };
            let of_page = items.len();
            // A server that ignores the page number returns the same page without end.
            if count.is_none() && of_page > 0 && all.ends_with(&items) {
                let reason = format!("pages {} and {page} of {path} are the same", page - 1);
                return Err(WaldurError::Unreached { reason });
            }
            all.extend(items);
            if !is_last_page(of_page, all.len(), count) {
                continue;
            }
            match count {
                Some(count) if all.len() < count => {
                    return Err(incomplete(page, all.len(), count));
                }
                _ => break,
            }
        }
        Ok(all)
    }

    /// Sends a request with the token. If Waldur rejects a cached token, reads the token again and repeats the request
    /// once.
    async fn send(&self, what: &str, ask: RequestBuilder) -> Result<Answer, WaldurError> {
        let again = ask.try_clone();
        let (token, is_new) = self.token().await?;
        match self.send_with_token(what, ask, &token).await {
            Err(WaldurError::Denied { reason }) => {
                *self.token.lock().await = None;
                if is_new {
                    return Err(WaldurError::Denied { reason });
                }
                let (token, _) = self.token().await?;
                match again {
                    Some(again) => self.send_with_token(what, again, &token).await,
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
        ask: RequestBuilder,
        token: &SecretString,
    ) -> Result<Answer, WaldurError> {
        let unreached = |reason: String| WaldurError::Unreached { reason };
        let value = HeaderValue::from_str(&format!("Token {}", token.expose_secret()));
        let mut value = value.map_err(|_| WaldurError::Denied {
            reason: "the token contains characters that are not valid in an HTTP header".to_owned(),
        })?;
        value.set_sensitive(true);
        let begun = Instant::now();
        let sent = ask.header(AUTHORIZATION, value).send().await;
        let mut answer = sent.map_err(|error| unreached(innermost(&error).to_string()))?;
        let status = answer.status();
        let header = |name: &str| answer.headers().get(name)?.to_str().ok().map(str::to_owned);
        if let Some(date) = header(DATE.as_str()) {
            *self.date.lock() = DateSample::new(&date, begun, Instant::now());
        }
        let count = header("x-result-count").and_then(|count| count.parse().ok());
        let retry_after = header(RETRY_AFTER.as_str()).and_then(|after| after.parse().ok());
        let mut bytes = Vec::new();
        while let Some(piece) = answer
            .chunk()
            .await
            .map_err(|error| unreached(innermost(&error).to_string()))?
        {
            if bytes.len() + piece.len() > MAX_REPLY_BYTES {
                return Err(unreached(format!(
                    "the reply is longer than {MAX_REPLY_BYTES} bytes"
                )));
            }
            bytes.extend_from_slice(&piece);
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(WaldurError::Busy {
                status: status.as_u16(),
                retry_after: retry_after.map(Duration::from_secs),
            });
        }
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => match serde_json::from_slice(&bytes) {
                Ok(body) => body,
                // Waldur replies to unknown routes with an HTML page.
                Err(_) if status == StatusCode::NOT_FOUND => Value::Null,
                Err(_) => return Err(unreached("the reply is not valid JSON".to_owned())),
            },
        };
        if status == StatusCode::UNAUTHORIZED {
            let reason = error_text(&body);
            return Err(WaldurError::Denied { reason });
        }
        if !status.is_success() {
            return Err(WaldurError::Refused {
                what: what.to_owned(),
                status: status.as_u16(),
                reason: error_text(&body),
            });
        }
        Ok(Answer {
            status,
            body,
            count,
        })
    }

    /// Sends a request that Waldur rejects with status 409 if it was done before. That status counts as success.
    async fn post_once(&self, path: &str, body: &Value) -> Result<(), WaldurError> {
        match self.post(path, body).await {
            Ok(_) | Err(WaldurError::Refused { status: 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds an event as an item of an invoice, at a path that Waldur itself does not have
    /// ([`crate::config::WaldurConfig::seed_paths`]). A repeat changes nothing.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn add_item(
        &self,
        invoice: &str,
        key: &str,
        item: &Value,
    ) -> Result<(), WaldurError> {
        let path = format!("invoices/{invoice}/items/");
        let ask = self.http.request(Method::POST, self.url(&path));
        let ask = ask.header("Idempotency-Key", key).json(item);
        let answer = self.send(&path, ask).await?;
        tracing::trace!(
            status = answer.status.as_u16(),
            key,
            "accounting event reported"
        );
        Ok(())
    }
}

/// Whether a list has no further page: `of_page` objects are on this page, `fetched` on all pages so far. `count` is
/// the number of objects of the list; a proxy may remove the header that contains it. Without it, any page with objects
/// may have a successor, because a server may return fewer objects per page than requested.
fn is_last_page(of_page: usize, fetched: usize, count: Option<usize>) -> bool {
    of_page == 0 || count.is_some_and(|count| fetched >= count)
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use axum::{
        Json, Router,
        extract::Query,
        http::{HeaderMap, StatusCode as Status},
        routing::get,
    };
    use serde_json::json;
    use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _};

    /// Reply of a test server to the request for a page.
    type Reply = (Status, HeaderMap, Json<Value>);

    /// Fetches a list from a server that returns `replies[page - 1]`, and status 404 after the last of them. A reply is
    /// the number of its objects and the count in its header. Each object is `{"n": …}`, with its place in the list.
    async fn listed(replies: &[(usize, Option<usize>)]) -> Result<Vec<Value>, WaldurError> {
        let replies = replies.to_vec();
        let reply = move |Query(query): Query<BTreeMap<String, String>>| {
            let page: usize = query["page"].parse().unwrap();
            let before: usize = replies.iter().take(page - 1).map(|reply| reply.0).sum();
            let reply: Reply = match replies.get(page - 1) {
                Some((objects, count)) => {
                    let objects = (before..before + objects).map(|n| json!({"n": n}));
                    let mut headers = HeaderMap::new();
                    if let Some(count) = count {
                        headers.insert("x-result-count", count.to_string().parse().unwrap());
                    }
                    (Status::OK, headers, Json(objects.collect()))
                }
                None => {
                    let body = json!({"detail": "Invalid page."});
                    (Status::NOT_FOUND, HeaderMap::new(), Json(body))
                }
            };
            async move { reply }
        };
        list_from(Router::new().route("/api/customers/", get(reply))).await
    }

    async fn list_from(router: Router) -> Result<Vec<Value>, WaldurError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}/api/", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, "0123456789abcdef").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let http = http_client(&[]).unwrap();
        let secrets = Secrets {
            http: http.clone(),
            vault: None,
        };
        let api = api.parse().unwrap();
        let client = WaldurClient::new("alps", http, api, secrets, SecretRef::File(token));
        let listed = client.list("customers/", &[]).await;
        serving.abort();
        listed
    }

    /// Number of objects on a page, and the count in its header.
    type PageReply = (usize, Option<usize>);

    #[tokio::test]
    async fn complete_list_is_returned() {
        let cases: [(&[PageReply], usize); 7] = [
            (&[(0, Some(0))], 0),
            (&[(100, Some(150)), (50, Some(150))], 150),
            // A server with smaller pages than requested.
            (&[(20, Some(50)), (20, Some(50)), (10, Some(50))], 50),
            (&[(20, None), (20, None), (10, None)], 50),
            // The count may be missing in some replies.
            (&[(100, Some(150)), (50, None)], 150),
            (&[(100, None), (100, None)], 200),
            (&[(20, None), (0, None)], 20),
        ];
        for (replies, expected) in cases {
            let all = listed(replies).await.unwrap();
            let all: Vec<_> = all.iter().map(|one| one["n"].as_u64().unwrap()).collect();
            let expected: Vec<_> = (0..expected as u64).collect();
            assert_eq!(all, expected, "{replies:?}");
        }
    }

    #[tokio::test]
    async fn list_with_missing_page_is_an_error() {
        let cases: [(&[PageReply], &str); 4] = [
            (
                &[(100, Some(250))],
                "page 2 of customers/ is missing: 100 of 250",
            ),
            (
                &[(100, Some(250)), (100, None)],
                "page 3 of customers/ is missing: 200 of 250",
            ),
            (
                &[(100, Some(250)), (0, Some(250))],
                "page 2 of customers/ is missing: 100 of 250",
            ),
            (&[(0, Some(1))], "page 1 of customers/ is missing: 0 of 1"),
        ];
        for (replies, expected) in cases {
            let reason = format!("{expected} objects were returned");
            assert_eq!(
                listed(replies).await,
                Err(WaldurError::Unreached { reason }),
                "{replies:?}"
            );
        }
    }

    #[tokio::test]
    async fn repeated_page_is_an_error() {
        let reply = || async { Json(json!([{"n": 1}, {"n": 2}])) };
        let listed = list_from(Router::new().route("/api/customers/", get(reply))).await;
        let reason = "pages 1 and 2 of customers/ are the same".to_owned();
        assert_eq!(listed, Err(WaldurError::Unreached { reason }));
    }

    /// Without a count in the reply, any page with objects may have a successor.
    #[test]
    fn list_without_count_continues_after_page_with_objects() {
        let cases = [
            ((100, 100, None), false),
            ((99, 199, None), false),
            ((0, 200, None), true),
            ((100, 100, Some(101)), false),
            ((100, 100, Some(100)), true),
            ((20, 20, Some(21)), false),
            ((0, 20, Some(21)), true),
        ];
        for ((of_page, fetched, count), is_last) in cases {
            assert_eq!(
                is_last_page(of_page, fetched, count),
                is_last,
                "{of_page} {fetched} {count:?}"
            );
        }
    }
}
