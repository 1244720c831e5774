//! Writes into the nodes' history what their agents cannot tell: drains and lifecycle, whether they
//! answer, and what the audit says of them, of the baselines that are for them and of the brake. Every
//! control does so for itself, as it reads the agents' journals: it is a cache, and needs no lease.
//!
//! What was written last is kept beside it, so that a control that starts anew writes nothing twice,
//! and what became of a node meanwhile once, with the time the quorum gives it, or marked as late.

mod audit;
mod suspicion;

use crate::{
    core::Core,
    history::{DrainTurn, HistoryError, Note, Noted},
    tasks::activation::Activation,
    view::{NodeEntry, View},
};
use audit::{audited, not_told};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    id::BaselineName,
    node::{DrainReason, Lifecycle},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use suspicion::Suspicion;

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(10);
/// Changes that come together are seen together.
const SPACING: Duration = Duration::from_millis(200);
/// The audit is asked this often, beside when the view changes: what it says of nodes is rare.
const AUDIT_EVERY: Duration = Duration::from_secs(5);
/// Chunks of the audit read in one pass: a control whose folder is new has all of it to read.
const AUDIT_CHUNKS: usize = 4;
/// A control that starts waits so long to hear what every node is by construction, before it says
/// whom a baseline of a cohort is for.
const SETTLES_AFTER: Duration = Duration::from_secs(60);
/// A quorum that was not heard of for so long may have decided what this control did not see.
const DEAF_AFTER_MS: u64 = 30_000;
/// Changes of one node's liveness that are noted within an hour; what is beyond is counted.
const MOST_TURNS: usize = 12;
const HOUR_MS: u64 = 3_600_000;
/// A reason is noted with so many characters.
const MOST_CHARS: usize = 300;

/// See the module.
#[derive(Debug)]
pub(crate) struct NoteNodes {
    core: Arc<Core>,
    /// As the database has it; `None` until it was read.
    known: Option<Known>,
    audit_asked_at: Option<tokio::time::Instant>,
    /// Of the baselines when the audit was asked last: of one that is set and soon deleted nobody
    /// says later whom it was for.
    baselines: u64,
    started_at: tokio::time::Instant,
}

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<NodeId, Compared>,
    /// Up to which entry the audit was read; none in a database that is new.
    audit: Option<u64>,
    /// Looked since this control started, and heard of the quorum since: what is other now happened
    /// just now.
    is_current: bool,
    /// Nodes that were seen to answer, or not to, since this control started. Until then a node that
    /// turned may have done so while nobody looked.
    judged: BTreeSet<NodeId>,
    /// Nodes that were suspect since this control started.
    suspects: BTreeMap<NodeId, Suspicion>,
}

/// What a node is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compared {
    lifecycle: Lifecycle,
    drain: Vec<DrainReason>,
    /// As far as it was noted.
    is_alive: bool,
    /// When its liveness was noted, Unix milliseconds.
    turns: VecDeque<u64>,
    /// What it is not noted to be for the moment, and how often it turned since.
    unnoted: u32,
    last_seen: bool,
    /// Baselines that are for it, as far as the audit was read: of one that is deleted nothing else
    /// says so any more.
    baselines: BTreeSet<BaselineName>,
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NotesReport {
    /// Lines that were written.
    pub(crate) noted: usize,
    /// Nodes that are compared with something else now.
    pub(crate) nodes: usize,
}

impl NoteNodes {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            known: None,
            audit_asked_at: None,
            baselines: 0,
            started_at: tokio::time::Instant::now(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        loop {
            activation.next().await;
            match self.reconcile().await {
                Ok(report) if report.noted > 0 => tracing::debug!(?report, "nodes noted"),
                Ok(_) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "what happened to nodes is not noted; tried again");
                }
            }
        }
    }

    /// Writes down what is other than before.
    pub(crate) async fn reconcile(&mut self) -> Result<NotesReport, HistoryError> {
        let view = self.core.view();
        if view.revision.0 == 0 {
            return Ok(NotesReport::default());
        }
        let known = match self.known.take() {
            Some(known) => known,
            None => read(&self.core).await?,
        };
        let known = self.known.insert(known);
        let now = self.core.now().0;
        let is_deaf = self
            .core
            .view_age_ms()
            .is_none_or(|age| age >= DEAF_AFTER_MS);
        known.is_current &= !is_deaf;
        let mut notes = Vec::new();
        let mut compared = Vec::new();
        for (id, node) in view.nodes.iter() {
            if let Some(suspected) = known.suspicion(node, now) {
                notes.push(Note {
                    node: id.to_string(),
                    happened: vec![suspected],
                    compared: None,
                });
            }
            let before = known.nodes.get(id);
            let is_judged = match node.liveness {
                Liveness::Alive | Liveness::Unreachable => !known.judged.insert(id.clone()),
                Liveness::Suspect | Liveness::Unknown => known.judged.contains(id),
            };
            let looked = Looked {
                is_current: known.is_current,
                is_judged,
            };
            let Some(next) = compare(before, node, now, (&view, looked)) else {
                continue;
            };
            if before == Some(&next.compared) {
                continue;
            }
            notes.push(Note {
                node: id.to_string(),
                happened: next.happened,
                compared: serde_json::to_vec(&next.compared).ok(),
            });
            compared.push((id.clone(), next.compared));
        }
        let is_due = |at: tokio::time::Instant| at.elapsed() >= AUDIT_EVERY;
        let mut report = NotesReport {
            noted: notes.iter().map(|note| note.happened.len()).sum(),
            nodes: compared.len(),
        };
        if !notes.is_empty() {
            self.core.history.note(notes, None).await?;
        }
        known.nodes.extend(compared);
        known.is_current = !is_deaf;
        let number = view.baselines.number;
        if number != self.baselines || self.audit_asked_at.is_none_or(is_due) {
            self.baselines = number;
            self.audit_asked_at = Some(tokio::time::Instant::now());
            let is_settled = self.started_at.elapsed() >= SETTLES_AFTER;
            if is_settled && !is_deaf {
                let found = not_told(&view, known);
                let notes = found.iter().map(|(node, compared)| Note {
                    node: node.to_string(),
                    happened: Vec::new(),
                    compared: serde_json::to_vec(compared).ok(),
                });
                let notes: Vec<Note> = notes.collect();
                if !notes.is_empty() {
                    self.core.history.note(notes, None).await?;
                }
                known.nodes.extend(found);
            }
            for _ in 0..AUDIT_CHUNKS {
                let after = known.audit.unwrap_or(0);
                let Some(audited) = audited(&self.core, known, after, is_settled).await else {
                    break;
                };
                report.noted += audited.lines;
                // With how far it was read, so that nothing is noted twice.
                let (notes, read) = (audited.notes, audited.read);
                self.core.history.note(notes, Some(read)).await?;
                known.nodes.extend(audited.compared);
                known.audit = Some(read);
            }
        }
        Ok(report)
    }
}

