//! Where checkpoints cannot be written now: what agents said of the places they go to, and vClusters whose
//! storage writes nothing.
//!
//! A place is paused once a checkpoint failed there for the storage's sake, for a while that doubles with each
//! failure in a row. Meanwhile none is asked for there because it would pay, and work that must make room is
//! stopped without one, as if it had none. After the pause one may be asked for again; one that is whole ends
//! it all. Known to the control that dispatches, which hears it from the agents; another one finds out anew.

use crate::{core::Core, view::View};
use lattice_quorum_types::{Allocation, UnixMillis, VclusterName, vcluster::DEFAULT_VCLUSTER};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How long a place is left alone after a first failure, milliseconds.
const FIRST_MS: u64 = 30_000;
/// And at most.
const LONGEST_MS: u64 = 600_000;

/// A place that checkpoints go to: a directory that work names itself, or the site's template.
pub(crate) type Place = String;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CheckpointStorage(Mutex<BTreeMap<Place, Outage>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outage {
    until: UnixMillis,
    pause_ms: u64,
}

impl CheckpointStorage {
    fn outages(&self) -> MutexGuard<'_, BTreeMap<Place, Outage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A checkpoint failed there for the storage's sake. What fails while it is paused was asked for before.
    pub(crate) fn failed(&self, place: &Place, now: UnixMillis, reason: &str) {
        let mut outages = self.outages();
        let known = outages.get(place).copied();
        if known.is_some_and(|known| now < known.until) {
            return;
        }
        let pause_ms = known.map_or(FIRST_MS, |known| (known.pause_ms * 2).min(LONGEST_MS));
        tracing::warn!(%place, reason, pause_ms, "checkpoints cannot be written; requests are paused");
        let until = now.after(pause_ms);
        outages.insert(place.clone(), Outage { until, pause_ms });
    }

    /// One is whole there.
    pub(crate) fn works(&self, place: &Place) {
        if self.outages().remove(place).is_some() {
            tracing::info!(%place, "checkpoints can be written again");
        }
    }

    /// Nothing of this is known any more.
    pub(crate) fn forget(&self) {
        self.outages().clear();
    }

    fn is_paused(&self, place: &Place, now: UnixMillis) -> bool {
        let known = self.outages().get(place).copied();
        known.is_some_and(|known| now < known.until)
    }

    /// Places where the last checkpoint failed, paused or to be tried again.
    fn out(&self) -> BTreeSet<Place> {
        self.outages().keys().cloned().collect()
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
            || place.is_some_and(|place| self.checkpoint_storage.is_paused(&place, self.now()))
    }

    /// For each vCluster whether checkpoints of its work, or of some of it, cannot be written; in the exposition
    /// format of Prometheus.
    pub(crate) fn storage_exposition(&self, view: &View) -> String {
        let out = self.checkpoint_storage.out();
        let savers = view.savers.iter().filter_map(|id| view.allocation(*id));
        let hit = savers.filter(|held| {
            let place = self.checkpoint_place(held);
            place.is_some_and(|place| out.contains(&place))
        });
        let hit: BTreeSet<&VclusterName> = hit.map(|held| &held.spec.vcluster).collect();
        let name = "lattice_checkpoint_storage_unavailable";
        let mut text = format!(
            "# HELP {name} 1 while checkpoints of a vCluster, or of some of its work, cannot be written.\n\
             # TYPE {name} gauge\n"
        );
        let default = VclusterName::new(DEFAULT_VCLUSTER).ok();
        let known: BTreeSet<&VclusterName> = view.vclusters.keys().chain(&default).collect();
        for vcluster in known {
            let is_out = hit.contains(vcluster) || writes_nothing(view, vcluster);
            let _ = writeln!(
                text,
                "{name}{{vcluster=\"{vcluster}\"}} {}",
                u8::from(is_out)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_left_alone_for_longer_and_longer_until_one_is_whole() {
        let storage = CheckpointStorage::default();
        let (here, there) = ("/here".to_owned(), "/there".to_owned());
        let at = UnixMillis;
        storage.failed(&here, at(0), "read-only");
        // Of the same outage.
        storage.failed(&here, at(10), "read-only");
        assert!(storage.is_paused(&here, at(FIRST_MS - 1)));
        assert!(!storage.is_paused(&there, at(1)));
        assert!(!storage.is_paused(&here, at(FIRST_MS)), "it is tried again");
        assert_eq!(
            storage.out(),
            BTreeSet::from([here.clone()]),
            "and still told"
        );
        let mut now = FIRST_MS;
        for pause_ms in [60_000, 120_000, 240_000, 480_000, 600_000, 600_000] {
            storage.failed(&here, at(now), "read-only");
            assert!(storage.is_paused(&here, at(now + pause_ms - 1)));
            now += pause_ms;
            assert!(!storage.is_paused(&here, at(now)));
        }
        storage.works(&here);
        assert!(storage.out().is_empty());
        storage.failed(&here, at(now), "read-only");
        assert!(
            !storage.is_paused(&here, at(now + FIRST_MS)),
            "it begins anew"
        );
    }
}
