//! Inputs of a scheduler between two of its plans, in words: they are the context of a plan that differs.

use super::time;
use lattice_placement::{
    ClusterView, Policy,
    record::{ChangedAllocation, Cycle},
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, event::AllocationChange, hostlist,
};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of changed allocations that are named; of more, the latest are named.
const NAMED_CHANGES: usize = 4;
/// Largest number of changed projects that are named.
const NAMED_PROJECTS: usize = 4;

/// Changed allocation, with its line in the record.
#[derive(Debug, Clone, Copy)]
struct NotedChange {
    line: u64,
    id: AllocationId,
    change: AllocationChange,
    at: UnixMillis,
}

/// Inputs since the last plan of one vCluster.
#[derive(Debug, Default)]
pub(super) struct RecentInputs {
    changes: VecDeque<NotedChange>,
    /// Number of earlier changes that are not kept.
    earlier: u64,
    /// Policy of the last plan; `None` before the first.
    policy: Option<Policy>,
}

/// Entries of a cycle's delta that differ from the planner's view.
#[derive(Debug, Default)]
pub(super) struct ChangedEntries {
    nodes: Vec<NodeId>,
    projects: Vec<ProjectPath>,
    reservations: bool,
    /// Limit policy, sensitive pool, tenants, storage, power, energy price.
    site: bool,
}

impl ChangedEntries {
    /// Compares a cycle's delta with the view before it.
    pub(super) fn of(cycle: &Cycle, known: &ClusterView) -> Self {
        let Some(delta) = cycle.delta.as_deref() else {
            return Self::default();
        };
        let nodes = delta.nodes.iter();
        let nodes = nodes.filter(|(name, node)| known.nodes.get(*name) != node.as_ref());
        let levels = delta.levels.iter();
        let levels = levels.filter(|(path, level)| {
            let limits = level.as_ref().map(|level| level.limits);
            known.levels.get(*path).map(|level| level.limits) != limits
        });
        Self {
            nodes: nodes.map(|(name, _)| name.clone()).collect(),
            projects: levels.map(|(path, _)| path.clone()).collect(),
            reservations: differs(&delta.reserved, &known.reserved),
            site: delta.limit_policy != known.limit_policy
                || delta.sensitive_pool != known.sensitive_pool
                || delta.energy_price != known.energy_price
                || differs(&delta.tenants, &known.tenants)
                || differs(&delta.storage, &known.storage)
                || differs(&delta.power, &known.power),
        }
    }
}

fn differs<K: Ord, V: PartialEq>(changes: &BTreeMap<K, Option<V>>, known: &BTreeMap<K, V>) -> bool {
    let mut changes = changes.iter();
    changes.any(|(key, value)| known.get(key) != value.as_ref())
}

impl RecentInputs {
    /// Notes a changed allocation of the vCluster, at line `line` of the record.
    pub(super) fn changed(&mut self, line: u64, changed: &ChangedAllocation) {
        if self.changes.len() == NAMED_CHANGES {
            self.changes.pop_front();
            self.earlier += 1;
        }
        self.changes.push_back(NotedChange {
            line,
            id: changed.id,
            change: changed.change,
            at: changed.at,
        });
    }

    /// Notes a plan: later inputs belong to the next plan.
    pub(super) fn planned(&mut self, cycle: &Cycle) {
        self.changes.clear();
        self.earlier = 0;
        self.policy = Some(cycle.policy);
    }

    /// Inputs since the last plan in words, the latest change of an allocation first. Empty if there was none.
    pub(super) fn texts(&self, cycle: &Cycle, entries: &ChangedEntries) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for of in self.changes.iter().rev() {
            texts.push(format!(
                "allocation {} {} at {} (line {})",
                of.id,
                word(of.change),
                time(of.at),
                of.line
            ));
        }
        if self.earlier > 0 {
            texts.push(format!("{} earlier changes of allocations", self.earlier));
        }
        if self.policy.is_some_and(|policy| policy != cycle.policy) {
            texts.push("the settings of the scheduler changed".to_owned());
        }
        if !entries.projects.is_empty() {
            let named = entries.projects.iter().take(NAMED_PROJECTS);
            let named: Vec<&str> = named.map(ProjectPath::as_str).collect();
            let named = named.join(", ");
            texts.push(
                match entries.projects.len().saturating_sub(NAMED_PROJECTS) {
                    0 => format!("limits of {named} changed"),
                    more => format!("limits of {named} and {more} more projects changed"),
                },
            );
        }
        if !entries.nodes.is_empty() {
            let nodes = hostlist::fold(&entries.nodes);
            texts.push(format!("nodes {nodes} changed"));
        }
        if entries.reservations {
            texts.push("reservations changed".to_owned());
        }
        if entries.site {
            texts.push("shares, budgets, power, storage or the energy price changed".to_owned());
        }
        texts
    }
}

/// Change of an allocation as a verb.
fn word(change: AllocationChange) -> &'static str {
    match change {
        AllocationChange::Submitted => "was submitted",
        AllocationChange::Held => "was held",
        AllocationChange::Released => "was released from hold",
        AllocationChange::Assigned => "was assigned its nodes",
        AllocationChange::Progressed => "progressed",
        AllocationChange::Started => "started",
        AllocationChange::Stopping => "began to stop",
        AllocationChange::Requeued => "was requeued",
        AllocationChange::Ended => "ended",
        AllocationChange::Suspended => "was suspended",
        AllocationChange::Resumed => "was resumed",
        AllocationChange::Grown => "grew",
        AllocationChange::Shrunk => "shrank",
        AllocationChange::Checkpointing => "began a checkpoint",
        AllocationChange::Checkpointed => "completed a checkpoint",
        AllocationChange::Extended => "got another walltime",
        AllocationChange::Counted => "changed the counts of its array",
    }
}
