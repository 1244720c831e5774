//! When held nodes are expected to be free, and from when a blocked job can have its nodes.

use crate::{bits::BitSet, choose::Ask, eligible::Eligible, index::Index};
use lattice_quorum_types::UnixMillis;

/// Expected releases. A node held without an end is not in it: nobody can plan on it.
#[derive(Debug)]
pub(crate) struct Timeline {
    release_at: Vec<Option<UnixMillis>>,
    /// Nodes with a release.
    releasing: BitSet,
}

impl Timeline {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            release_at: vec![None; size],
            releasing: BitSet::empty(size),
        }
    }

    pub(crate) fn release(&mut self, node: usize, at: UnixMillis) {
        self.release_at[node] = Some(at);
        self.releasing.insert(node);
    }

    /// The earliest time at which enough of the eligible nodes are free together, and the nodes
    /// free then; `None` when that cannot be foreseen.
    pub(crate) fn earliest(
        &self,
        index: &Index,
        eligible: &Eligible,
        free: &BitSet,
        ask: Ask,
    ) -> Option<(UnixMillis, BitSet)> {
        let mut open = eligible.nodes.and(free);
        let later = eligible.nodes.and(&self.releasing);
        let mut count = open.count();
        if count + later.count() < ask.nodes {
            return None;
        }
        let mut sizes = index.count_by_conformance(&open);
        let mut releases: Vec<(UnixMillis, usize)> = later
            .iter()
            .filter_map(|n| Some((self.release_at[n]?, n)))
            .collect();
        releases.sort_unstable();
        for moment in releases.chunk_by(|a, b| a.0 == b.0) {
            for (_, node) in moment {
                open.insert(*node);
                count += 1;
                if let Some(key) = index.conformance[*node] {
                    sizes[key] += 1;
                }
            }
            let enough = if ask.one_conformance_group {
                sizes.iter().any(|size| *size >= ask.nodes)
            } else {
                count >= ask.nodes
            };
            if enough {
                return Some((moment[0].0, open));
            }
        }
        None
    }
}
