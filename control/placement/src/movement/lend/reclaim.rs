//! Reclaim: selection of the borrowers' jobs that release nodes.

use crate::bits::BitSet;

/// A borrower's job that could release nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReclaimCandidate {
    /// Nodes that are useful to the owner.
    pub(super) gain: u32,
    /// Useful nodes that are promised to others.
    pub(super) promised: u32,
    /// All nodes of the job.
    pub(super) nodes: u32,
    /// Cost in GPU-seconds.
    pub(super) cost: f64,
}

/// Totals of a selection.
#[derive(Debug, Clone, Copy)]
struct SelectionTotals {
    promised: u32,
    cost: f64,
    nodes: u64,
}

impl SelectionTotals {
    fn with(self, item: &ReclaimCandidate) -> Self {
        Self {
            promised: self.promised.saturating_add(item.promised),
            cost: self.cost + item.cost,
            nodes: self.nodes + u64::from(item.nodes),
        }
    }

    fn is_less(&self, than: &Self) -> bool {
        let promised = self.promised.cmp(&than.promised);
        let cost = || self.cost.total_cmp(&than.cost);
        let nodes = || self.nodes.cmp(&than.nodes);
        promised.then_with(cost).then_with(nodes).is_lt()
    }
}

/// Positions of the items that give `needed` nodes, ascending. The selection has the fewest promised nodes, then the
/// lowest cost, then the fewest nodes held in all. `None` if all items together give too few.
///
/// If a promised node is reclaimed, the job with the promise must preempt again elsewhere, and its other victims were
/// preempted in vain. That cost is unknown here, so promised nodes are reclaimed last.
///
/// Exact: dynamic programming over the items finds the lowest cost for 1, 2, … nodes.
pub(super) fn cheapest(items: &[ReclaimCandidate], needed: u32) -> Option<Vec<usize>> {
    let needed = needed as usize;
    let total: u64 = items.iter().map(|item| u64::from(item.gain)).sum();
    if total < needed as u64 {
        return None;
    }
    let mut least: Vec<Option<SelectionTotals>> = vec![None; needed + 1];
    least[0] = Some(SelectionTotals {
        promised: 0,
        cost: 0.0,
        nodes: 0,
    });
    let mut used = Vec::with_capacity(items.len());
    for item in items {
        let mut used_for = BitSet::empty(needed + 1);
        for want in (1..=needed).rev() {
            let Some(others) = least[want.saturating_sub(item.gain as usize)] else {
                continue;
            };
            let with = others.with(item);
            if item.gain > 0 && least[want].is_none_or(|old| with.is_less(&old)) {
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
