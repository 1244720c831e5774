//! Node invariants: a single holder, limits, and loans that are permitted and return.

use super::{Checks, is_sensitive};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Envelope, NodeId, Refusal, UnixMillis,
    allocation::RankPhase,
    command::ExpectedNode,
    node::{Lifecycle, Node},
};
use std::collections::{BTreeMap, BTreeSet};

/// Documented periods, milliseconds: the grace period of a reclaim, and the longest checkpoint (10 min) with its
/// extension (5 min) and deferrals (5 min). The slack covers the grace period of processes and a few passes of control.
const GRACE_MS: u64 = 60_000;
const LONGEST_MS: u64 = 600_000 + 300_000 + 300_000;
const SLACK_MS: u64 = 120_000;
/// Time after which a promise may be withdrawn because a stopping allocation still holds a promised node, milliseconds.
const STOP_HANGS_AFTER_MS: u64 = 600_000;

impl Checks {
    /// Checks that every node has at most one holder, and that each rank of a live allocation holds its node.
    pub(super) fn check_owners(&mut self, state: &State, now: UnixMillis) {
        let mut wrong = Vec::new();
        let mut holders: BTreeMap<&NodeId, AllocationId> = BTreeMap::new();
        for held in state.live_allocations() {
            let present = held.ranks.iter();
            let present = present.filter(|rank| !matches!(rank.phase, RankPhase::Left { .. }));
            for rank in present.filter(|_| held.state.holds()) {
                if let Some(other) = holders.insert(&rank.node, held.id) {
                    wrong.push(format!(
                        "node {} is held by {other} and {}",
                        rank.node, held.id
                    ));
                }
                let holder = state.node(&rank.node).and_then(|node| node.holder);
                let is_its = holder.is_some_and(|holder| {
                    (holder.allocation, holder.attempt) == (held.id, held.attempt)
                });
                if !is_its {
                    wrong.push(format!(
                        "node {} of {} is held by {holder:?}",
                        rank.node, held.id
                    ));
                }
            }
        }
        for node in state.nodes() {
            if let Some(holder) = node.holder
                && holders.get(&node.id) != Some(&holder.allocation)
            {
                wrong.push(format!(
                    "node {} has a holder without a rank there: {holder:?}",
                    node.id
                ));
            }
        }
        for what in wrong {
            self.add(now, what);
        }
    }

    /// Checks that no project exceeds the limit that the administrator set, and that usage is counted correctly.
    pub(super) fn check_limits(&mut self, state: &State, now: UnixMillis) {
        let mut wrong = Vec::new();
        for (path, limits) in &self.limits {
            let within = state.live_allocations();
            let within =
                within.filter(|held| held.state.holds() && held.spec.project.is_within(path));
            let within: BTreeSet<AllocationId> = within.map(|held| held.id).collect();
            let holds = |node: &&Node| {
                let holder = node.holder.map(|holder| holder.allocation);
                holder.is_some_and(|id| within.contains(&id))
            };
            let (nodes, allocations) = (
                state.nodes().filter(holds).count() as u64,
                within.len() as u64,
            );
            for (used, limit, unit) in [
                (nodes, limits.max_nodes, "nodes"),
                (
                    allocations,
                    limits.max_concurrent_allocations,
                    "allocations",
                ),
            ] {
                if let Some(limit) = limit.filter(|limit| used > *limit) {
                    wrong.push(format!(
                        "{path} is above its limit: {used} of {limit} {unit}"
                    ));
                }
            }
            let counted = state.project(path).map(|project| {
                let (own, below) = (project.own, project.subtree);
                (own.nodes + below.nodes, own.allocations + below.allocations)
            });
            if counted != Some((nodes, allocations)) {
                wrong.push(format!(
                    "{path} has {nodes} nodes and {allocations} allocations, but {counted:?} are counted"
                ));
            }
        }
        for what in wrong {
            self.add(now, what);
        }
    }

