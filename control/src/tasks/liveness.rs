//! Liveness: control pings every agent itself. A node that does not answer is suspect and gets no
//! new work; one that nobody hears of for long is unreachable. Neither releases what it holds:
//! that its agent is silent does not say that its processes are gone.

use crate::{
    core::Core,
    observe,
    view::{NodeEntry, View},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{NodeId, wire::Ping};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval},
};

/// Between two pings of one node.
const PING_EVERY: Duration = Duration::from_millis(1000);
/// A ping without an answer after this long is given up.
const PING_TIMEOUT: Duration = Duration::from_millis(1000);
/// Between two judgements.
const TICK: Duration = Duration::from_millis(250);
/// Silence after which a node is suspect. With the ping's interval and the tick it is noticed
/// within 3 s.
pub(crate) const SUSPECT_AFTER: Duration = Duration::from_millis(2500);
/// Silence after which a node may be unreachable, if others do not hear of it either.
pub(crate) const UNREACHABLE_AFTER: Duration = Duration::from_secs(30);

/// What is known of one node's answers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Track {
    /// The last answer, or when it was first asked.
    heard_at: Instant,
    ever_answered: bool,
    next_ping: Instant,
    /// The cell it was last seen in.
    cell: String,
}

/// What a judgement rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Since its last answer, or since it was first asked.
    pub(crate) silence: Duration,
    /// Whether it ever answered this control.
    pub(crate) ever_answered: bool,
    /// Others in its cell were asked and answer, most of them, and none of them has news of it.
    pub(crate) others_miss_it: bool,
}

