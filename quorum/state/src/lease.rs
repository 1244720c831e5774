//! Leases with fencing epochs.

use lattice_quorum_types::{Refusal, UnixMillis, command::Fence, id::LeaseName, view::LeaseView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the highest epoch of those that are gone stands: no lease has this name.
const GONE: &str = "";

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// Who has it; `None` once given back.
    pub(crate) holder: Option<String>,
    /// Grows with each grant and each return.
    pub(crate) epoch: u64,
    /// In state time.
    pub(crate) expires_at: UnixMillis,
}

/// All leases, by name. Those of schedulers go with their vClusters, else they would be as many as there
/// ever were. No epoch of a name comes twice: what is granted anew begins above all that are gone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Leases(BTreeMap<String, Lease>);

impl Leases {
    /// One lease.
    pub(crate) fn get(&self, name: &str) -> Option<&Lease> {
        self.0.get(name)
    }
    /// All of them, as they are at `now`.
    pub(crate) fn view(&self, now: UnixMillis) -> Vec<LeaseView> {
        let shown = |(name, lease): (&String, &Lease)| LeaseView {
            name: name.clone(),
            holder: lease.holder.clone().filter(|_| lease.expires_at > now),
            epoch: lease.epoch,
            expires_at: lease.expires_at,
        };
        let leases = self.0.iter().filter(|(name, _)| *name != GONE);
        leases.map(shown).collect()
    }
    /// The epoch with which a lease is granted next.
    pub(crate) fn next_epoch(&self, name: &LeaseName) -> u64 {
        let last = self.get(name.as_str()).or_else(|| self.get(GONE));
        last.map_or(0, |last| last.epoch) + 1
    }
    /// Nobody needs it any more: it is given back, and forgotten. Its last epoch, where there was one.
    pub(crate) fn remove(&mut self, name: &LeaseName) -> Option<u64> {
        let epoch = self.0.remove(name.as_str())?.epoch + 1;
        let gone = self.0.entry(GONE.to_owned()).or_insert(Lease {
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
    /// Lets every lease end `grace_ms` later, because state time made a step.
    pub(crate) fn extend(&mut self, grace_ms: u64) {
        if grace_ms > 0 {
            for lease in self.0.values_mut() {
                lease.expires_at = lease.expires_at.after(grace_ms);
            }
        }
    }
    /// Every lease is as if it had been granted so often more.
    pub(crate) fn skip_epochs(&mut self, gap: u64) {
        for lease in self.0.values_mut() {
            lease.epoch = lease.epoch.saturating_add(gap);
        }
    }
    /// Refuses a fence whose epoch is not the current one. An expired lease that nobody else took
    /// still fences: nobody can have acted in between.
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
