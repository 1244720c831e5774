//! Node history writer: records what agents cannot report. Recorded are drains, lifecycle changes, liveness, and audit
//! entries about nodes, their baselines and the drain brake.
//!
//! Every control writes its own history, as it reads the agents' journals itself: the history is a cache and needs no
//! lease.
//!
//! The last recorded state is stored in the database. After a restart this control therefore writes nothing twice. A
//! change that happened meanwhile is written once, with the time given by the quorum, or marked as late.

mod audit;
mod suspicion;

use crate::{
    core::Core,
    history::{DrainTurn, History, HistoryError, NodeObservation, TimedObservations},
    tasks::activation::Activation,
};
use audit::{read_audit, unaudited_states};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    id::BaselineName,
    node::{DrainReason, Lifecycle},
};
use lattice_view::{NodeEntry, View};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use suspicion::Suspicion;

/// Longest time between two passes.
const PERIOD: Duration = Duration::from_secs(10);
/// Shortest time between two passes; changes within this time are handled together.
const SPACING: Duration = Duration::from_millis(200);
/// Shortest time between two audit reads while the baselines do not change: audit entries about nodes are rare.
const AUDIT_EVERY: Duration = Duration::from_secs(5);
/// Audit chunks read in one pass. A control with a new data directory has the whole audit to read.
const AUDIT_CHUNKS: usize = 4;
/// Time after the start during which cohorts may still be incomplete. Until then, audit entries about a baseline with a
/// cohort wait while the cohort of any node is unknown.
const SETTLES_AFTER: Duration = Duration::from_secs(60);
/// Age of the view, milliseconds, from which this control may have missed quorum decisions.
const STALE_VIEW_MS: u64 = 30_000;
/// Maximum number of liveness changes of one node recorded within an hour; further ones are only counted.
const MAX_LIVENESS_CHANGES: usize = 12;
const HOUR_MS: u64 = 3_600_000;
/// Maximum length of a recorded text, such as a reason or an owner, characters.
const MOST_CHARS: usize = 300;

/// Node history writer; see the module.
#[derive(Debug)]
pub struct HistoryEventsTask {
    core: Arc<Core>,
    history: History,
    /// State as stored in the database; `None` until it has been read.
    known: Option<RecordedState>,
    audit_asked_at: Option<tokio::time::Instant>,
    /// Number of the baseline set at the last audit read. A change of the number causes an early read, because the
    /// nodes of a deleted baseline can no longer be determined.
    baselines: u64,
    started_at: tokio::time::Instant,
}

#[derive(Debug, Default)]
struct RecordedState {
    nodes: BTreeMap<NodeId, ComparedNode>,
    /// Audit sequence number up to which the audit was read; `None` in a new database.
    audit: Option<u64>,
    /// Whether this control has compared all nodes since its start and has received quorum state since. If so, any
    /// difference happened just now.
    is_current: bool,
    /// Nodes seen alive or unreachable since this control started. For any other node, a liveness change may have
    /// happened while this control did not observe it.
    judged: BTreeSet<NodeId>,
    /// Suspicion state of nodes that were suspect since this control started.
    suspects: BTreeMap<NodeId, Suspicion>,
}

/// Last recorded state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ComparedNode {
    lifecycle: Lifecycle,
    drain: Vec<DrainReason>,
    /// Whether the node was alive at the last recorded liveness change.
    is_alive: bool,
    /// When liveness changes were recorded, Unix milliseconds.
    turns: VecDeque<u64>,
    /// Number of liveness changes since the last recorded one.
    unnoted: u32,
    /// Whether the node was alive at the last observed liveness change, recorded or not.
    last_seen: bool,
    /// Baselines that apply to the node, as far as the audit was read. For a deleted baseline this is the only record.
    baselines: BTreeSet<BaselineName>,
}

/// Result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryEventsReport {
    /// Lines written.
    pub(crate) noted: usize,
    /// Nodes with a new recorded state.
    pub(crate) nodes: usize,
}

