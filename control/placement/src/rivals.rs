//! Nodes that others of the queue need more: of sets that are equally good, a job is given one without
//! them.

use crate::{bits::BitSet, eligible::EligibleSets};

/// Requests that jobs of the queue have, by how many nodes fit: the rarer, the harder to serve elsewhere.
#[derive(Debug)]
pub(crate) struct Rivals {
    /// Ascending, each once.
    counts: Vec<u32>,
    /// All nodes that fit a request that so many fit, or fewer.
    wanted: Vec<BitSet>,
}

impl Rivals {
    pub(crate) fn new(sets: &EligibleSets) -> Self {
        let mut requests: Vec<_> = sets.iter().filter(|set| set.count > 0).collect();
        requests.sort_unstable_by_key(|set| set.count);
        let (mut counts, mut wanted) = (Vec::new(), Vec::<BitSet>::new());
        for alike in requests.chunk_by(|a, b| a.count == b.count) {
            let mut all = wanted.last().unwrap_or(&alike[0].nodes).clone();
            alike.iter().for_each(|set| all.add_all(&set.nodes));
            counts.push(alike[0].count);
            wanted.push(all);
        }
        Self { counts, wanted }
    }

    /// What is wanted by requests that fewer than `count` nodes fit; each has what the one before has, and
    /// more.
    pub(crate) fn rarer_than(&self, count: u32) -> &[BitSet] {
        let rarer = self.counts.partition_point(|known| *known < count);
        &self.wanted[..rarer]
    }
}