    /// Checks a change of one node's record.
    pub(super) fn check_node(
        &mut self,
        state: &State,
        envelope: &Envelope,
        node: &Node,
        now: UnixMillis,
    ) {
        let Some(before) = self.nodes.get(&node.id).cloned() else {
            return;
        };
        let id = &node.id;
        if node.current != node.home && is_sensitive(&node.home) {
            self.add(
                now,
                format!("node {id} for sensitive work was lent to {}", node.current),
            );
        }
        let is_moved = node.current != before.current;
        if is_moved && node.current != node.home {
            let is_idle = before.holder.is_none() && before.promised.is_none();
            if !is_idle || before.node_claim.is_some() || !before.drain.is_empty() {
                self.add(
                    now,
                    format!("node {id} was lent although it was not idle: {before:?}"),
                );
            }
        }
        if is_moved && (before.holder.is_some() || node.holder.is_some()) {
            let what = format!(
                "node {id} changed its vCluster while held by {:?}",
                before.holder
            );
            self.add(now, what);
        }
        if let Some(promised) = before.promised
            && node.promised != before.promised
        {
            self.check_promise_end(state, envelope, &before, node, promised, now);
        }
        if node.holder != before.holder
            && let Some(holder) = node.holder
        {
            self.check_holder(state, &before, holder.allocation, now);
        }
    }

    /// Checks that a promise ended for a permitted reason: it was fulfilled, its allocation no longer waits, its node
    /// is out of service, or it was withdrawn because the allocation could not get all promised nodes.
    fn check_promise_end(
        &mut self,
        state: &State,
        envelope: &Envelope,
        before: &Node,
        node: &Node,
        to: AllocationId,
        now: UnixMillis,
    ) {
        let is_kept = node.holder.is_some_and(|holder| holder.allocation == to);
        let is_out = node.lifecycle != Lifecycle::Ready
            || !node.drain.is_empty()
            || node.reclaimed_at.is_some()
            || node.current != before.current;
        let held = state.allocation(to);
        let is_over = held.is_none_or(|held| held.state != AllocationState::Pending);
        // If one of the promised nodes is missing, the others are of no use to the allocation.
        let all = self.nodes.values().filter(|node| node.promised == Some(to));
        let all: Vec<&Node> = all.collect();
        let wanted = held.map_or(0, |held| held.spec.nodes as usize);
        let is_lost =
            |node: &&Node| self.was_silent(&node.id, UnixMillis(now.0.saturating_sub(60_000)));
        // A job that was stopped long ago still holds a node, for example because another node of the job does not
        // answer.
        let hangs = |node: &&Node| {
            let holder = node
                .holder
                .and_then(|holder| state.allocation(holder.allocation));
            holder.is_some_and(|held| {
                held.state == AllocationState::Stopping
                    && now.since(held.state_since) > STOP_HANGS_AFTER_MS
            })
        };
        let is_broken = all.len() < wanted || all.iter().any(is_lost) || all.iter().any(hangs);
        let is_withdrawn = matches!(envelope.command, Command::WithdrawPromise { .. })
            && (is_broken || is_unusable(state, envelope, to, &all));
        if !(is_kept || is_out || is_over || is_withdrawn) {
            let what = format!(
                "node {} is no longer promised to {to}, which still waits",
                node.id
            );
            self.add(now, what);
        }
    }

