//! What must hold of every day, whoever decides. It reads the state by its public questions, compares it with
//! what it saw before, and shares no rule with those who decide: each is written down here once more, in the
//! words of what it promises.

mod nodes;
mod room;
mod waiting;
mod work;

use super::{
    machine::Machine,
    scene::{SENSITIVE, Scene},
    site::Heard,
    truth::Truth,
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

/// After so many nothing more is learned.
const MOST: usize = 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Checks {
    found: Vec<String>,
    /// What an administrator said.
    limits: Vec<(ProjectPath, Limits)>,
    /// Nodes as they were before the present command.
    nodes: BTreeMap<NodeId, Node>,
    /// Work as it was.
    seen: BTreeMap<AllocationId, Seen>,
    /// Nodes that nobody reaches, or did not until then.
    silent: BTreeMap<NodeId, Option<UnixMillis>>,
    /// Since when a vCluster has nodes for whoever waits there.
    idle: BTreeMap<VclusterName, UnixMillis>,
    /// Violations that last are told once.
    told: BTreeSet<String>,
}

/// One allocation as it was seen last.
#[derive(Debug)]
struct Seen {
    record: Arc<Allocation>,
    submitted_at: UnixMillis,
    /// How often others took its nodes.
    moves: u32,
    /// When it was last off its nodes for others.
    moved_at: Option<UnixMillis>,
    has_ended: bool,
}

impl Checks {
    pub(super) fn new(scene: &Scene) -> Self {
        Self {
            found: Vec::new(),
            limits: scene.projects.clone(),
            nodes: BTreeMap::new(),
            seen: BTreeMap::new(),
            silent: BTreeMap::new(),
            idle: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    /// What is wrong.
    pub(super) fn add(&mut self, now: UnixMillis, what: String) {
        if self.found.len() < MOST && self.told.insert(what.clone()) {
            let s = now.since(super::START) / 1000;
            let at = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
            self.found.push(format!("{at} {what}"));
        }
    }

    pub(super) fn found(&self) -> &[String] {
        &self.found
    }

    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= MOST
    }

    pub(super) fn pinged(&mut self, node: &NodeId, heard: &Heard, now: UnixMillis) {
        match heard {
            Heard::Alive(_) => {
                if let Some(until) = self.silent.get_mut(node) {
                    *until = Some(now);
                }
            }
            Heard::Suspect | Heard::Unreachable => {
                self.silent.insert(node.clone(), None);
            }
        }
    }

    /// Whether nobody reached a node since then.
    fn was_silent(&self, node: &NodeId, since: UnixMillis) -> bool {
        let until = self.silent.get(node);
        until.is_some_and(|until| until.is_none_or(|until| until >= since))
    }

    /// A command was committed; the records of before are here still.
    pub(super) fn committed(
        &mut self,
        state: &State,
        truth: &mut Truth,
        envelope: &Envelope,
        applied: &Applied,
    ) {
        let now = state.now();
        if applied.events.is_empty() {
            return;
        }
        self.room(state, &envelope.command, now);
        self.counted(state, truth, &envelope.command);
        let (mut nodes, mut works) = (Vec::new(), Vec::new());
        for event in &applied.events {
            match &event.kind {
                EventKind::Node { record } => nodes.push(record),
                EventKind::Allocation { record, .. } => works.push(record),
                _ => {}
            }
        }
        for node in &nodes {
            self.node(state, envelope, node, now);
        }
        for record in &works {
            self.work(truth, record, now);
        }
        for node in &nodes {
            self.nodes.insert(node.id.clone(), (*node).clone());
        }
        if !nodes.is_empty() || !works.is_empty() {
            self.owners(state, now);
            self.limits(state, now);
        }
    }

    /// Those who decide have looked.
    pub(super) fn looked(
        &mut self,
        state: &State,
        machines: &BTreeMap<NodeId, Machine>,
        now: UnixMillis,
    ) {
        self.recalled(state, now);
        self.waiting(state, machines, now);
    }

    /// The day is over, and all that was left to do has had its time.
    pub(super) fn ended(&mut self, state: &State, now: UnixMillis) {
        let mut left = Vec::new();
        for held in state.live_allocations() {
            let id = held.id;
            left.push(format!("{id} never ended: it is {}", held.state));
        }
        for node in state.nodes() {
            let (id, home, current) = (&node.id, &node.home, &node.current);
            if home != current {
                left.push(format!("{id} of {home} is not home: {current} has it"));
            }
            if let Some(by) = node.promised {
                left.push(format!("{id} is promised to {by} still"));
            }
            if node.recalled_at.is_some() {
                left.push(format!("{id} is asked back still"));
            }
            if let Some(holder) = node.holder {
                left.push(format!("{id} is held by {} still", holder.allocation));
            }
        }
        for project in state.projects() {
            let (own, below) = (project.own, project.subtree);
            if own.nodes + own.allocations + below.nodes + below.allocations > 0 {
                left.push(format!("{} is not empty: {own:?}, {below:?}", project.path));
            }
        }
        for what in left {
            self.add(now, what);
        }
    }
}

/// Whether nobody may have these nodes but sensitive work.
fn is_sensitive(vcluster: &VclusterName) -> bool {
    vcluster.as_str() == SENSITIVE
}

/// Whether it is off its nodes for others.
fn was_moved(record: &Allocation) -> bool {
    use lattice_quorum_types::course::MoveReason::{Preempted, Reclaimed};
    matches!(
        record.stop,
        Some(StopCause::Moved {
            reason: Preempted { .. } | Reclaimed { .. },
            ..
        })
    )
}
