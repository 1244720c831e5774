//! Topic filter of a segment: the users, projects, nodes and allocations that its rows concern. The filter never misses
//! a topic that is present, and reports about one in four hundred absent topics as possible.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Size of the filter in bits per topic. With [`HASHES_PER_TOPIC`] bits set per topic, the false positive rate is 0.24
/// %.
const BITS_PER_TOPIC: usize = 16;
const HASHES_PER_TOPIC: u64 = 4;
/// Minimum size of a filter, bytes.
const MIN_BYTES: usize = 8;

/// Topic of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Topic<'a> {
    /// Acting user, or owner of the object.
    User(&'a str),
    /// A project, or one of its ancestors.
    Project(&'a str),
    /// A node.
    Node(&'a str),
    /// An allocation.
    Allocation(u64),
}

impl Topic<'_> {
    /// Hash of the topic. Part of the encoded state: it must never change.
    pub(crate) fn hash(self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        match self {
            Topic::User(name) => hasher.update(b"u").update(name.as_bytes()),
            Topic::Project(path) => hasher.update(b"p").update(path.as_bytes()),
            Topic::Node(name) => hasher.update(b"n").update(name.as_bytes()),
            Topic::Allocation(id) => hasher.update(b"a").update(&id.to_le_bytes()),
        };
        let mut first = [0; 8];
        hasher.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }
}

/// Bloom filter of topic hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Topics(Vec<u8>);

impl Topics {
    /// Filter of these hashes.
    pub(crate) fn of(hashes: &BTreeSet<u64>) -> Self {
        let bytes = (hashes.len() * BITS_PER_TOPIC).div_ceil(8).max(MIN_BYTES);
        let mut filter = Topics(vec![0; bytes]);
        for hash in hashes {
            for bit in filter.bit_positions(*hash) {
                filter.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    /// Returns whether a row may concern this topic.
    pub(crate) fn may_contain(&self, topic: Topic<'_>) -> bool {
        let set = |bit: usize| {
            self.0
                .get(bit / 8)
                .is_some_and(|b| b & (1 << (bit % 8)) != 0)
        };
        self.bit_positions(topic.hash()).all(set)
    }

    fn bit_positions(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let (one, other) = (hash & 0xffff_ffff, (hash >> 32) | 1);
        let bits = (self.0.len() * 8).max(1) as u64;
        (0..HASHES_PER_TOPIC).map(move |i| ((one + i * other) % bits) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_little_else() {
        let names: Vec<String> = (0..1000).map(|n| format!("user-{n}")).collect();
        let hashes = names.iter().map(|name| Topic::User(name).hash()).collect();
        let topics = Topics::of(&hashes);
        assert!(
            names
                .iter()
                .all(|name| topics.may_contain(Topic::User(name)))
        );
        let wrong = (0..10_000)
            .filter(|n| topics.may_contain(Topic::Allocation(*n)))
            .count();
        assert!(wrong < 80, "{wrong} of 10,000");
        assert!(!Topics::of(&BTreeSet::new()).may_contain(Topic::Node("n1")));
    }
}
