//! HTTP client of one BMC: its credentials, its single request in flight, and its circuit breaker.

use super::breaker::{Breaker, BreakerState};
use super::endpoint::{Endpoint, EndpointError, LimitWriter, ReadOnly};
use super::environment::Environment;
use super::error::FetchError;
use super::session::{self, Login};
use super::settings::Settings;
use super::wire::{HttpClient, HttpRequest};
use crate::ResourcePath;
use lattice_conformance::Reading;
use parking_lot::{Mutex as Short, MutexGuard};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// One account with its connection.
#[derive(Debug)]
pub(super) struct Account {
    pub endpoint: Endpoint,
    pub wire: HttpClient,
}

/// State that only the current requester may access.
#[derive(Debug, Default)]
pub(super) struct RequestState {
    reads: Login,
    caps: Login,
    /// The pass in which a newly made login was denied, per account; another new login would be denied too.
    refused_in: [Option<u64>; 2],
}

/// The account used for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountRole {
    Reader,
    Capper,
}

/// Client of one BMC. Callers wait for their turn, so only one request is in flight. Share the client in an `Arc`, and
/// [`Bmc::close`] it before dropping it; otherwise its session remains until the BMC ends it.
#[derive(Debug)]
pub struct Bmc {
    reads: Account,
    caps: Option<Account>,
    pub(super) line: Mutex<RequestState>,
    passes: AtomicU64,
    breaker: Short<Breaker>,
    /// No request is sent before this time, as the BMC demanded.
    retry_after: Short<Option<Instant>>,
    pub(super) writer: Mutex<()>,
    pub(super) settings: Settings,
    pub(super) environment: Environment,
}

/// Response to a successful GET.
#[derive(Debug)]
pub(super) struct FetchedDocument {
    pub value: Value,
    pub etag: Option<String>,
}

impl Bmc {
    /// Creates a client without a connection.
    ///
    /// # Errors
    /// Trust or the HTTP client cannot be set up, or the two endpoints have different addresses.
    pub fn new(
        reads: ReadOnly,
        caps: Option<LimitWriter>,
        settings: Settings,
        environment: Environment,
    ) -> Result<Self, EndpointError> {
        let account = |endpoint: Endpoint| -> Result<Account, EndpointError> {
            let wire = HttpClient::new(&endpoint, settings.body_limit)?;
            Ok(Account { endpoint, wire })
        };
        if let Some(LimitWriter(caps)) = &caps
            && caps.address() != reads.0.address()
        {
            return Err(EndpointError::DifferentBmcs {
                reads: reads.0.address(),
                caps: caps.address(),
            });
        }
        Ok(Self {
            reads: account(reads.0)?,
            caps: caps.map(|LimitWriter(caps)| account(caps)).transpose()?,
            line: Mutex::default(),
            passes: AtomicU64::new(0),
            breaker: Short::new(Breaker::new(&settings)),
            retry_after: Short::new(None),
            writer: Mutex::new(()),
            settings,
            environment,
        })
    }

    /// Address of the BMC, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.reads.endpoint.address()
    }

    /// State of the circuit breaker.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.lock_breaker().state()
    }

    /// Whether an account that may set limits is configured.
    #[must_use]
    pub const fn may_cap(&self) -> bool {
        self.caps.is_some()
    }

    /// Fetches one resource.
    pub async fn fetch(&self, path: &ResourcePath) -> Reading<Value> {
        self.begin_pass();
        let timeout = self.settings.timeout_of(path.as_str());
        match self
            .get(AccountRole::Reader, path, Instant::now() + timeout)
            .await
        {
            Ok(fetched) => Reading::Present(fetched.value),
            Err(FetchError::Timeout { .. }) => {
                FetchError::Timeout { after: timeout }.into_reading()
            }
            Err(error) => error.into_reading(),
        }
    }

    /// Ends the sessions; while the breaker is open, they are left to expire. A later request opens a new one.
    pub async fn close(&self) {
        let mut line = self.line.lock().await;
        for role in [AccountRole::Reader, AccountRole::Capper] {
            self.log_out(&mut line, role).await;
        }
    }

    /// Ends the session of the limit-setting account, which is open only during a change.
    pub(super) async fn close_capper(&self) {
        let mut line = self.line.lock().await;
        self.log_out(&mut line, AccountRole::Capper).await;
    }

    /// Starts a pass. A resource that was denied in an earlier pass may be tried with a new login, once.
    pub(super) fn begin_pass(&self) {
        self.passes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn current_pass(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    async fn log_out(&self, line: &mut RequestState, role: AccountRole) {
        *line.refused_in(role) = None;
        let login = std::mem::take(line.login(role));
        let is_open = matches!(self.breaker(), BreakerState::Open { .. });
        if let Some(account) = self.account(role)
            && !is_open
        {
            let timeout = self.settings.request_timeout;
            session::logout(&account.wire, &account.endpoint, login, timeout).await;
        }
    }

    /// Fetches a resource before `deadline`.
    pub(super) async fn get(
        &self,
        role: AccountRole,
        path: &ResourcePath,
        deadline: Instant,
    ) -> Result<FetchedDocument, FetchError> {
        // The service root's path ends with a slash, and some BMCs require it.
        let is_root = *path == ResourcePath::root();
        let slash = if is_root { "/" } else { "" };
        let ask = HttpRequest::get(format!("{path}{slash}"));
        let reply = self.exchange(role, &ask, deadline).await?;
        let mut value = reply.resource()?;
        if let Some(account) = self.account(role) {
            account.endpoint.shorten_links(&mut value);
        }
        let own = value.get("@odata.etag").and_then(Value::as_str);
        let own = own.map(str::to_owned);
        // Servers give the compressed form an ETag of its own, which a change must not refer to.
        let etag = match reply.was_compressed() {
            true => own.or(reply.etag),
            false => reply.etag.or(own),
        };
        Ok(FetchedDocument { value, etag })
    }

    pub(super) fn account(&self, role: AccountRole) -> Option<&Account> {
        match role {
            AccountRole::Reader => Some(&self.reads),
            AccountRole::Capper => self.caps.as_ref(),
        }
    }

    pub(super) fn admit(&self) -> Result<(), FetchError> {
        let now = self.environment.clock.now();
        Ok(self.lock_breaker().admit(now)?)
    }

    pub(super) fn lock_breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock()
    }

    pub(super) fn lock_quiet(&self) -> MutexGuard<'_, Option<Instant>> {
        self.retry_after.lock()
    }
}

impl RequestState {
    pub(super) const fn login(&mut self, role: AccountRole) -> &mut Login {
        match role {
            AccountRole::Reader => &mut self.reads,
            AccountRole::Capper => &mut self.caps,
        }
    }

    pub(super) const fn refused_in(&mut self, role: AccountRole) -> &mut Option<u64> {
        let [reads, caps] = &mut self.refused_in;
        match role {
            AccountRole::Reader => reads,
            AccountRole::Capper => caps,
        }
    }
}
