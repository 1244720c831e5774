//! Client of the parts of Waldur's REST API that accounting needs.
//!
//! The design follows the observed behaviour of a real Waldur. Usage is reported as absolute totals of a month, so a
//! repeat changes nothing. Waldur creates a second object with the same `backend_id` without an error, so every object
//! is looked up before it is created. A reply that is not JSON counts as an outage, except with status 404.

mod clock;
mod credit;
mod error;
mod invoices;
mod list;
mod objects;
mod offerings;
mod orders;
mod own_rights;
mod pace;
mod plans;
mod requests;
mod resources;
mod rights;
mod scope;
mod scope_resource;
mod usage;
mod usage_rows;

pub use clock::{GUARD_AFTER_MS, GUARD_BEFORE_MS, MonthPhase};
pub use credit::{HoursLimit, PurchasedLimits, purchased_limits};
pub use error::WaldurError;
pub use objects::{ObjectParameters, Objects};
pub use orders::{OpenOrder, OrderKind};
pub use plans::PlanSwitches;
pub use requests::{ClientError, http_client};
pub use resources::KnownResource;
pub use rights::Right;
pub use scope::ResourceScope;
pub use usage::{Amounts, MonthUsage};
pub use usage_rows::UsageRows;

use crate::secret::{SecretRef, Secrets};
use clock::DateSample;
use jiff::tz::TimeZone;
use lattice_ledger::Month;
use lattice_quorum_types::UnixMillis;
use pace::Pace;
use reqwest::{Client, Url};
use secrecy::SecretString;
use std::time::Duration;
use tokio::sync::Mutex;

/// Reports that are prepared at the same time; [`WaldurClient::requests_at_once`] bounds the requests.
pub const MAX_REQUESTS_AT_ONCE: usize = pace::MAX_LIMIT;

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
    pace: Pace,
    /// The last `Date` header.
    date: parking_lot::Mutex<Option<DateSample>>,
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
            pace: Pace::default(),
            date: parking_lot::Mutex::default(),
        }
    }

    /// Cluster of the resources.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Number of requests that Waldur answers at the same time, as far as that is known. More wait for their turn.
    pub fn requests_at_once(&self) -> usize {
        self.pace.limit()
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
}