/// The word for a node's answers.
pub(crate) fn judge(evidence: Evidence) -> Liveness {
    let Evidence {
        silence,
        ever_answered,
        others_miss_it,
    } = evidence;
    if silence < SUSPECT_AFTER {
        if ever_answered {
            Liveness::Alive
        } else {
            Liveness::Unknown
        }
    } else if silence >= UNREACHABLE_AFTER && others_miss_it {
        Liveness::Unreachable
    } else {
        Liveness::Suspect
    }
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LivenessReport {
    /// Pings begun.
    pub(crate) pinged: usize,
    /// Nodes whose liveness changed.
    pub(crate) changed: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pings {
    core: Arc<Core>,
    tracks: HashMap<NodeId, Track>,
    last_tick: Option<Instant>,
    /// The nodes as they were when they were last looked through for new ones.
    looked: Option<Arc<BTreeMap<NodeId, Arc<NodeEntry>>>>,
    answers: mpsc::Sender<NodeId>,
    answered: mpsc::Receiver<NodeId>,
}

impl Pings {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let (answers, answered) = mpsc::channel(1024);
        Self {
            core,
            tracks: HashMap::new(),
            last_tick: None,
            looked: None,
            answers,
            answered,
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut inputs = self.core.inputs();
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.forgive_own_stall(Instant::now());
                    self.reconcile();
                }
                // A node seen for the first time is asked at once.
                Ok(()) = inputs.changed() => self.ask_new(),
                Some(node) = self.answered.recv() => self.note(&node),
            }
        }
    }

    /// When this process itself did not run for a while, nobody was silent meanwhile.
    fn forgive_own_stall(&mut self, now: Instant) {
        let gap = self.last_tick.map_or(TICK, |last| now - last);
        self.last_tick = Some(now);
        if gap > TICK * 2 {
            let stalled = gap - TICK;
            tracing::warn!(
                stalled_ms = stalled.as_millis(),
                "this control did not run for a while"
            );
            for track in self.tracks.values_mut() {
                track.heard_at = (track.heard_at + stalled).min(now);
            }
        }
    }

    /// Takes an answer down; one of a node that was not alive is shown at once.
    fn note(&mut self, node: &NodeId) {
        let Some(track) = self.tracks.get_mut(node) else {
            return;
        };
        track.heard_at = Instant::now();
        track.ever_answered = true;
        let view = self.core.view();
        if let Some(entry) = view.node(node) {
            let now = self.core.now().0;
            entry.answered_at.store(now, Ordering::Relaxed);
            if entry.liveness != Liveness::Alive {
                tracing::info!(%node, before = ?entry.liveness, "node answers");
                let found = BTreeMap::from([(node.clone(), Liveness::Alive)]);
                observe::liveness(&self.core, &found);
            }
        }
    }

    fn ask_new(&mut self) {
        let view = self.core.view();
        let same = |looked: &Arc<_>| Arc::ptr_eq(looked, &view.nodes);
        if self.looked.as_ref().is_some_and(same) {
            return;
        }
        self.looked = Some(view.nodes.clone());
        let new =
            |entry: &&Arc<NodeEntry>| entry.seen.is_some() && !self.tracks.contains_key(&entry.id);
        let new: Vec<Arc<NodeEntry>> = view.nodes.values().filter(new).cloned().collect();
        for entry in new {
            self.ask(&view, &entry);
        }
    }

    /// Pings whoever is due, and judges everybody.
    pub(crate) fn reconcile(&mut self) -> LivenessReport {
        let view = self.core.view();
        let now = Instant::now();
        let mut report = LivenessReport::default();
        self.tracks.retain(|id, _| view.node(id).is_some());
        for entry in view.nodes.values() {
            let is_due = |track: &Track| track.next_ping <= now;
            let due = self.tracks.get(&entry.id).is_none_or(is_due);
            if due && entry.seen.is_some() {
                self.ask(&view, entry);
                report.pinged += 1;
            }
        }
        let found = self.judge_all(&view, now);
        report.changed = observe::liveness(&self.core, &found);
        report
    }

    fn ask(&mut self, view: &Arc<View>, entry: &NodeEntry) {
        let Some(seen) = &entry.seen else { return };
        let now = Instant::now();
        let track = self.tracks.entry(entry.id.clone()).or_insert(Track {
            heard_at: now,
            ever_answered: false,
            next_ping: now,
            cell: String::new(),
        });
        track.next_ping = now + PING_EVERY;
        track.cell.clone_from(&seen.cell);
        let (core, view, node) = (self.core.clone(), view.clone(), entry.id.clone());
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let pong = core.agents.call(&view, &node, &Ping, PING_TIMEOUT).await;
            if pong.is_ok_and(|pong| pong.node == node) {
                // When the queue is full the next ping is soon enough.
                let _ = answers.try_send(node);
            }
        });
    }

    fn judge_all(&self, view: &View, now: Instant) -> BTreeMap<NodeId, Liveness> {
        let cells = self.cells(now);
        let judged = self.tracks.iter().map(|(id, track)| {
            let heard_of = view
                .node(id)
                .and_then(|n| n.seen.as_ref())
                .is_some_and(|s| s.heard);
            let (silent, all) = cells.get(track.cell.as_str()).copied().unwrap_or_default();
            // When much of a cell is silent at once, it is more likely we who are cut off.
            let mostly_there = all > silent && silent * 2 <= all;
            let evidence = Evidence {
                silence: now.saturating_duration_since(track.heard_at),
                ever_answered: track.ever_answered,
                others_miss_it: !heard_of && mostly_there,
            };
            (id.clone(), judge(evidence))
        });
        judged.collect()
    }

    /// Silent and all nodes, by cell.
    fn cells(&self, now: Instant) -> HashMap<&str, (usize, usize)> {
        let mut cells: HashMap<&str, (usize, usize)> = HashMap::new();
        for track in self.tracks.values() {
            let (silent, all) = cells.entry(track.cell.as_str()).or_default();
            let silence = now.saturating_duration_since(track.heard_at);
            *silent += usize::from(silence >= SUSPECT_AFTER);
            *all += 1;
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, others_miss_it: bool) -> Liveness {
        judge(Evidence {
            silence: Duration::from_secs(seconds),
            ever_answered: true,
            others_miss_it,
        })
    }

    #[test]
    fn silence_makes_suspect_and_only_others_make_unreachable() {
        assert_eq!(after(0, false), Liveness::Alive);
        assert_eq!(after(2, true), Liveness::Alive);
        assert_eq!(after(3, true), Liveness::Suspect);
        assert_eq!(after(29, true), Liveness::Suspect);
        assert_eq!(after(31, true), Liveness::Unreachable);
        assert_eq!(after(3_600, false), Liveness::Suspect);
    }

    #[test]
    fn a_node_that_was_just_asked_for_the_first_time_is_unknown() {
        let evidence = Evidence {
            silence: Duration::from_millis(100),
            ever_answered: false,
            others_miss_it: false,
        };
        assert_eq!(judge(evidence), Liveness::Unknown);
    }
}