/// What an earlier run wrote; one that cannot be read is as none.
async fn read(core: &Core) -> Result<Known, HistoryError> {
    let (compared, audit) = core.history.noted().await?;
    let nodes = compared.into_iter().filter_map(|(node, bytes)| {
        let compared = serde_json::from_slice(&bytes).ok()?;
        Some((NodeId::new(&node).ok()?, compared))
    });
    Ok(Known {
        nodes: nodes.collect(),
        audit,
        is_current: false,
        judged: BTreeSet::new(),
        suspects: BTreeMap::new(),
    })
}

/// What was seen since this control started.
#[derive(Debug, Clone, Copy)]
struct Looked {
    /// See [`Known::is_current`].
    is_current: bool,
    /// Whether the node is in [`Known::judged`].
    is_judged: bool,
}

/// What came of a look.
struct Next {
    happened: Vec<(u64, Noted)>,
    compared: Compared,
}

/// Pure. `None` for a node that the quorum does not know, and where nothing is other than before.
fn compare(
    before: Option<&Compared>,
    node: &NodeEntry,
    now: u64,
    (view, looked): (&View, Looked),
) -> Option<Next> {
    let record = node.record.as_ref()?;
    let is_same = |before: &Compared| {
        before.lifecycle == record.lifecycle
            && before.drain == record.drain
            && before.is_noted(node.liveness)
    };
    if before.is_some_and(is_same) {
        return None;
    }
    // State time is when the last command was stamped: not after now, and not before it happened.
    let seen_at = match looked.is_current {
        true => view.at.0.min(now),
        false => now,
    };
    let late = before.is_some() && !looked.is_current;
    let mut happened = Vec::new();
    let mut drains = |turn, drain: &DrainReason, at: u64, late| {
        let noted = Noted::Drain {
            turn,
            owner: cut(&drain.owner),
            reason: cut(&drain.reason),
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
            Noted::Lifecycle {
                from: None,
                to: record.lifecycle.to_string(),
                late: false,
            },
        )),
        Some(from) if from != record.lifecycle => happened.push((
            seen_at,
            Noted::Lifecycle {
                from: Some(from.to_string()),
                to: record.lifecycle.to_string(),
                late,
            },
        )),
        Some(_) => {}
    }
    let mut compared = Compared {
        lifecycle: record.lifecycle,
        drain: record.drain.clone(),
        ..before.cloned().unwrap_or(Compared {
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
    Some(Next { happened, compared })
}

impl Known {
    fn suspicion(&mut self, node: &NodeEntry, now: u64) -> Option<(u64, Noted)> {
        node.record.as_ref()?;
        match node.liveness {
            Liveness::Suspect => {
                let suspicion = self.suspects.entry(node.id.clone()).or_default();
                suspicion.turn(node, now)
            }
            _ => self.suspects.get_mut(&node.id)?.turn(node, now),
        }
    }
}

impl Compared {
    fn is_noted(&self, liveness: Liveness) -> bool {
        match liveness {
            Liveness::Alive => self.is_alive && self.last_seen,
            Liveness::Unreachable => !self.is_alive && !self.last_seen,
            Liveness::Suspect | Liveness::Unknown => true,
        }
    }

    /// Suspicion is no turn (see [`Suspicion`]), and neither is what is not known yet.
    fn liveness(&mut self, node: &NodeEntry, now: u64, late: bool) -> Option<(u64, Noted)> {
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
        if self.turns.len() >= MOST_TURNS {
            return None;
        }
        self.turns.push_back(now);
        self.is_alive = is_alive;
        let noted = Noted::Liveness {
            is_alive,
            reason: node
                .liveness_reason
                .as_deref()
                .map(cut)
                .filter(|_| !is_alive),
            left_out: std::mem::take(&mut self.unnoted).saturating_sub(1),
            late,
        };
        Some((now, noted))
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests;
