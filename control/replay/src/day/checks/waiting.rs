//! Progress invariant: if a vCluster has enough nodes for every waiting allocation, one of these allocations starts.

use super::Checks;
use crate::day::machine::Machine;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationState, NodeId, UnixMillis, VclusterName, limit::Usage, node::Node,
};
use std::collections::BTreeMap;

/// Longest time without a start, milliseconds: a few passes of control, with requests to nodes in between.
const MAX_IDLE_MS: u64 = 5 * 60_000;

impl Checks {
    pub(super) fn check_waiting(
        &mut self,
        state: &State,
        machines: &BTreeMap<NodeId, Machine>,
        now: UnixMillis,
    ) {
        let mut names: Vec<&VclusterName> = state.nodes().map(|node| &node.home).collect();
        names.sort_unstable();
        names.dedup();
        let mut stuck = Vec::new();
        for name in names {
            match could_start(state, machines, name, now) {
                Some((held, free)) => {
                    let since = *self.startable_since.entry(name.clone()).or_insert(now);
                    if now.since(since) > MAX_IDLE_MS {
                        let (spec, free) = (&held.spec, free.join(" "));
                        stuck.push(format!(
                            "{} (class {}, {} nodes) waits although {name} has nodes for it: {free}",
                            held.id, spec.class, spec.nodes
                        ));
                    }
                }
                None => _ = self.startable_since.remove(name),
            }
        }
        for what in stuck {
            self.add(now, what);
        }
    }
}

/// Returns the largest waiting allocation of the vCluster and the free nodes; `None` if the nodes do not suffice for
/// this allocation, or if none waits.
fn could_start<'a>(
    state: &'a State,
    machines: &BTreeMap<NodeId, Machine>,
    name: &VclusterName,
    now: UnixMillis,
) -> Option<(&'a Allocation, Vec<&'a str>)> {
    let free = state
        .nodes()
        .filter(|node| is_free(state, machines, node, name, now));
    let free: Vec<&str> = free.map(|node| node.id.as_str()).collect();
    let fits = |held: &&Allocation| {
        let asked = Usage {
            nodes: u64::from(held.spec.nodes),
            allocations: 1,
        };
        held.state == AllocationState::Pending
            && held.spec.vcluster == *name
            && held.progress.tally.is_none()
            && held.eligible_at <= now
            && state.check_fits(&held.spec.project, asked).is_ok()
    };
    let mut waiting: Vec<&Allocation> = state.live_allocations().filter(fits).collect();
    waiting.sort_unstable_by_key(|held| std::cmp::Reverse(held.spec.nodes));
    let first = waiting.first()?;
    (free.len() >= first.spec.nodes as usize).then_some((*first, free))
}

/// Whether a node belongs to the vCluster, is not lent, up for some time, assignable, and not in a reservation.
fn is_free(
    state: &State,
    machines: &BTreeMap<NodeId, Machine>,
    node: &Node,
    name: &VclusterName,
    now: UnixMillis,
) -> bool {
    let is_up = machines
        .get(&node.id)
        .is_some_and(|machine| machine.is_up && now.since(machine.state_changed_at) > MAX_IDLE_MS);
    let is_kept = ["r0", "r1"].into_iter().any(|name| {
        let name = name.parse();
        let kept = name.ok().and_then(|name| state.reservation(&name));
        kept.is_some_and(|kept| {
            kept.spec.nodes.contains(&node.id) && kept.spec.until.is_none_or(|until| until > now)
        })
    });
    node.home == *name && node.current == *name && node.is_assignable() && is_up && !is_kept
}