impl HistoryEventsTask {
    /// New [`HistoryEventsTask`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>, history: History) -> Self {
        Self {
            core,
            history,
            known: None,
            audit_asked_at: None,
            baselines: 0,
            started_at: tokio::time::Instant::now(),
        }
    }

    /// Runs forever.
    pub async fn run(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        loop {
            activation.next().await;
            match self.reconcile().await {
                Ok(report) if report.noted > 0 => tracing::debug!(?report, "node events recorded"),
                Ok(_) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "node events not recorded; trying again");
                }
            }
        }
    }

    /// Writes every difference from the last recorded state, and the new audit entries about nodes.
    pub(crate) async fn reconcile(&mut self) -> Result<HistoryEventsReport, HistoryError> {
        let view = self.core.view();
        if view.revision.0 == 0 {
            return Ok(HistoryEventsReport::default());
        }
        let known = match self.known.take() {
            Some(known) => known,
            None => read(&self.history).await?,
        };
        let known = self.known.insert(known);
        let now = self.core.now().0;
        let is_deaf = self
            .core
            .view_age_ms()
            .is_none_or(|age| age >= STALE_VIEW_MS);
        known.is_current &= !is_deaf;
        let mut notes = Vec::new();
        let mut compared = Vec::new();
        for (id, node) in view.nodes.iter() {
            if let Some(suspected) = known.suspicion(node, now) {
                notes.push(TimedObservations {
                    node: id.to_string(),
                    happened: vec![suspected],
                    comparison_state: None,
                });
            }
            let before = known.nodes.get(id);
            let is_judged = match node.liveness {
                Liveness::Alive | Liveness::Unreachable => !known.judged.insert(id.clone()),
                Liveness::Suspect | Liveness::Unknown => known.judged.contains(id),
            };
            let looked = SeenState {
                is_current: known.is_current,
                is_judged,
            };
            let Some(next) = compare(before, node, now, (&view, looked)) else {
                continue;
            };
            if before == Some(&next.compared) {
                continue;
            }
            notes.push(TimedObservations {
                node: id.to_string(),
                happened: next.happened,
                comparison_state: serde_json::to_vec(&next.compared).ok(),
            });
            compared.push((id.clone(), next.compared));
        }
        let is_due = |at: tokio::time::Instant| at.elapsed() >= AUDIT_EVERY;
        let mut report = HistoryEventsReport {
            noted: notes.iter().map(|note| note.happened.len()).sum(),
            nodes: compared.len(),
        };
        if !notes.is_empty() {
            self.history.note(notes, None).await?;
        }
        known.nodes.extend(compared);
        known.is_current = !is_deaf;
        let number = view.baselines.generation;
        if number != self.baselines || self.audit_asked_at.is_none_or(is_due) {
            self.baselines = number;
            self.audit_asked_at = Some(tokio::time::Instant::now());
            let is_settled = self.started_at.elapsed() >= SETTLES_AFTER;
            if is_settled && !is_deaf {
                let found = unaudited_states(&view, known);
                let notes = found.iter().map(|(node, compared)| TimedObservations {
                    node: node.to_string(),
                    happened: Vec::new(),
                    comparison_state: serde_json::to_vec(compared).ok(),
                });
                let notes: Vec<TimedObservations> = notes.collect();
                if !notes.is_empty() {
                    self.history.note(notes, None).await?;
                }
                known.nodes.extend(found);
            }
            for _ in 0..AUDIT_CHUNKS {
                let after = known.audit.unwrap_or(0);
                let Some(audited) = read_audit(&self.core, known, after, is_settled).await else {
                    break;
                };
                report.noted += audited.lines;
                // The read position is stored in the same write, so that nothing is recorded twice.
                let (notes, read) = (audited.notes, audited.read);
                self.history.note(notes, Some(read)).await?;
                known.nodes.extend(audited.compared);
                known.audit = Some(read);
            }
        }
        Ok(report)
    }
}

/// Reads the state written by an earlier run; an unreadable node entry counts as missing.
async fn read(history: &History) -> Result<RecordedState, HistoryError> {
    let (compared, audit) = history.comparison_progress().await?;
    let nodes = compared.into_iter().filter_map(|(node, bytes)| {
        let compared = serde_json::from_slice(&bytes).ok()?;
        Some((NodeId::new(&node).ok()?, compared))
    });
    Ok(RecordedState {
        nodes: nodes.collect(),
        audit,
        is_current: false,
        judged: BTreeSet::new(),
        suspects: BTreeMap::new(),
    })
}

/// Observations of one node since this control started.
#[derive(Debug, Clone, Copy)]
struct SeenState {
    /// See [`RecordedState::is_current`].
    is_current: bool,
    /// Whether the node is in [`RecordedState::judged`].
    is_judged: bool,
}

/// Result of a comparison.
struct ComparisonOutcome {
    happened: Vec<(u64, NodeObservation)>,
    compared: ComparedNode,
}

