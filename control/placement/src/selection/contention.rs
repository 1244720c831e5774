//! Contention: nodes that rarer requests in the queue need. Among equally good node sets, a job gets one without these.

use crate::{bits::BitSet, eligibility::sets::EligibleSets};

/// Requests of queued jobs by number of fitting nodes: the fewer nodes fit, the harder a request is to serve elsewhere.
#[derive(Debug)]
pub(crate) struct Contention {
    /// Distinct numbers of fitting nodes, ascending.
    counts: Vec<u32>,
    /// For each number in `counts`, all nodes that fit a request with at most that many fitting nodes.
    wanted: Vec<BitSet>,
}

impl Contention {
    pub(crate) fn new(sets: &EligibleSets) -> Self {
        let mut requests: Vec<_> = sets.iter().filter(|set| set.count > 0).collect();
        requests.sort_unstable_by_key(|set| set.count);
        let (mut counts, mut wanted) = (Vec::new(), Vec::<BitSet>::new());
        for alike in requests.chunk_by(|a, b| a.count == b.count) {
            let mut all = wanted.last().unwrap_or(&alike[0].nodes).clone();
            alike.iter().for_each(|set| all.union_with(&set.nodes));
            counts.push(alike[0].count);
            wanted.push(all);
        }
        Self { counts, wanted }
    }

    /// Cumulative sets of nodes that fit requests with fewer than `count` fitting nodes; each contains the previous
    /// one.
    pub(crate) fn nodes_with_contention_below(&self, count: u32) -> &[BitSet] {
        let rarer = self.counts.partition_point(|known| *known < count);
        &self.wanted[..rarer]
    }
}
