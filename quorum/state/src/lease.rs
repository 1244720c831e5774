//! Leases with fencing epochs.

use lattice_quorum_types::{Refusal, UnixMillis, command::Fence, id::LeaseName, view::LeaseView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Key of the entry with the highest epoch of removed leases: no lease has this name.
const REMOVED_LEASES_KEY: &str = "";

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// Present holder; `None` once released.
    pub(crate) holder: Option<String>,
    /// Lease epoch; grows with each grant and each release.
    pub(crate) epoch: u64,
    /// Expiry in state time.
    pub(crate) expires_at: UnixMillis,
}

/// All leases, by name. A scheduler lease is removed with its vCluster, else leases would accumulate for ever. No epoch
/// of a name is used twice: a new lease starts above the highest epoch of all removed ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Leases(BTreeMap<String, Lease>);

impl Leases {
    /// Lease of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Lease> {
        self.0.get(name)
    }
    /// All leases, as they are at `now`.
    pub(crate) fn view(&self, now: UnixMillis) -> Vec<LeaseView> {
        let shown = |(name, lease): (&String, &Lease)| LeaseView {
            name: name.clone(),
            holder: lease.holder.clone().filter(|_| lease.expires_at > now),
            epoch: lease.epoch,
            expires_at: lease.expires_at,
        };
        let leases = self
            .0
            .iter()
            .filter(|(name, _)| *name != REMOVED_LEASES_KEY);
        leases.map(shown).collect()
    }
    /// Epoch of the next grant of a lease.
    pub(crate) fn next_epoch(&self, name: &LeaseName) -> u64 {
        let last = self
            .get(name.as_str())
            .or_else(|| self.get(REMOVED_LEASES_KEY));
        last.map_or(0, |last| last.epoch) + 1
    }
    /// Releases and removes a lease. Returns the epoch after its last one; `None` if the lease did not exist.
    pub(crate) fn remove(&mut self, name: &LeaseName) -> Option<u64> {
        let epoch = self.0.remove(name.as_str())?.epoch + 1;
        let gone = self
            .0
            .entry(REMOVED_LEASES_KEY.to_owned())
            .or_insert(Lease {
                holder: None,
                epoch,
                expires_at: UnixMillis(0),
            });
        gone.epoch = gone.epoch.max(epoch);
        Some(epoch)
    }
    /// Stores a lease.
    pub(crate) fn set(&mut self, name: &LeaseName, lease: Lease) {
        self.0.insert(name.as_str().to_owned(), lease);
    }
    /// Extends every lease by `grace_ms`, the part of a large step of state time that must not shorten leases.
    pub(crate) fn extend(&mut self, grace_ms: u64) {
        if grace_ms > 0 {
            for lease in self.0.values_mut() {
                lease.expires_at = lease.expires_at.after(grace_ms);
            }
        }
    }
    /// Raises the epoch of every lease by `gap`.
    pub(crate) fn skip_epochs(&mut self, gap: u64) {
        for lease in self.0.values_mut() {
            lease.epoch = lease.epoch.saturating_add(gap);
        }
    }
    /// Rejects a fence with a stale epoch. The epoch of an expired lease stays valid until another holder acquires the
    /// lease: no other holder can have acted in between.
    pub(crate) fn check_fence(&self, fence: &Fence) -> Result<(), Refusal> {
        let current = self
            .get(fence.lease.as_str())
            .map_or(0, |lease| lease.epoch);
        if current == fence.epoch && current > 0 {
            return Ok(());
        }
        Err(Refusal::StaleEpoch {
            lease: fence.lease.clone(),
            given: fence.epoch,
            current,
        })
    }
}
