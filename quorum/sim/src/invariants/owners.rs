//! Ownership invariant: a node has at most one holder, and node and holder records agree.

use lattice_quorum_state::State;
use std::collections::BTreeMap;

/// Checks every node and every allocation that holds nodes.
pub fn owners(state: &State) -> Result<(), String> {
    let mut holders = BTreeMap::new();
    for allocation in state.live_allocations().filter(|a| a.state.holds()) {
        for rank in &allocation.ranks {
            let holder = state.node(&rank.node).and_then(|node| node.holder);
            let is_held = holder.is_some_and(|h| h.allocation == allocation.id);
            if !is_held {
                continue;
            }
            if let Some(other) = holders.insert(rank.node.clone(), allocation.id) {
                let (id, node) = (allocation.id, &rank.node);
                return Err(format!("{node} is held by allocations {other} and {id}"));
            }
        }
        let running = allocation.ranks.iter().filter(|rank| {
            !rank.phase.is_over() && holders.get(&rank.node) != Some(&allocation.id)
        });
        if let Some(rank) = running.into_iter().next() {
            return Err(format!(
                "allocation {} runs on {}, which is held by {:?}",
                allocation.id,
                rank.node,
                state.node(&rank.node).and_then(|n| n.holder)
            ));
        }
    }
    for node in state.nodes() {
        if node.holder.map(|h| h.allocation) != holders.get(&node.id).copied() {
            return Err(format!(
                "{}: recorded holder {:?} does not match the ranks on the node",
                node.id, node.holder
            ));
        }
    }
    Ok(())
}
