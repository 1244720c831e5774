//! Where checkpoints cannot be written now: what agents said of the places they go to, and vClusters whose
//! storage writes nothing.
//!
//! A place is paused for a user once a checkpoint of the user's failed there for the storage's sake, for a while
//! that doubles with each failure in a row: it may be the user's quota that is used up, or a folder that is somebody
//! else's. It is paused for everybody once that happened to two. Meanwhile none is asked for there because it would
//! pay, and work that must make room is stopped without one, as if it had none. After the pause one may be asked for
//! again; one that is whole ends the user's outage, and that of all where it was one of all. Known to the control
//! that dispatches, which hears it from the agents; another one finds out anew.

use crate::{core::Core, exposition::Exposition, view::View};
use lattice_quorum_types::{Allocation, UnixMillis, VclusterName, vcluster::DEFAULT_VCLUSTER};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};

/// How long a place is left alone after a first failure, milliseconds.
const FIRST_MS: u64 = 30_000;
/// And at most.
const LONGEST_MS: u64 = 600_000;

/// A place that checkpoints go to: a directory that work names itself, or the site's template.
pub(crate) type Place = String;

/// So many users for whom it fails at a time are no matter of theirs.
const ALL: usize = 2;

/// By place, the users for whom the last checkpoint failed there.
type Outages = BTreeMap<Place, BTreeMap<String, Outage>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CheckpointStorage(Mutex<Outages>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outage {
    until: UnixMillis,
    pause_ms: u64,
}

impl CheckpointStorage {
    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.0.lock()
    }

    /// A user's checkpoint failed there for the storage's sake. What fails while it is paused was asked for before.
    pub(crate) fn failed(&self, place: &Place, user: &str, now: UnixMillis, reason: &str) {
        let mut outages = self.outages();
        let of_place = outages.entry(place.clone()).or_default();
        let known = of_place.get(user).copied();
        if known.is_some_and(|known| now < known.until) {
            return;
        }
        let pause_ms = known.map_or(FIRST_MS, |known| (known.pause_ms * 2).min(LONGEST_MS));
        tracing::warn!(%place, user, reason, pause_ms, "checkpoints cannot be written; requests are paused");
        let until = now.after(pause_ms);
        of_place.insert(user.to_owned(), Outage { until, pause_ms });
    }

    /// One of the user's is whole there.
    pub(crate) fn works(&self, place: &Place, user: &str) {
        let mut outages = self.outages();
        let Some(of_place) = outages.get_mut(place) else {
            return;
        };
        if of_place.remove(user).is_none() {
            return;
        }
        tracing::info!(%place, user, "checkpoints can be written again");
        // It was one of all before, and is one of none now.
        if of_place.len() + 1 >= ALL || of_place.is_empty() {
            outages.remove(place);
        }
    }

    /// Nothing of this is known any more.
    pub(crate) fn forget(&self) {
        self.outages().clear();
    }

    fn is_paused(&self, place: &Place, user: &str, now: UnixMillis) -> bool {
        let outages = self.outages();
        let Some(of_place) = outages.get(place) else {
            return false;
        };
        let is_paused = |known: &Outage| now < known.until;
        let paused = of_place.values().filter(|known| is_paused(known)).count();
        paused >= ALL || of_place.get(user).is_some_and(is_paused)
    }

    /// Whether the last checkpoint that the user, or two others, wrote there failed: it is paused, or to be tried
    /// again.
    fn is_out(&self, place: &Place, user: &str) -> bool {
        let outages = self.outages();
        outages
            .get(place)
            .is_some_and(|of_place| of_place.len() >= ALL || of_place.contains_key(user))
    }
}

/// Whether the checkpoints of a vCluster's work are written nowhere, by its own settings.
fn writes_nothing(view: &View, vcluster: &VclusterName) -> bool {
    view.policy_of(vcluster).checkpoint_bytes_s == Some(0)
}

impl Core {
    /// Whether an allocation can write no checkpoint now, for the storage's sake.
    pub(crate) fn is_storage_out(&self, view: &View, held: &Allocation) -> bool {
        let place = self.checkpoint_place(held);
        writes_nothing(view, &held.spec.vcluster)
            || place.is_some_and(|place| {
                (self.checkpoint_storage).is_paused(&place, &held.user, self.now())
            })
    }

    /// Where an allocation would write a checkpoint now. `None` where it writes none: nobody says where to, the
    /// storage is out, or a rank has ended, without which none would be whole.
    pub(crate) fn writable_directory(&self, view: &View, held: &Allocation) -> Option<String> {
        let writes_none = held.has_ended_rank() || self.is_storage_out(view, held);
        self.checkpoint_directory(held).filter(|_| !writes_none)
    }

    /// For each vCluster whether checkpoints of its work, or of some of it, cannot be written.
    pub(crate) fn expose_storage(&self, view: &View, to: &mut Exposition) {
        let savers = view.savers.iter().filter_map(|id| view.allocation(*id));
        let hit = savers.filter(|held| {
            let place = self.checkpoint_place(held);
            place.is_some_and(|place| self.checkpoint_storage.is_out(&place, &held.user))
        });
        let hit: BTreeSet<&VclusterName> = hit.map(|held| &held.spec.vcluster).collect();
        let default = VclusterName::new(DEFAULT_VCLUSTER).ok();
        let known: BTreeSet<&VclusterName> = view.vclusters.keys().chain(&default).collect();
        to.gauges(
            "lattice_checkpoint_storage_unavailable",
            "1 while checkpoints of a vCluster, or of some of its work, cannot be written.",
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
        // Of the same outage.
        failed(10);
        assert!(is_paused(FIRST_MS - 1));
        assert!(!storage.is_paused(&there, "alice", AT(1)));
        assert!(!is_paused(FIRST_MS), "it is tried again");
        assert!(storage.is_out(&here, "alice"), "and still told");
        let mut now = FIRST_MS;
        for pause_ms in [60_000, 120_000, 240_000, 480_000, 600_000, 600_000] {
            failed(now);
            assert!(is_paused(now + pause_ms - 1));
            now += pause_ms;
            assert!(!is_paused(now));
        }
        storage.works(&here, "alice");
        assert!(!storage.is_out(&here, "alice"));
        failed(now);
        assert!(!is_paused(now + FIRST_MS), "it begins anew");
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
        assert_eq!(
            paused(1),
            [true, false, false],
            "it says nothing of alice's"
        );
        failed("bob", 10);
        assert_eq!(paused(11), [true; 3], "it is the place");
        assert!(storage.is_out(&place, "carol"));
        // Alice's may be tried again: where it works, it works for all.
        assert_eq!(paused(FIRST_MS), [false, true, false]);
        storage.works(&place, "alice");
        assert_eq!(paused(FIRST_MS + 1), [false; 3]);
        assert!(!storage.is_out(&place, "bob"));
    }
}
