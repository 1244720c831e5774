//! From whom nodes are taken back.

use crate::bits::BitSet;

/// Work of borrowers that would give nodes back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Nodes that are of use.
    pub(super) gain: u32,
    /// Nodes that it holds in all.
    pub(super) nodes: u32,
    /// GPU-seconds.
    pub(super) cost: f64,
}

/// Places of the cheapest items that give `needed` nodes, ascending; of equally cheap ones those that hold the
/// fewest in all. `None` where all of them do not do.
///
/// Exact: what the first items cost at the least for 1, 2, … nodes is found item by item.
pub(super) fn cheapest(items: &[Item], needed: u32) -> Option<Vec<usize>> {
    let needed = needed as usize;
    let total: u64 = items.iter().map(|item| u64::from(item.gain)).sum();
    if total < needed as u64 {
        return None;
    }
    let mut least: Vec<Option<(f64, u64)>> = vec![None; needed + 1];
    least[0] = Some((0.0, 0));
    let mut used = Vec::with_capacity(items.len());
    for item in items {
        let mut used_for = BitSet::empty(needed + 1);
        for want in (1..=needed).rev() {
            let Some((cost, nodes)) = least[want.saturating_sub(item.gain as usize)] else {
                continue;
            };
            let with = (cost + item.cost, nodes + u64::from(item.nodes));
            let is_less =
                |old: (f64, u64)| with.0.total_cmp(&old.0).then(with.1.cmp(&old.1)).is_lt();
            if item.gain > 0 && least[want].is_none_or(is_less) {
                least[want] = Some(with);
                used_for.insert(want);
            }
        }
        used.push(used_for);
    }
    let (mut want, mut chosen) = (needed, Vec::new());
    for (place, used_for) in used.iter().enumerate().rev() {
        if used_for.contains(want) {
            chosen.push(place);
            want = want.saturating_sub(items[place].gain as usize);
        }
    }
    chosen.reverse();
    Some(chosen)
}
