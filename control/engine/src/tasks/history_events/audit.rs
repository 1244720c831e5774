//! Audit entries in node histories: entries about a node, about a baseline that applies to it, or about the brake,
//! which concerns every node.

use super::{ComparedNode, RecordedState, truncate_reason};
use crate::{
    core::Core,
    history::{NodeObservation, TimedObservations},
};
use lattice_api::audit::{action_name, summary};
use lattice_quorum_types::{
    NodeId,
    audit::{AuditAction, AuditEntry},
    id::BaselineName,
    view::{Answer, Query},
};
use lattice_view::{NodeEntry, View, baselines::ParsedBaseline};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Audit entries read per query.
const CHUNK: u32 = 1_000;
/// Number of lines in a chunk after which no further entry is read in it: an entry about the whole cluster is one line
/// in the history of each node.
const MOST_LINES: usize = 100_000;

/// Notes derived from the next audit entries.
pub(super) struct Audited {
    pub(super) notes: Vec<TimedObservations>,
    pub(super) lines: usize,
    pub(super) compared: BTreeMap<NodeId, ComparedNode>,
    /// Sequence number up to which the audit was read.
    pub(super) read: u64,
}

/// Reads the audit entries after `after`; `None` if they cannot be read, there are none, or the nodes that the first
/// one concerns cannot be determined yet.
pub(super) async fn read_audit(
    core: &Core,
    known: &RecordedState,
    after: u64,
    is_settled: bool,
) -> Option<Audited> {
    let limit = CHUNK;
    let Ok(Answer::Audit(entries)) = core.read(Query::Audit { after, limit }).await else {
        return None;
    };
    let mut concerned = ConcernedNodes {
        core,
        view: core.view(),
        known,
        is_settled,
        compared: BTreeMap::new(),
    };
    let mut happened: BTreeMap<String, Vec<(u64, NodeObservation)>> = BTreeMap::new();
    let (mut read, mut lines) = (after, 0);
    for entry in &entries {
        if lines >= MOST_LINES {
            break;
        }
        let Some(nodes) = concerned.nodes_of(&entry.action).await else {
            break;
        };
        lines += nodes.len();
        for node in nodes {
            let noted = (entry.at.0, noted(entry));
            happened.entry(node.to_string()).or_default().push(noted);
        }
        read = entry.number;
    }
    let compared = concerned.compared;
    let notes = happened.into_iter().map(|(node, happened)| {
        let compared = NodeId::new(&node).ok().and_then(|id| compared.get(&id));
        TimedObservations {
            comparison_state: compared.and_then(|compared| serde_json::to_vec(compared).ok()),
            node,
            happened,
        }
    });
    let notes = notes.collect();
    (read > after).then_some(Audited {
        notes,
        lines,
        compared,
        read,
    })
}

fn noted(entry: &AuditEntry) -> NodeObservation {
    NodeObservation::Audit {
        number: entry.number,
        action: action_name(&entry.action).to_owned(),
        by: truncate_reason(&entry.by.name),
        summary: truncate_reason(&summary(&entry.action)),
    }
}

/// New states of nodes to which a baseline applies although no audit entry named them: they joined, or their cohort
/// became available, after the baseline was set.
pub(super) fn unaudited_states(
    view: &View,
    known: &RecordedState,
) -> BTreeMap<NodeId, ComparedNode> {
    let mut found = BTreeMap::new();
    for node in view.nodes.values().filter(|node| node.record.is_some()) {
        let Some(compared) = known.nodes.get(&node.id) else {
            continue;
        };
        let cohort = node.cohort();
        let is_new = |kept: &&Arc<ParsedBaseline>| {
            !compared.baselines.contains(&kept.record.name)
                && kept.selects_node(&node.id, cohort.as_ref())
        };
        let new = view.baselines.all().filter(is_new);
        let new: Vec<BaselineName> = new.map(|kept| kept.record.name.clone()).collect();
        if !new.is_empty() {
            let mut compared = compared.clone();
            compared.baselines.extend(new);
            found.insert(node.id.clone(), compared);
        }
    }
    found
}

