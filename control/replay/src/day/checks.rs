//! Invariants of every simulated day, for any implementation of control. The checks read the state by its public
//! functions and compare the state with the one before. They share no rule with control or the state machine: each rule
//! is written again here, from the documented guarantees.

mod jobs;
mod nodes;
mod preemption;
mod waiting;

use super::{
    machine::{Machine, PingState},
    scene::{SENSITIVE, Scene},
    true_progress::TrueProgress,
};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, Applied, Envelope, NodeId, ProjectPath, UnixMillis, VclusterName,
    allocation::StopCause, event::EventKind, limit::Limits, node::Node,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Largest number of reported violations; the day ends when it is reached.
const MAX_VIOLATIONS: usize = 20;

/// Invariant checks of one day.
#[derive(Debug)]
pub(super) struct Checks {
    found: Vec<String>,
    /// Limits as the administrator set them.
    limits: Vec<(ProjectPath, Limits)>,
    /// Nodes before the current command.
    nodes: BTreeMap<NodeId, Node>,
    /// Allocations before the current command.
    allocations: BTreeMap<AllocationId, AllocationSnapshot>,
    /// Nodes that did not answer pings: `None` while a node is silent, afterwards the time of its first new answer.
    silent_nodes: BTreeMap<NodeId, Option<UnixMillis>>,
    /// Time since when a vCluster has enough nodes for every waiting allocation.
    startable_since: BTreeMap<VclusterName, UnixMillis>,
    /// Violations that were reported: a lasting violation is reported only once.
    reported: BTreeSet<String>,
}

/// Last known state of one allocation.
#[derive(Debug)]
struct AllocationSnapshot {
    record: Arc<Allocation>,
    submitted_at: UnixMillis,
    /// Number of preemptions and reclaims of the allocation.
    moves: u32,
    /// Time of the last preemption or reclaim.
    moved_at: Option<UnixMillis>,
    has_ended: bool,
}

impl Checks {
    pub(super) fn new(scene: &Scene) -> Self {
        Self {
            found: Vec::new(),
            limits: scene.projects.clone(),
            nodes: BTreeMap::new(),
            allocations: BTreeMap::new(),
            silent_nodes: BTreeMap::new(),
            startable_since: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Adds a violation, with the time since the start of the day.
    pub(super) fn add(&mut self, now: UnixMillis, what: String) {
        if self.found.len() < MAX_VIOLATIONS && self.reported.insert(what.clone()) {
            let s = now.since(super::START) / 1000;
            let at = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
            self.found.push(format!("{at} {what}"));
        }
    }

    pub(super) fn found(&self) -> &[String] {
        &self.found
    }

    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= MAX_VIOLATIONS
    }

    pub(super) fn pinged(&mut self, node: &NodeId, ping: &PingState, now: UnixMillis) {
        match ping {
            PingState::Alive(_) => {
                if let Some(until) = self.silent_nodes.get_mut(node) {
                    *until = Some(now);
                }
            }
            PingState::Suspect | PingState::Unreachable => {
                self.silent_nodes.insert(node.clone(), None);
            }
        }
    }

    /// Whether a node was silent at any time from `since` on.
    fn was_silent(&self, node: &NodeId, since: UnixMillis) -> bool {
        let until = self.silent_nodes.get(node);
        until.is_some_and(|until| until.is_none_or(|until| until >= since))
    }

    /// Checks a committed command. `state` is the state after the command, and `self` still holds the records from
    /// before.
    pub(super) fn check_command(
        &mut self,
        state: &State,
        truth: &mut TrueProgress,
        envelope: &Envelope,
        applied: &Applied,
    ) {
        let now = state.now();
        if applied.events.is_empty() {
            return;
        }
        self.check_victims(state, &envelope.command, now);
        self.record_part(state, truth, &envelope.command);
        let (mut nodes, mut works) = (Vec::new(), Vec::new());
        for event in &applied.events {
            match &event.kind {
                EventKind::Node { record } => nodes.push(record),
                EventKind::Allocation { record, .. } => works.push(record),
                _ => {}
            }
        }
        for node in &nodes {
            self.check_node(state, envelope, node, now);
        }
        for record in &works {
            self.check_allocation(truth, record, now);
        }
        for node in &nodes {
            self.nodes.insert(node.id.clone(), (*node).clone());
        }
        if !nodes.is_empty() || !works.is_empty() {
            self.check_owners(state, now);
            self.check_limits(state, now);
        }
    }

    /// Runs the checks that follow each pass of control.
    pub(super) fn after_pass(
        &mut self,
        state: &State,
        machines: &BTreeMap<NodeId, Machine>,
        now: UnixMillis,
    ) {
        self.check_recalls(state, now);
        self.check_waiting(state, machines, now);
    }

    /// Checks the final state: all jobs must have ended, all nodes must be free and back home.
    pub(super) fn check_end(&mut self, state: &State, now: UnixMillis) {
        let mut left = Vec::new();
        for held in state.live_allocations() {
            let id = held.id;
            left.push(format!("{id} never ended; its state is {}", held.state));
        }
        for node in state.nodes() {
            let (id, home, current) = (&node.id, &node.home, &node.current);
            if home != current {
                left.push(format!("node {id} of {home} was not returned by {current}"));
            }
            if let Some(by) = node.promised {
                left.push(format!("node {id} is still promised to {by}"));
            }
            if node.reclaimed_at.is_some() {
                left.push(format!("node {id} is still reclaimed"));
            }
            if let Some(holder) = node.holder {
                left.push(format!("node {id} is still held by {}", holder.allocation));
            }
        }
        for project in state.projects() {
            let (own, below) = (project.own, project.subtree);
            if own.nodes + own.allocations + below.nodes + below.allocations > 0 {
                left.push(format!(
                    "project {} still has usage: own {own:?}, subtree {below:?}",
                    project.path
                ));
            }
        }
        for what in left {
            self.add(now, what);
        }
    }
}

/// Whether this is the vCluster for sensitive allocations.
fn is_sensitive(vcluster: &VclusterName) -> bool {
    vcluster.as_str() == SENSITIVE
}

/// Whether the allocation lost its nodes by preemption or reclaim.
fn was_moved(record: &Allocation) -> bool {
    use lattice_quorum_types::progress::MoveReason::{Preempted, Reclaimed};
    matches!(
        record.stop,
        Some(StopCause::Moved {
            reason: Preempted { .. } | Reclaimed { .. },
            ..
        })
    )
}
