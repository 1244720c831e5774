//! Requests that Waldur rejected: each is set aside with its reason, or waits for the right that the token's user lacks.
//! Both are tried again at intervals, and delay nothing else.

use super::{AccountingSync, PARKED_MS};
use crate::{
    client::{ResourceScope, Right, WaldurError},
    event::{Event, EventBody},
    status::{Parked, SyncStatus},
};
use lattice_quorum_types::{UnixMillis, VclusterName};

/// Where the rights of a request are granted: at the provider of a vCluster's offering, or at the customer of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RightsScope {
    vcluster: Option<String>,
    tenant: Option<String>,
}

impl RightsScope {
    pub(super) fn of_scope(scope: &ResourceScope) -> Self {
        Self {
            vcluster: Some(scope.vcluster().to_string()),
            tenant: Some(scope.project().tenant().to_string()),
        }
    }

    pub(super) fn of_vcluster(vcluster: &VclusterName) -> Self {
        Self {
            vcluster: Some(vcluster.to_string()),
            tenant: None,
        }
    }

    pub(super) fn of_event(event: &Event) -> Self {
        let vcluster = match &event.body {
            EventBody::Started { vcluster, .. } | EventBody::Completed { vcluster, .. } => {
                Some(vcluster.clone())
            }
            _ => None,
        };
        Self {
            vcluster,
            tenant: Some(event.tenant.clone()),
        }
    }

    /// Names of the vCluster and the tenant for the status, as far as they are known.
    fn names(&self) -> Vec<String> {
        let of_vcluster = self.vcluster.iter().map(|name| format!("vCluster {name}"));
        let of_tenant = self.tenant.iter().map(|name| format!("tenant {name}"));
        of_vcluster.chain(of_tenant).collect()
    }

    /// Name of the place at which `right` is granted.
    fn of_right(&self, right: Right) -> String {
        let names = self.names();
        let name = match right.is_of_tenant() {
            true => names.last(),
            false => names.first(),
        };
        name.cloned().unwrap_or_default()
    }
}

impl AccountingSync {
    /// Evaluates the result of the requests about one object. Returns the value if they succeeded. A rejected request is
    /// set aside under `key`, or waits for the missing right at `place`, and `None` is returned.
    pub(super) fn accept_or_park<T>(
        &self,
        key: &str,
        place: &RightsScope,
        done: Result<T, WaldurError>,
    ) -> Result<Option<T>, WaldurError> {
        match done.map_err(WaldurError::of_one_request) {
            Ok(value) => {
                self.settle(key);
                self.note(|status| status.parked.remove(key));
                Ok(Some(value))
            }
            Err(error) if error.is_transient() => Err(error),
            Err(WaldurError::MissingRight {
                right,
                what,
                status,
                reason,
            }) => {
                let reason = format!("{what} answered with status {status}: {reason}");
                self.await_right(right, key, place, &reason);
                Ok(None)
            }
            Err(error) => {
                self.settle(key);
                self.park(key, error.to_string());
                Ok(None)
            }
        }
    }

    fn await_right(&self, right: Right, key: &str, place: &RightsScope, reason: &str) {
        let now = self.cluster.now();
        let place = place.of_right(right);
        let is_new = self.note(|status| {
            status.parked.remove(key);
            let rights = &mut status.missing_rights;
            rights.add(right, &place, key, reason, now)
        });
        if is_new {
            tracing::error!(
                right = right.name(),
                place,
                effect = right.effect(),
                next_step = right.next_step(),
                "the token's user lacks a right in Waldur"
            );
        }
    }

    /// Ends the lack of the right for which a request waited.
    fn settle(&self, key: &str) {
        if let Some(right) = self.note(|status| status.missing_rights.settle(key)) {
            let right = right.name();
            tracing::info!(right, "Waldur no longer rejects requests for a right");
        }
    }

    pub(super) fn park(&self, key: &str, reason: String) {
        let since = self.cluster.now();
        let is_new = |status: &mut SyncStatus| {
            status.missing_rights.retain(|waiting| waiting != key);
            let parked = status.parked.get(key);
            parked.is_none_or(|parked| parked.reason != reason)
        };
        if self.note(is_new) {
            tracing::error!(what = key, reason, "set aside for the accounting status");
        }
        self.note(|status| {
            let tried_at = since;
            let parked = status.parked.entry(key.to_owned());
            let parked = parked.or_insert_with(|| Parked {
                since,
                tried_at,
                reason: String::new(),
            });
            parked.reason = reason;
            parked.tried_at = tried_at;
        });
    }

    /// Whether a request is set aside and not due for a retry yet.
    pub(super) fn is_set_aside(&self, key: &str) -> bool {
        let now = self.cluster.now();
        // A clock that was set back ends the wait.
        let is_early = |tried_at: UnixMillis| now >= tried_at && now.since(tried_at) < PARKED_MS;
        self.note(|status| {
            let parked = status.parked.get(key);
            parked.is_some_and(|parked| is_early(parked.tried_at))
        })
    }

    /// Whether a request is set aside, or waits for a right, and is not due for a retry yet. One that is due has to be
    /// sent: of those that wait for one right, a single one is due at a time.
    pub(super) fn is_parked(&self, key: &str) -> bool {
        let now = self.cluster.now();
        self.is_set_aside(key) || self.note(|status| status.missing_rights.holds(key, now))
    }

    /// Lets a request wait without sending it, where a right that it needs is known to be missing. Returns `false` for a
    /// request that has to be sent.
    pub(super) fn joins_wait(
        &self,
        key: &str,
        place: &RightsScope,
        needs: impl Fn(Right) -> bool,
    ) -> bool {
        let names = place.names();
        self.note(|status| status.missing_rights.join(&names, key, needs))
    }
}
