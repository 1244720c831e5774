//! Bounded cache of preimages by digest. Beyond the limit of one node the oldest preimages of that node are dropped, so
//! a node with ever new records displaces no preimage of another node.

use super::{MOST_PREIMAGE_BYTES, fetch_queue::FailedSources};
use lattice_conformance::{Class, Digest};
use lattice_quorum_types::NodeId;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::OnceCell;

/// Maximum number of distinct digests. The different documents of 10,000 nodes fit.
const MAX_DIGESTS: usize = 32_768;
/// Maximum number of preimages from one node.
const MOST_OF_NODE: usize = 256;
/// Maximum total size in bytes of the encoded preimages of one node. All present preimages of a node fit: each class
/// under two schemas, from its agent alone and merged with its BMC's part.
const MOST_BYTES_OF_NODE: usize = 32 << 20;

const _: () = assert!(MOST_BYTES_OF_NODE >= 2 * 2 * Class::ALL.len() * MOST_PREIMAGE_BYTES);
const _: () = assert!(MOST_OF_NODE > 2 * 2 * Class::ALL.len());

/// Cache slot of a digest, shared by all callers that wait for it.
#[derive(Debug)]
pub(super) struct Slot<T> {
    pub(super) value: OnceCell<Arc<T>>,
    /// Nodes that were tried without success.
    pub(super) failed_sources: Mutex<FailedSources>,
}

impl<T> Slot<T> {
    pub(super) fn asked(&self) -> MutexGuard<'_, FailedSources> {
        self.failed_sources.lock()
    }
}

/// Bounded cache; see the module.
#[derive(Debug)]
pub(super) struct PreimageCache<T>(Mutex<NodePreimages<T>>);

#[derive(Debug)]
struct NodePreimages<T> {
    slots: HashMap<Digest, Arc<Slot<T>>>,
    /// Source node and size in bytes of each value.
    sources: HashMap<Digest, (NodeId, usize)>,
    /// Digests of each node's values, oldest first.
    of_node: HashMap<NodeId, VecDeque<Digest>>,
}

impl<T> Default for PreimageCache<T> {
    fn default() -> Self {
        Self(Mutex::new(NodePreimages {
            slots: HashMap::new(),
            sources: HashMap::new(),
            of_node: HashMap::new(),
        }))
    }
}

impl<T> PreimageCache<T> {
    fn lock_preimages(&self) -> MutexGuard<'_, NodePreimages<T>> {
        self.0.lock()
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<T>> {
        self.lock_preimages()
            .slots
            .get(digest)?
            .value
            .get()
            .cloned()
    }

    pub(super) fn slot(&self, digest: Digest) -> Arc<Slot<T>> {
        let mut shelf = self.lock_preimages();
        if shelf.slots.len() >= MAX_DIGESTS && !shelf.slots.contains_key(&digest) {
            shelf.make_room();
        }
        let slot = shelf.slots.entry(digest).or_insert_with(|| {
            Arc::new(Slot {
                value: OnceCell::new(),
                failed_sources: Mutex::default(),
            })
        });
        Arc::clone(slot)
    }

    /// Counts a value towards the limits of the node that it came from or belongs to. Drops the oldest values of that
    /// node beyond its limits.
    pub(super) fn record_source(
        &self,
        digest: Digest,
        slot: &Arc<Slot<T>>,
        node: &NodeId,
        bytes: usize,
    ) {
        self.lock_preimages().came(digest, slot, node, bytes);
    }
}

impl<T> NodePreimages<T> {
    /// Removes the slots that have no value and no waiting caller. If too many slots remain, which is rare, removes
    /// all: fetching a value in use again costs one call.
    fn make_room(&mut self) {
        let waits = |slot: &Arc<Slot<T>>| slot.value.initialized() || Arc::strong_count(slot) > 1;
        self.slots.retain(|_, slot| waits(slot));
        if self.slots.len() >= MAX_DIGESTS {
            self.slots.clear();
            self.sources.clear();
            self.of_node.clear();
        }
    }

    fn came(&mut self, digest: Digest, slot: &Arc<Slot<T>>, node: &NodeId, bytes: usize) {
        if self.sources.contains_key(&digest) {
            return;
        }
        // The slot may have been dropped in the meantime to free space.
        self.slots.insert(digest, Arc::clone(slot));
        self.sources.insert(digest, (node.clone(), bytes));
        let of_node = self.of_node.entry(node.clone()).or_default();
        of_node.push_back(digest);
        let bytes_of = |digest: &Digest| self.sources.get(digest).map_or(0, |(_, bytes)| *bytes);
        let mut total: usize = of_node.iter().map(bytes_of).sum();
        while of_node.len() > 1 && (of_node.len() > MOST_OF_NODE || total > MOST_BYTES_OF_NODE) {
            let Some(oldest) = of_node.pop_front() else {
                break;
            };
            self.slots.remove(&oldest);
            let gone = self.sources.remove(&oldest);
            total -= gone.map_or(0, |(_, bytes)| bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn digest(n: usize) -> Digest {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        Digest(bytes)
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn put(kept: &PreimageCache<usize>, n: usize, from: &str, bytes: usize) {
        let slot = kept.slot(digest(n));
        slot.value.set(Arc::new(n)).unwrap();
        kept.record_source(digest(n), &slot, &node(from), bytes);
    }

    fn has(kept: &PreimageCache<usize>, n: usize) -> bool {
        kept.get(&digest(n)).is_some()
    }

    #[test]
    fn node_with_many_records_evicts_own() {
        let kept = PreimageCache::default();
        put(&kept, 0, "honest", 40_000);
        let most = MOST_BYTES_OF_NODE / MOST_PREIMAGE_BYTES;
        for n in 1..=3 * most {
            put(&kept, n, "liar", MOST_PREIMAGE_BYTES);
        }
        assert!(has(&kept, 0));
        let held: Vec<usize> = (1..=3 * most).filter(|n| has(&kept, *n)).collect();
        assert_eq!(held, (2 * most + 1..=3 * most).collect::<Vec<_>>());
        // The limit on the number of preimages holds for small ones as well.
        for n in 10_000..10_000 + 2 * MAX_DIGESTS {
            put(&kept, n, "liar", 1);
        }
        assert!(has(&kept, 0));
        let held = (10_000..10_000 + 2 * MAX_DIGESTS).filter(|n| has(&kept, *n));
        assert_eq!(held.count(), MOST_OF_NODE);
        let shelf = kept.lock_preimages();
        assert_eq!((shelf.sources.len(), shelf.slots.len()), (257, 257));
    }

    #[test]
    fn unavailable_digests_are_evicted_first() {
        let kept = PreimageCache::default();
        put(&kept, 0, "honest", 40_000);
        let waited_for = kept.slot(digest(1));
        for n in 2..2 * MAX_DIGESTS {
            kept.slot(digest(n));
        }
        assert!(has(&kept, 0));
        assert!(kept.lock_preimages().slots.len() <= MAX_DIGESTS);
        assert!(Arc::ptr_eq(&waited_for, &kept.slot(digest(1))));
    }

    #[test]
    fn there_are_never_more_than_fit() {
        let kept = PreimageCache::default();
        for n in 0..=MAX_DIGESTS {
            put(&kept, n, &format!("n{n}"), 1);
        }
        assert!(has(&kept, MAX_DIGESTS));
        let shelf = kept.lock_preimages();
        let lengths = (shelf.slots.len(), shelf.sources.len(), shelf.of_node.len());
        assert_eq!(lengths, (1, 1, 1));
    }
}