/// Compares a node with its last recorded state; pure. `None` for a node without a record in the quorum, and if nothing
/// changed.
fn compare(
    before: Option<&ComparedNode>,
    node: &NodeEntry,
    now: u64,
    (view, looked): (&View, SeenState),
) -> Option<ComparisonOutcome> {
    let record = node.record.as_ref()?;
    let is_same = |before: &ComparedNode| {
        before.lifecycle == record.lifecycle
            && before.drain == record.drain
            && before.is_noted(node.liveness)
    };
    if before.is_some_and(is_same) {
        return None;
    }
    // State time is the time stamp of the last command, so it is not earlier than the event. The recorded time is at
    // most the current time.
    let seen_at = match looked.is_current {
        true => view.at.0.min(now),
        false => now,
    };
    let late = before.is_some() && !looked.is_current;
    let mut happened = Vec::new();
    let mut drains = |turn, drain: &DrainReason, at: u64, late| {
        let noted = NodeObservation::Drain {
            turn,
            owner: truncate_reason(&drain.owner),
            reason: truncate_reason(&drain.reason),
            late,
        };
        happened.push((at.min(now), noted));
    };
    let old = before.map_or(&[][..], |before| &before.drain);
    for drain in old {
        if !record.drain.iter().any(|new| new.owner == drain.owner) {
            drains(DrainTurn::Cleared, drain, seen_at, late);
        }
    }
    for drain in &record.drain {
        match old.iter().find(|old| old.owner == drain.owner) {
            None => drains(DrainTurn::Set, drain, drain.since.0, false),
            Some(old) if old.reason != drain.reason => {
                let at = match drain.since == old.since {
                    true => seen_at,
                    false => drain.since.0,
                };
                drains(
                    DrainTurn::Changed,
                    drain,
                    at,
                    late && drain.since == old.since,
                );
            }
            Some(_) => {}
        }
    }
    match before.map(|before| before.lifecycle) {
        None => happened.push((
            record.registered_at.0.min(now),
            NodeObservation::Lifecycle {
                from: None,
                to: record.lifecycle.to_string(),
                late: false,
            },
        )),
        Some(from) if from != record.lifecycle => happened.push((
            seen_at,
            NodeObservation::Lifecycle {
                from: Some(from.to_string()),
                to: record.lifecycle.to_string(),
                late,
            },
        )),
        Some(_) => {}
    }
    let mut compared = ComparedNode {
        lifecycle: record.lifecycle,
        drain: record.drain.clone(),
        ..before.cloned().unwrap_or(ComparedNode {
            lifecycle: record.lifecycle,
            drain: Vec::new(),
            is_alive: true,
            turns: VecDeque::new(),
            unnoted: 0,
            last_seen: true,
            baselines: BTreeSet::new(),
        })
    };
    let is_late = before.is_some() && !looked.is_judged;
    happened.extend(compared.liveness(node, now, is_late));
    Some(ComparisonOutcome { happened, compared })
}

impl RecordedState {
    fn suspicion(&mut self, node: &NodeEntry, now: u64) -> Option<(u64, NodeObservation)> {
        node.record.as_ref()?;
        match node.liveness {
            Liveness::Suspect => {
                let suspicion = self.suspects.entry(node.id.clone()).or_default();
                suspicion.observe(node, now)
            }
            _ => self.suspects.get_mut(&node.id)?.observe(node, now),
        }
    }
}

impl ComparedNode {
    fn is_noted(&self, liveness: Liveness) -> bool {
        match liveness {
            Liveness::Alive => self.is_alive && self.last_seen,
            Liveness::Unreachable => !self.is_alive && !self.last_seen,
            Liveness::Suspect | Liveness::Unknown => true,
        }
    }

    /// Records a liveness change. Suspicion is not a change (see [`Suspicion`]), and neither is unknown liveness.
    fn liveness(
        &mut self,
        node: &NodeEntry,
        now: u64,
        late: bool,
    ) -> Option<(u64, NodeObservation)> {
        let is_alive = match node.liveness {
            Liveness::Alive => true,
            Liveness::Unreachable => false,
            Liveness::Suspect | Liveness::Unknown => return None,
        };
        if self.last_seen != is_alive {
            self.last_seen = is_alive;
            self.unnoted = self.unnoted.saturating_add(1);
        }
        if self.is_alive == is_alive {
            return None;
        }
        self.turns.retain(|at| *at <= now && now - at < HOUR_MS);
        if self.turns.len() >= MAX_LIVENESS_CHANGES {
            return None;
        }
        self.turns.push_back(now);
        self.is_alive = is_alive;
        let noted = NodeObservation::Liveness {
            is_alive,
            reason: node
                .liveness_reason
                .as_deref()
                .map(truncate_reason)
                .filter(|_| !is_alive),
            left_out: std::mem::take(&mut self.unnoted).saturating_sub(1),
            late,
        };
        Some((now, noted))
    }
}

fn truncate_reason(text: &str) -> String {
    text.chars().take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests;
