//! Outages of checkpoint storage: places where checkpoints cannot be written now, as agents report them, and vClusters
//! with settings that give checkpoint storage no bandwidth.
//!
//! A place is paused for a user once one of the user's checkpoints fails there because of the storage. The pause
//! doubles with each failure in a row. A failure for one user may be caused by the user's quota or by a folder of
//! another user. So the place is paused for all users only after checkpoints of two users have failed. During a pause
//! no checkpoint is requested there only because one would pay off, and a victim is preempted without one, as if it
//! could not write any. After the pause a checkpoint may be requested again. A complete checkpoint ends the user's
//! outage; if the outage counted for all users, it ends for all. Only the control that dispatches holds this state,
//! from the agents' reports; another control starts without it.

use crate::exposition::Exposition;
use lattice_quorum_types::{Allocation, UnixMillis, VclusterName, vcluster::DEFAULT_VCLUSTER};
use lattice_view::View;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};

/// Pause after the first failure, in milliseconds.
const FIRST_MS: u64 = 30_000;
/// Longest pause, in milliseconds.
const LONGEST_MS: u64 = 600_000;

/// Place that checkpoints go to: a directory named by the job, or the site's template.
pub(crate) type CheckpointLocation = String;

/// Number of users with a failure at the same time from which the outage counts for all users.
const ALL: usize = 2;

/// By place, the users with a last checkpoint there that failed.
type Outages = BTreeMap<CheckpointLocation, BTreeMap<String, Outage>>;

/// Checkpoint directories of allocations, and current outages of their storage; see the module.
#[derive(Debug, Default)]
pub struct CheckpointStorage {
    /// Directory for jobs that set none. `{tenant}`, `{project}` and `{allocation}` are replaced by the values of the
    /// allocation.
    template: Option<String>,
    outages: Mutex<Outages>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outage {
    until: UnixMillis,
    pause_ms: u64,
}

impl CheckpointStorage {
    /// New storage without outages. `template` is the checkpoint directory for jobs that set none; `{tenant}`,
    /// `{project}` and `{allocation}` in it are replaced by the values of the allocation.
    pub fn new(template: Option<String>) -> Self {
        Self {
            template,
            outages: Mutex::default(),
        }
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock()
    }

    /// Records that a user's checkpoint failed there because of the storage. A failure during a pause is ignored: that
    /// checkpoint was requested before the pause.
    pub(crate) fn failed(
        &self,
        place: &CheckpointLocation,
        user: &str,
        now: UnixMillis,
        reason: &str,
    ) {
        let mut outages = self.outages();
        let of_place = outages.entry(place.clone()).or_default();
        let known = of_place.get(user).copied();
        if known.is_some_and(|known| now < known.until) {
            return;
        }
        let pause_ms = known.map_or(FIRST_MS, |known| (known.pause_ms * 2).min(LONGEST_MS));
        tracing::warn!(%place, user, reason, pause_ms, "checkpoint storage not writable; \
            checkpoint requests paused");
        let until = now.after(pause_ms);
        of_place.insert(user.to_owned(), Outage { until, pause_ms });
    }

    /// Records that a checkpoint of the user is complete there.
    pub(crate) fn works(&self, place: &CheckpointLocation, user: &str) {
        let mut outages = self.outages();
        let Some(of_place) = outages.get_mut(place) else {
            return;
        };
        if of_place.remove(user).is_none() {
            return;
        }
        tracing::info!(%place, user, "checkpoint storage writable again");
        // The outage counted for all users and now ends for all, or no user is left in it.
        if of_place.len() + 1 >= ALL || of_place.is_empty() {
            outages.remove(place);
        }
    }

    /// Drops all outages.
    pub(crate) fn forget(&self) {
        self.outages().clear();
    }

    fn is_paused(&self, place: &CheckpointLocation, user: &str, now: UnixMillis) -> bool {
        let outages = self.outages();
        let Some(of_place) = outages.get(place) else {
            return false;
        };
        let is_paused = |known: &Outage| now < known.until;
        let paused = of_place.values().filter(|known| is_paused(known)).count();
        paused >= ALL || of_place.get(user).is_some_and(is_paused)
    }

    /// Whether the last checkpoint there of the user, or of any two users, failed. The place is paused or due for a
    /// retry.
    fn is_failing(&self, place: &CheckpointLocation, user: &str) -> bool {
        let outages = self.outages();
        outages
            .get(place)
            .is_some_and(|of_place| of_place.len() >= ALL || of_place.contains_key(user))
    }
}

/// Whether the vCluster's settings allow no checkpoint to be written (bandwidth 0).
fn writes_nothing(view: &View, vcluster: &VclusterName) -> bool {
    view.policy_of(vcluster).checkpoint_bytes_s == Some(0)
}

impl CheckpointStorage {
    /// Whether the site sets a checkpoint directory for jobs that set none.
    pub const fn has_directory(&self) -> bool {
        self.template.is_some()
    }

