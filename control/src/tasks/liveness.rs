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
    task::JoinSet,
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
    /// Each ends with the node that answered.
    pings: JoinSet<Option<NodeId>>,
}

impl Pings {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            tracks: HashMap::new(),
            last_tick: None,
            looked: None,
            pings: JoinSet::new(),
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
                Some(ping) = self.pings.join_next() => {
                    // Answers come in bursts; what they change is one new view.
                    let mut answered: Vec<NodeId> = ping.ok().flatten().into_iter().collect();
                    while let Some(ping) = self.pings.try_join_next() {
                        answered.extend(ping.ok().flatten());
                    }
                    self.note(&answered);
                }
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

    /// Takes answers down; those of nodes that were not alive are shown at once.
    fn note(&mut self, answered: &[NodeId]) {
        let (now, view) = (Instant::now(), self.core.view());
        let mut found = BTreeMap::new();
        for node in answered {
            let Some(track) = self.tracks.get_mut(node) else {
                continue;
            };
            track.heard_at = now;
            track.ever_answered = true;
            let Some(entry) = view.node(node) else {
                continue;
            };
            let at = self.core.now().0;
            entry.answered_at.store(at, Ordering::Relaxed);
            if entry.liveness != Liveness::Alive {
                tracing::info!(%node, before = ?entry.liveness, "node answers");
                found.insert(node.clone(), Liveness::Alive);
            }
        }
        if !found.is_empty() {
            observe::liveness(&self.core, &found);
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
        let heard_of = |id: &NodeId| {
            let seen = view.node(id).and_then(|node| node.seen.as_ref());
            seen.is_some_and(|seen| seen.heard)
        };
        let found = judge_all(&self.tracks, heard_of, now);
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
        self.pings.spawn(async move {
            let pong = core.agents.call(&view, &node, &Ping, PING_TIMEOUT).await;
            pong.is_ok_and(|pong| pong.node == node).then_some(node)
        });
    }
}

/// The word for every node. `heard_of`: its cell hears of it.
fn judge_all(
    tracks: &HashMap<NodeId, Track>,
    heard_of: impl Fn(&NodeId) -> bool,
    now: Instant,
) -> BTreeMap<NodeId, Liveness> {
    let silence = |track: &Track| now.saturating_duration_since(track.heard_at);
    // Silent and all nodes, by cell.
    let mut cells: HashMap<&str, (usize, usize)> = HashMap::new();
    for track in tracks.values() {
        let (silent, all) = cells.entry(track.cell.as_str()).or_default();
        *silent += usize::from(silence(track) >= SUSPECT_AFTER);
        *all += 1;
    }
    let judged = tracks.iter().map(|(id, track)| {
        let (silent, all) = cells.get(track.cell.as_str()).copied().unwrap_or_default();
        // When much of a cell is silent at once, it is more likely we who are cut off.
        let mostly_there = silent * 2 < all;
        let evidence = Evidence {
            silence: silence(track),
            ever_answered: track.ever_answered,
            others_miss_it: mostly_there && !heard_of(id),
        };
        (id.clone(), judge(evidence))
    });
    judged.collect()
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

    /// Nodes of one cell with so many seconds since their last answer.
    fn cell(silences: &[u64]) -> (HashMap<NodeId, Track>, Instant) {
        let begin = Instant::now();
        let now = begin + Duration::from_secs(1_000);
        let track = |(n, silence): (usize, &u64)| {
            let id = NodeId::new(format!("n{n}")).ok()?;
            let track = Track {
                heard_at: now - Duration::from_secs(*silence),
                ever_answered: true,
                next_ping: now,
                cell: "c0".to_owned(),
            };
            Some((id, track))
        };
        (silences.iter().enumerate().filter_map(track).collect(), now)
    }

    fn words(silences: &[u64], heard_of: bool) -> Vec<Liveness> {
        let (tracks, now) = cell(silences);
        let judged = judge_all(&tracks, |_| heard_of, now);
        judged.into_values().collect()
    }

    #[test]
    fn one_silent_node_among_others_is_unreachable_only_when_its_cell_misses_it() {
        use Liveness::{Alive, Suspect, Unreachable};
        let silences = [40, 0, 1, 0];
        assert_eq!(words(&silences, false), [Unreachable, Alive, Alive, Alive]);
        assert_eq!(words(&silences, true), [Suspect, Alive, Alive, Alive]);
    }

    #[test]
    fn when_half_of_a_cell_is_silent_we_take_ourselves_for_cut_off() {
        use Liveness::{Alive, Suspect};
        assert_eq!(
            words(&[40, 40, 0, 0], false),
            [Suspect, Suspect, Alive, Alive]
        );
        assert_eq!(words(&[40], false), [Suspect]);
    }
}