    /// Checks a new holder: the node was free, reachable, in the vCluster of the allocation, not promised to another
    /// allocation, not reclaimed and not reserved for others. A borrowed node must go to an allocation that can be
    /// removed from it.
    fn check_holder(&mut self, state: &State, before: &Node, by: AllocationId, now: UnixMillis) {
        let (id, Some(held)) = (&before.id, state.allocation(by)) else {
            return;
        };
        let spec = &held.spec;
        let mut wrong = Vec::new();
        if let Some(other) = before.holder {
            wrong.push(format!("node {id} went from {} to {by}", other.allocation));
        }
        if let Some(other) = before.promised.filter(|other| *other != by) {
            wrong.push(format!(
                "node {id} is promised to {other} but was assigned to {by}"
            ));
        }
        if before.reclaimed_at.is_some() {
            wrong.push(format!("node {id} is reclaimed but was assigned to {by}"));
        }
        if before.current != spec.vcluster {
            wrong.push(format!(
                "node {id} is in vCluster {} but was assigned to {by}",
                before.current
            ));
        }
        if self.silent_nodes.get(id) == Some(&None) {
            wrong.push(format!("node {id} is unreachable but was assigned to {by}"));
        }
        let is_borrowed = before.home != before.current;
        let is_stuck = spec.class >= 7 && spec.terms.checkpoint.is_none();
        // A service can be removed from a borrowed node, since it releases nodes one by one.
        let is_fixed =
            spec.sensitive || spec.class == 10 || (is_stuck && spec.terms.scale.is_none());
        if is_borrowed && is_fixed {
            wrong.push(format!(
                "node {id} is borrowed, but {by} cannot be removed from it"
            ));
        }
        if is_borrowed && spec.terms.scale.is_some() && held.state == AllocationState::Starting {
            wrong.push(format!("service {by} starts on borrowed node {id}"));
        }
        let until = held.walltime_left_ms().map(|ms| now.after(ms));
        for name in ["r0", "r1"] {
            let Ok(name) = name.parse() else { continue };
            let Some(kept) = state.reservation(&name).map(|kept| &kept.spec) else {
                continue;
            };
            let begins_before = until.is_none_or(|until| kept.from < until);
            let meets =
                kept.nodes.contains(id) && begins_before && kept.until.is_none_or(|u| u > now);
            let is_its = kept
                .projects
                .iter()
                .any(|path| spec.project.is_within(path));
            // A rank added to a service ends with the earlier ranks, and that end is not known here. So only starting
            // allocations are checked.
            if meets && !is_its && held.state == AllocationState::Starting {
                wrong.push(format!(
                    "node {id} is reserved by {name} but was assigned to {by}"
                ));
            }
        }
        for what in wrong {
            self.add(now, what);
        }
    }

    /// Checks that an owner gets a reclaimed node back in time: the owner's jobs were planned with this bound.
    pub(super) fn check_recalls(&mut self, state: &State, now: UnixMillis) {
        let mut wrong = Vec::new();
        for node in state.nodes() {
            let (Some(since), Some(holder)) = (node.reclaimed_at, node.holder) else {
                continue;
            };
            let held = state.allocation(holder.allocation);
            let mut nodes = held.iter().flat_map(|held| held.nodes());
            let bound = since.after(GRACE_MS + LONGEST_MS + SLACK_MS);
            let from = UnixMillis(since.0.saturating_sub(LONGEST_MS));
            // Processes on an unreachable node cannot be ended.
            if now > bound && !nodes.any(|node| self.was_silent(node, from)) {
                let (id, by) = (&node.id, holder.allocation);
                let state = held.map_or("gone", |held| held.state.as_str());
                wrong.push(format!(
                    "node {id} is reclaimed since {since}, but {by} ({state}) still holds it"
                ));
            }
        }
        for what in wrong {
            self.add(now, what);
        }
    }
}

/// Whether the nodes are of no use to the allocation: their assignment would exceed a limit or conflict with a
/// reservation. Tested on a copy of the state.
fn is_unusable(state: &State, by: &Envelope, id: AllocationId, nodes: &[&Node]) -> bool {
    let expected = |node: &&Node| {
        let present = state.node(&node.id)?;
        Some(ExpectedNode {
            node: present.id.clone(),
            version: present.version,
            boot: None,
        })
    };
    let nodes = nodes.iter().filter_map(expected).collect();
    let envelope = Envelope {
        command: Command::Assign { id, nodes },
        ..by.clone()
    };
    let mut copy = state.clone();
    let answer = copy.apply(copy.last_index() + 1, &envelope);
    matches!(
        answer,
        Err(Refusal::LimitExceeded { .. } | Refusal::Reserved { .. })
    )
}