    /// Checkpoint directory of an allocation; `None` for an allocation without a checkpoint mode, and where neither the
    /// job nor the site sets a directory. A directory set by the job may serve many allocations, so each allocation
    /// gets its own folder there.
    pub fn directory(&self, allocation: &Allocation) -> Option<String> {
        let own = allocation
            .spec
            .terms
            .checkpoint
            .as_ref()?
            .directory
            .as_ref();
        if let Some(own) = own {
            return Some(format!("{}/{}", own.trim_end_matches('/'), allocation.id));
        }
        let project = &allocation.spec.project;
        let template = self.template.as_ref()?;
        let filled = template
            .replace("{tenant}", project.tenant().as_str())
            .replace("{project}", project.name())
            .replace("{allocation}", &allocation.id.to_string());
        Some(filled)
    }

    /// Checkpoint place of an allocation, shared with other allocations: the directory set by the job, or the site's
    /// template.
    pub(crate) fn place(&self, allocation: &Allocation) -> Option<String> {
        let terms = allocation.spec.terms.checkpoint.as_ref()?;
        let own = terms.directory.as_ref();
        own.or(self.template.as_ref()).cloned()
    }

    /// Whether an allocation can write no checkpoint now because of the storage.
    pub(crate) fn is_out(&self, view: &View, held: &Allocation, now: UnixMillis) -> bool {
        let place = self.place(held);
        writes_nothing(view, &held.spec.vcluster)
            || place.is_some_and(|place| self.is_paused(&place, &held.user, now))
    }

    /// Directory for a checkpoint of an allocation now. `None` when the allocation writes none: no directory is set,
    /// the storage is out, or a rank has ended, without which no checkpoint is complete.
    pub(crate) fn writable_directory(
        &self,
        view: &View,
        held: &Allocation,
        now: UnixMillis,
    ) -> Option<String> {
        let writes_none = held.has_ended_rank() || self.is_out(view, held, now);
        self.directory(held).filter(|_| !writes_none)
    }

    /// Exports for each vCluster whether some or all checkpoints of its allocations cannot be written.
    pub fn expose(&self, view: &View, to: &mut Exposition) {
        let savers = view
            .checkpointable
            .iter()
            .filter_map(|id| view.allocation(*id));
        let hit = savers.filter(|held| {
            let place = self.place(held);
            place.is_some_and(|place| self.is_failing(&place, &held.user))
        });
        let hit: BTreeSet<&VclusterName> = hit.map(|held| &held.spec.vcluster).collect();
        let default = VclusterName::new(DEFAULT_VCLUSTER).ok();
        let known: BTreeSet<&VclusterName> = view.vclusters.keys().chain(&default).collect();
        to.gauges(
            "lattice_checkpoint_storage_unavailable",
            "1 while checkpoints of a vCluster, or of some of its allocations, cannot be written.",
            ["vcluster"],
            known.into_iter().map(|vcluster| {
                let is_out = hit.contains(vcluster) || writes_nothing(view, vcluster);
                ([vcluster.to_string()], f64::from(is_out))
            }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> UnixMillis = UnixMillis;

    #[test]
    fn a_place_is_left_alone_for_longer_and_longer_until_one_is_whole() {
        let storage = CheckpointStorage::default();
        let (here, there) = ("/here".to_owned(), "/there".to_owned());
        let failed = |at| storage.failed(&here, "alice", AT(at), "read-only");
        let is_paused = |at| storage.is_paused(&here, "alice", AT(at));
        failed(0);
        // Same outage: ignored.
        failed(10);
        assert!(is_paused(FIRST_MS - 1));
        assert!(!storage.is_paused(&there, "alice", AT(1)));
        assert!(!is_paused(FIRST_MS), "it is tried again");
        assert!(storage.is_failing(&here, "alice"), "and still shown");
        let mut now = FIRST_MS;
        for pause_ms in [60_000, 120_000, 240_000, 480_000, 600_000, 600_000] {
            failed(now);
            assert!(is_paused(now + pause_ms - 1));
            now += pause_ms;
            assert!(!is_paused(now));
        }
        storage.works(&here, "alice");
        assert!(!storage.is_failing(&here, "alice"));
        failed(now);
        assert!(!is_paused(now + FIRST_MS), "the pauses start again");
    }

    #[test]
    fn what_fails_for_one_user_is_no_matter_of_the_others() {
        let storage = CheckpointStorage::default();
        let place = "/scratch/{project}".to_owned();
        let failed = |user, at| storage.failed(&place, user, AT(at), "quota exceeded");
        let paused = |at| ["alice", "bob", "carol"].map(|u| storage.is_paused(&place, u, AT(at)));
        failed("alice", 0);
        assert_eq!(paused(1), [true, false, false]);
        storage.works(&place, "bob");
        assert_eq!(paused(1), [true, false, false], "it does not affect alice");
        failed("bob", 10);
        assert_eq!(paused(11), [true; 3], "it is the place");
        assert!(storage.is_failing(&place, "carol"));
        // The pause for alice is over. A complete checkpoint of hers ends the outage for all.
        assert_eq!(paused(FIRST_MS), [false, true, false]);
        storage.works(&place, "alice");
        assert_eq!(paused(FIRST_MS + 1), [false; 3]);
        assert!(!storage.is_failing(&place, "bob"));
    }
}
