//! OpenID Connect: tokens signed by an issuer, in addition to those of the token file.
//!
//! A separate task ([`Issuer::follow`]) requests the issuer's discovery document and keys, and nothing else: at the
//! start of control, periodically, and when a token may be signed with an unknown key. Only in the last case does an
//! API request wait for the issuer, for a limited time. Known keys stay in force while the issuer does not answer.
//!
//! `jose.rs` verifies signatures, and `claims.rs` validates claims; both use no clock and no network. The design is
//! explained in `0002-tokens-of-an-issuer.md`.

mod claims;
mod jose;

use super::caller::Caller;
use crate::oidc_config::OidcConfig;
use arc_swap::ArcSwapOption;
use claims::{ClaimsError, Rules, TokenIdentity};
use jose::{Keys, Token};
use lattice_api::problem::{Kind, Problem};
use lattice_engine::web_client::{self, ClientError, FetchError, Trust, WebClient};
use lattice_quorum_types::UnixMillis;
use parking_lot::{Mutex, MutexGuard};
use reqwest::Url;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::Deserialize;
use std::{fmt, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};

/// Path of the issuer's discovery document, below its address.
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// Timeout for each of the issuer's two answers (discovery document, keys).
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer: a key set with certificates takes some tens of KiB.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// First pause after a failed read of the keys; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Shortest time between two key requests because of an unknown key: invented key names must not cause unlimited
/// requests to the issuer.
const MIN_UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time that an API request with an unknown key waits for the issuer.
const MAX_KEY_WAIT: Duration = Duration::from_secs(10);

/// The issuer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The HTTP client cannot be set up.
    #[error("https.oidc: {reason}")]
    Client {
        /// Cause of the failure.
        reason: String,
    },
    /// A setting is invalid.
    #[error("https.oidc.{key}: {reason}")]
    Key {
        /// Setting below `https.oidc`.
        key: &'static str,
        /// Cause of the failure.
        reason: String,
    },
}

impl From<ClientError> for IssuerError {
    fn from(error: ClientError) -> Self {
        Self::Client {
            reason: lattice_host::error_text::with_causes(&error),
        }
    }
}

/// Reason why the keys of the issuer could not be refreshed.
#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error("{url}: {source}")]
    Fetch { url: Url, source: FetchError },
    #[error("{url}: unexpected answer: {source}")]
    Unreadable { url: Url, source: serde_json::Error },
    #[error("{url}: `issuer` in the discovery document differs from `https.oidc.issuer`")]
    OtherIssuer { url: Url },
    #[error("{url}: `jwks_uri` in the discovery document is not an https URL")]
    Insecure { url: Url },
    #[error("{url}: the key set has no signature key of a supported type")]
    NoKeys { url: Url },
}

impl KeysError {
    /// Next step for the operator.
    fn next_step(&self) -> &'static str {
        match self {
            Self::Fetch { .. } => "correct `issuer`, or give the CAs of the issuer in `ca_file`",
            Self::Unreadable { .. } => "correct `issuer`: another service answers there",
            Self::OtherIssuer { .. } => "set `issuer` exactly to that of the discovery document",
            Self::Insecure { .. } | Self::NoKeys { .. } => "correct the realm at the issuer",
        }
    }
}

/// Failed check of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerFault {
    /// Cause of the failure.
    pub cause: String,
    /// Next step for the operator.
    pub next_step: &'static str,
}

/// Discovery document of the issuer, as far as it is used.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// Keys, and the time of their last successful read.
struct CachedKeys {
    keys: Keys,
    at: Instant,
}

/// State of key requests caused by unknown keys.
#[derive(Default)]
struct KeyFetchState {
    last: Option<Instant>,
    /// A key request is in progress.
    is_pending: bool,
}

/// An issuer of tokens and its known keys.
pub struct Issuer {
    rules: Rules,
    web: WebClient,
    discovery: Url,
    refresh: Duration,
    known: ArcSwapOption<CachedKeys>,
    key_fetch: Mutex<KeyFetchState>,
    fetch_requested: Notify,
    /// Number of completed key requests.
    rounds: watch::Sender<u64>,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Issuer({})", self.rules.issuer)
    }
}

