//! Spans: the fewest topology groups that hold a number of nodes.

use crate::{bits::BitSet, machine::index::Index};
use std::cmp::Reverse;

/// Cumulative counts: entry i is the number of `nodes` in the i + 1 largest topology groups.
pub(crate) fn by_span(index: &Index, nodes: &BitSet) -> Vec<u32> {
    let by_group = index.count_by_group(nodes);
    let mut counts: Vec<u32> = by_group.into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let mut held = 0;
    for count in &mut counts {
        held += *count;
        *count = held;
    }
    counts
}

/// Fewest groups that hold `nodes` nodes; `None` if all groups together hold fewer.
pub(crate) fn span_of(by_span: &[u32], nodes: u32) -> Option<usize> {
    let fewer = by_span.partition_point(|held| *held < nodes);
    (fewer < by_span.len()).then_some(fewer + 1)
}