/// Determines the nodes that an audit entry concerns.
struct ConcernedNodes<'a> {
    core: &'a Core,
    view: Arc<View>,
    known: &'a RecordedState,
    is_settled: bool,
    /// Nodes with a changed set of baselines.
    compared: BTreeMap<NodeId, ComparedNode>,
}

impl ConcernedNodes<'_> {
    /// Returns the nodes concerned; `None` while that cannot be determined yet.
    async fn nodes_of(&mut self, action: &AuditAction) -> Option<Vec<NodeId>> {
        match action {
            AuditAction::BaselineSet { name, version, .. } => self.baseline(name, *version).await,
            AuditAction::BaselineDeleted { name, .. } => {
                let had = self.registered().filter(|node| self.has(&node.id, name));
                let had: Vec<NodeId> = had.map(|node| node.id.clone()).collect();
                for node in &had {
                    self.change(node, |baselines| {
                        baselines.remove(name);
                    });
                }
                Some(had)
            }
            // The brake concerns every node.
            AuditAction::BrakeHeld { .. } | AuditAction::BrakeReleased { .. } => {
                Some(self.registered().map(|node| node.id.clone()).collect())
            }
            // Control records these changes from the node records, whichever principal makes them.
            AuditAction::Drained { .. }
            | AuditAction::Undrained { .. }
            | AuditAction::LifecycleSet { .. } => Some(Vec::new()),
            other => Some(named(other)),
        }
    }

    /// Nodes to which this version applies or the previous one applied. An empty list if the version is no longer
    /// stored; `None` while its nodes cannot be determined yet.
    async fn baseline(&mut self, name: &BaselineName, version: u32) -> Option<Vec<NodeId>> {
        let query = Query::Baseline {
            name: name.clone(),
            version: Some(version),
        };
        let Ok(Answer::Baseline(found)) = self.core.read(query).await else {
            return None;
        };
        let Some(kept) = found.map(|record| ParsedBaseline::new(*record)) else {
            return Some(Vec::new());
        };
        let needs_cohorts = kept.record.definition.cohort.is_some();
        if needs_cohorts && !self.is_settled && self.registered().any(|n| n.cohort().is_none()) {
            return None;
        }
        let mut concerned = Vec::new();
        for node in self.registered() {
            let is_for = kept.selects_node(&node.id, node.cohort().as_ref());
            if is_for || self.has(&node.id, name) {
                concerned.push((node.id.clone(), is_for));
            }
        }
        for (node, is_for) in &concerned {
            self.change(node, |baselines| {
                match is_for {
                    true => baselines.insert(name.clone()),
                    false => baselines.remove(name),
                };
            });
        }
        Some(concerned.into_iter().map(|(node, _)| node).collect())
    }

    fn registered(&self) -> impl Iterator<Item = &Arc<NodeEntry>> {
        let nodes = self.view.nodes.values();
        nodes.filter(|node| node.record.is_some())
    }

    fn compared(&self, node: &NodeId) -> Option<&ComparedNode> {
        self.compared
            .get(node)
            .or_else(|| self.known.nodes.get(node))
    }

    fn has(&self, node: &NodeId, name: &BaselineName) -> bool {
        let compared = self.compared(node);
        compared.is_some_and(|compared| compared.baselines.contains(name))
    }

    fn change(&mut self, node: &NodeId, change: impl FnOnce(&mut BTreeSet<BaselineName>)) {
        if let Some(mut compared) = self.compared(node).cloned() {
            change(&mut compared.baselines);
            self.compared.insert(node.clone(), compared);
        }
    }
}

/// Nodes that the entry names, including unregistered ones.
fn named(action: &AuditAction) -> Vec<NodeId> {
    let about = action.subjects();
    let nodes = about.nodes.into_iter();
    nodes.filter_map(|name| NodeId::new(name).ok()).collect()
}