impl Issuer {
    /// Creates an issuer from a checked configuration. Reads its CA file; sends no request yet.
    ///
    /// # Errors
    /// The CA file is unusable, the issuer URL is invalid, or TLS cannot be set up.
    pub fn new(config: &OidcConfig) -> Result<Self, IssuerError> {
        let trust = match &config.ca_file {
            Some(path) => Trust::Only(authorities(path)?),
            None => Trust::System,
        };
        let web = WebClient::new(web_client::client(trust)?, None, DEADLINE, MAX_ANSWER_BYTES);
        let wrong = |key: &'static str, reason: String| IssuerError::Key { key, reason };
        let web = web.map_err(|error| wrong("issuer", error.to_string()))?;
        let discovery = format!("{}{DISCOVERY}", config.issuer.trim_end_matches('/'));
        let discovery = Url::parse(&discovery);
        Ok(Self {
            rules: Rules::from(config),
            web,
            discovery: discovery.map_err(|error| wrong("issuer", error.to_string()))?,
            refresh: Duration::from_secs(config.refresh_s),
            known: ArcSwapOption::empty(),
            key_fetch: Mutex::default(),
            fetch_requested: Notify::new(),
            rounds: watch::Sender::new(0),
        })
    }

    fn turn(&self) -> MutexGuard<'_, KeyFetchState> {
        self.key_fetch.lock()
    }

    /// Keeps the keys up to date; never ends.
    pub async fn follow(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        let mut said = String::new();
        loop {
            let read = self.read_keys().await;
            let wait = match read {
                Ok(keys) => {
                    if !said.is_empty() || self.known.load().is_none() {
                        tracing::info!(
                            issuer = self.rules.issuer,
                            keys = keys.len(),
                            "OIDC token keys read"
                        );
                    }
                    said.clear();
                    pause = FIRST_PAUSE;
                    let at = Instant::now();
                    self.known.store(Some(Arc::new(CachedKeys { keys, at })));
                    self.refresh
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        let has_keys = self.known.load().is_some();
                        tracing::warn!(
                            issuer = self.rules.issuer,
                            has_keys,
                            "OIDC token keys not read: {text}"
                        );
                        said = text;
                    }
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait.min(self.refresh)
                }
            };
            self.turn().is_pending = false;
            self.rounds.send_modify(|rounds| *rounds += 1);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.fetch_requested.notified() => {}
            }
        }
    }

    async fn read_keys(&self) -> Result<Keys, KeysError> {
        let url = || self.discovery.clone();
        let text = self.get(&self.discovery).await?;
        let said: Discovery = serde_json::from_slice(&text)
            .map_err(|source| KeysError::Unreadable { url: url(), source })?;
        if said.issuer != self.rules.issuer {
            return Err(KeysError::OtherIssuer { url: url() });
        }
        let place = Url::parse(&said.jwks_uri).ok();
        let place = place.filter(|place| place.scheme() == "https");
        let place = place.ok_or_else(|| KeysError::Insecure { url: url() })?;
        let text = self.get(&place).await?;
        match Keys::read(&text) {
            Ok(keys) if keys.len() > 0 => Ok(keys),
            Ok(_) => Err(KeysError::NoKeys { url: place }),
            Err(source) => Err(KeysError::Unreadable { url: place, source }),
        }
    }

    /// Reads the discovery document and the keys once, and returns the number of keys. For a check of the configuration.
    ///
    /// # Errors
    /// The issuer does not answer, or its answer cannot be used.
    pub async fn check_keys(&self) -> Result<usize, IssuerFault> {
        match self.read_keys().await {
            Ok(keys) => Ok(keys.len()),
            Err(error) => Err(IssuerFault {
                cause: error.to_string(),
                next_step: error.next_step(),
            }),
        }
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, KeysError> {
        let got = self.web.get(url).await;
        got.map_err(|source| KeysError::Fetch {
            url: url.clone(),
            source,
        })
    }

    /// Time since the keys were last read; `None` before the first read.
    pub(crate) fn keys_age(&self) -> Option<Duration> {
        Some(self.known.load().as_ref()?.at.elapsed())
    }

    /// Identifies the caller by a text with the form of an issuer's token; `None` for any other text.
    pub(crate) async fn find(
        &self,
        text: &str,
        now: UnixMillis,
    ) -> Option<Result<Caller, Problem>> {
        if !Token::has_token_form(text) {
            return None;
        }
        Some(self.verify(text, now).await)
    }

    async fn verify(&self, text: &str, now: UnixMillis) -> Result<Caller, Problem> {
        let token = Token::read(text);
        let token =
            token.map_err(|why| unauthenticated(&format!("the token cannot be used: {why}")))?;
        let seen = self.rounds.subscribe();
        let mut signed = self.is_signed(&token)?;
        // A token without a key name may be signed by a key published since.
        let may_be_newer = match signed {
            None => true,
            Some(good) => !good && !token.names_key(),
        };
        if may_be_newer && self.refetch_keys(seen).await {
            signed = self.is_signed(&token)?;
        }
        match signed {
            Some(true) => {}
            Some(false) => {
                return Err(unauthenticated(
                    "the token's signature is not valid for the issuer's key",
                ));
            }
            None => {
                return Err(unauthenticated(
                    "the key (`kid`) of the token is not among its issuer's known keys; keys are \
                     read again at most once a minute for this",
                ));
            }
        }
        let holder = self.rules.identity(token.payload(), now);
        holder
            .map(|holder| caller(holder, now))
            .map_err(|fault| match fault {
                ClaimsError::NotValid(text) => unauthenticated(&text),
                ClaimsError::NotAllowed(text) => Problem::new(Kind::Forbidden, "forbidden", text),
            })
    }

    /// Whether the issuer signed the token; `None` if no known key matches the token.
    fn is_signed(&self, token: &Token<'_>) -> Result<Option<bool>, Problem> {
        let known = self.known.load();
        let known = known.as_ref().ok_or_else(|| self.no_keys())?;
        Ok(known.keys.for_token(token).map(|key| key.verifies(token)))
    }

    fn no_keys(&self) -> Problem {
        let detail = format!(
            "tokens of {} cannot be verified yet: the issuer's keys have not been readable since \
             this control started, and are requested again. Tokens of this cluster's own file are \
             accepted meanwhile",
            self.rules.issuer
        );
        Problem::new(Kind::Unavailable, "issuer_unavailable", detail)
    }

    /// Requests the keys and waits until the request has ended, successfully or not; `false` if the last such request
    /// was too recent, or the wait took too long.
    async fn refetch_keys(&self, mut seen: watch::Receiver<u64>) -> bool {
        {
            let mut turn = self.turn();
            let is_due = turn
                .last
                .is_none_or(|at| at.elapsed() >= MIN_UNKNOWN_KEY_INTERVAL);
            if !turn.is_pending && !is_due {
                return false;
            }
            if !turn.is_pending {
                turn.last = Some(Instant::now());
                turn.is_pending = true;
                self.fetch_requested.notify_one();
            }
        }
        matches!(timeout(MAX_KEY_WAIT, seen.changed()).await, Ok(Ok(())))
    }
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(Kind::Unauthenticated, "unauthenticated", detail)
}

fn caller(holder: TokenIdentity, now: UnixMillis) -> Caller {
    let left = Duration::from_millis(holder.valid_until.since(now));
    Caller {
        name: holder.name.into(),
        role: holder.role,
        tenants: holder.tenants.map(Arc::new),
        // If the expiry is beyond the range of the clock, the token does not end by itself.
        expires_at: Instant::now().checked_add(left),
    }
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, IssuerError> {
    let wrong = |reason: String| IssuerError::Key {
        key: "ca_file",
        reason: format!("{}: {reason}", path.display()),
    };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(wrong("the file contains no certificate".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(error.to_string())),
    }
}
