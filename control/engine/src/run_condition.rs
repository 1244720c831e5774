//! Condition of an allocation while it holds nodes: the end of its walltime, the due SIGKILL, and its nodes that are
//! out of order.
//!
//! None of this is part of the allocation's record: at the end of the walltime the nodes end their ranks by themselves,
//! and whether nodes answer is not replicated.

use lattice_api::{
    node_status::{NodeProblemView, NodeStatus, StatusParts},
    text::{rounded_duration, time},
};
use lattice_quorum_types::{
    Allocation, AllocationState, NodeId, UnixMillis, allocation::Rank, hostlist,
};
use lattice_view::{NodeEntry, View};
use std::collections::BTreeMap;

/// Time between SIGTERM and SIGKILL on nodes that do not publish it: the default of an agent, milliseconds.
const DEFAULT_GRACE_MS: u64 = 30_000;

/// Condition of an allocation while it holds nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunCondition {
    /// End of the walltime, by the nodes' clocks, while the processes run; `None` when unbounded.
    pub ends_at: Option<UnixMillis>,
    /// Time by which all nodes with running processes send SIGKILL; `None` while no SIGTERM is due. Each node counts
    /// its grace period from its own SIGTERM, so that the time is exact to the delay of messages and clocks.
    pub kill_at: Option<UnixMillis>,
    /// Time since which the allocation is being stopped; `None` while it is not.
    pub stopping_since: Option<UnixMillis>,
    /// Nodes with a problem, by combined status and reason, worst first.
    pub problems: BTreeMap<(NodeStatus, Option<String>), Vec<NodeId>>,
}

impl RunCondition {
    /// Condition of an allocation at `now`; `None` for an allocation that holds no nodes.
    pub fn of(view: &View, a: &Allocation, now: UnixMillis) -> Option<Self> {
        use AllocationState::{Checkpointing, Running, Stopping};
        if !a.state.holds() {
            return None;
        }
        // Without a running rank, the record has no end of the walltime, only an assumption.
        let limit = a.attempt_began_at().and_then(|_| a.ends_at());
        let ends_at = limit.filter(|_| matches!(a.state, Running | Checkpointing));
        let terminated_at = match a.state {
            // If the walltime ended first, the nodes sent SIGTERM then.
            Stopping => limit
                .filter(|at| *at < a.state_since)
                .or(Some(a.state_since)),
            _ => ends_at.filter(|at| *at <= now),
        };
        let kill_at = terminated_at.zip(longest_grace_ms(view, a));
        Some(Self {
            ends_at,
            kill_at: kill_at.map(|(at, grace_ms)| at.after(grace_ms)),
            stopping_since: (a.state == Stopping).then_some(a.state_since),
            problems: problems(view, a),
        })
    }

    /// Describes for how long the allocation is being stopped, and what is wrong; `None` if nothing is.
    pub fn text(&self, now: UnixMillis) -> Option<String> {
        let stopping = self
            .stopping_since
            .map(|since| format!("stopping for {}", rounded_duration(now.since(since))));
        let parts: Vec<String> = stopping.into_iter().chain(self.problem_text(now)).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Describes what is wrong; `None` if nothing is. Only nodes count that probably do not work any more: a node that
    /// drains, for example, does not affect its running allocation.
    pub fn problem_text(&self, now: UnixMillis) -> Option<String> {
        let mut severe: BTreeMap<NodeStatus, Vec<&NodeId>> = BTreeMap::new();
        for ((status, _), nodes) in &self.problems {
            if status.is_severe() {
                severe.entry(*status).or_default().extend(nodes);
            }
        }
        let severe = severe.into_iter().map(|(status, nodes)| {
            let noun = match nodes.len() {
                1 => "node",
                _ => "nodes",
            };
            format!("{noun} {} {status}", hostlist::fold(nodes))
        });
        let parts: Vec<String> = severe.chain(self.termination_text(now)).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn termination_text(&self, now: UnixMillis) -> Option<String> {
        let kill_at = self.kill_at?;
        let kill = match kill_at > now {
            true => format!("SIGKILL in {}", rounded_duration(kill_at.since(now))),
            false => format!(
                "SIGKILL was due at {}, the end of its processes is not confirmed",
                time(kill_at)
            ),
        };
        Some(match self.ends_at {
            Some(_) => format!("time limit reached, {kill}"),
            None => kill,
        })
    }

    /// Nodes with a problem, as shown.
    pub fn problem_views(&self) -> Vec<NodeProblemView> {
        let problems = self.problems.iter();
        let shown = problems.map(|((status, reason), nodes)| NodeProblemView {
            status: status.to_string(),
            nodes: hostlist::fold(nodes),
            reason: reason.clone(),
        });
        shown.collect()
    }
}

/// Longest grace period among the nodes with running processes, milliseconds; `None` without such a node.
fn longest_grace_ms(view: &View, a: &Allocation) -> Option<u64> {
    let running = a
        .ranks
        .iter()
        .filter(|rank| rank.phase.running_since().is_some());
    let grace = running.map(|rank| {
        let published = view.node(&rank.node).and_then(|entry| entry.grace_ms());
        published.unwrap_or(DEFAULT_GRACE_MS)
    });
    grace.max()
}

/// Nodes with a problem, among those with processes that have not ended.
fn problems(view: &View, a: &Allocation) -> BTreeMap<(NodeStatus, Option<String>), Vec<NodeId>> {
    let mut problems: BTreeMap<_, Vec<NodeId>> = BTreeMap::new();
    let held = |rank: &&Rank| !rank.phase.is_over();
    for rank in a.ranks.iter().filter(held) {
        let entry = view.node(&rank.node);
        let status = entry.map_or(NodeStatus::Unknown, |entry| node_status(entry));
        if status.is_problem() {
            let reason = entry.and_then(|entry| reason(entry, status));
            let nodes = problems.entry((status, reason)).or_default();
            nodes.push(rank.node.clone());
        }
    }
    problems
}

/// Combined status of a node.
pub fn node_status(entry: &NodeEntry) -> NodeStatus {
    let record = entry.record.as_ref();
    let (published, _) = entry.shown_health();
    let claim = record.and_then(|record| record.node_claim.as_ref());
    NodeStatus::of(&StatusParts {
        lifecycle: record.map_or("unregistered", |record| record.lifecycle.as_str()),
        liveness: entry.liveness.as_str(),
        health: published.max(entry.bmc_faults.health).as_str(),
        claim: claim.map(|claim| claim.phase.as_str()),
        is_held: record.is_some_and(|record| record.holder.is_some()),
    })
}

/// Reason for the status of a node, from the part that determines the status.
fn reason(entry: &NodeEntry, status: NodeStatus) -> Option<String> {
    let reasons: Vec<String> = match status {
        NodeStatus::Unreachable | NodeStatus::Suspect => {
            entry.liveness_reason.iter().cloned().collect()
        }
        NodeStatus::Drained | NodeStatus::Draining | NodeStatus::Quarantined => {
            let drains = entry.record.iter().flat_map(|record| &record.drain);
            let drains = drains.map(|drain| format!("{}: {}", drain.owner, drain.reason));
            drains.collect()
        }
        NodeStatus::Faulty | NodeStatus::Degraded | NodeStatus::Unknown => {
            let (_, published) = entry.shown_health();
            let bmc = entry.bmc_faults.reasons.iter();
            let bmc = bmc.map(|(code, _)| code.clone());
            let mut codes: Vec<String> = published.into_iter().chain(bmc).collect();
            codes.sort();
            codes.dedup();
            codes
        }
        _ => Vec::new(),
    };
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests;
