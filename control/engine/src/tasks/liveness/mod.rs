//! Liveness reconciler: control pings every agent itself.
//!
//! A silent node is suspect and receives no new jobs. A node that has been silent for long, and that other agents do
//! not reach either, is unreachable. Neither state releases its allocations: a silent agent does not prove that its
//! processes are gone.
//!
//! Gossip provides only an address to try; the address of the last answer is tried as well.

use crate::{core::Core, observed_state, sanitize, timings::Timings};
use futures::future::select_ok;
use judge::{Answers, PeerReports, Thresholds, judge_all};
use lattice_agent_rpc::Ping;
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, PingOutcome, View};
use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval},
};

mod judge;
mod peer_pings;

/// Time between two judgements.
const TICK: Duration = Duration::from_millis(250);
/// Maximum number of silent nodes that other agents ping concurrently.
const MAX_ROUNDS: usize = 128;

/// A node and the calls about it.
#[derive(Debug)]
struct Track {
    answers: Answers,
    /// Boot id in the last answer, and when the answer arrived.
    boot: Option<(String, Duration)>,
    /// Address of the last answer.
    answered_addr: Option<SocketAddr>,
    next_ping: Instant,
    /// Gossiped address at the time of the last ping.
    pinged_addr: Option<SocketAddr>,
    next_witness: Instant,
}

/// Answer to a ping.
#[derive(Debug)]
struct PingAnswer {
    node: NodeId,
    boot: String,
    at: Duration,
    addr: SocketAddr,
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LivenessReport {
    /// Pings started.
    pub(crate) pinged: usize,
    /// Silent nodes that other agents begin to ping.
    pub(crate) asked_about: usize,
    /// Nodes with a changed liveness.
    pub(crate) changed: usize,
}

/// Liveness reconciler; see the module.
#[derive(Debug)]
pub struct Pings {
    core: Arc<Core>,
    timings: Timings,
    tracks: HashMap<NodeId, Track>,
    last_tick: Option<Instant>,
    /// Nodes at the last search for new ones.
    known_nodes: Option<Arc<BTreeMap<NodeId, Arc<NodeEntry>>>>,
    pings: JoinSet<Option<PingAnswer>>,
    rounds: JoinSet<(NodeId, PeerReports)>,
    /// Round counter, so that different agents ping each time.
    turn: usize,
}

impl Pings {
    /// New [`Pings`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            timings: core.timings,
            core,
            tracks: HashMap::new(),
            last_tick: None,
            known_nodes: None,
            pings: JoinSet::new(),
            rounds: JoinSet::new(),
            turn: 0,
        }
    }

    /// Runs forever.
    pub async fn run(mut self) {
        let mut tick = interval(TICK.min(self.timings.ping_every));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut inputs = self.core.inputs();
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.extend_after_stall(Instant::now());
                    self.reconcile();
                }
                // A node seen for the first time, or at another address, is pinged at once.
                Ok(()) = inputs.changed() => self.ask_new(),
                Some(ping) = self.pings.join_next() => {
                    // Answers arrive in bursts; each burst makes one new view.
                    let mut ping_answers: Vec<PingAnswer> = ended(ping).flatten().into_iter().collect();
                    while let Some(ping) = self.pings.try_join_next() {
                        ping_answers.extend(ended(ping).flatten());
                    }
                    self.note(ping_answers);
                }
                Some(round) = self.rounds.join_next() => {
                    if let Some((node, said)) = ended(round)
                        && let Some(track) = self.tracks.get_mut(&node)
                    {
                        track.answers.peer_reports = Some(said);
                    }
                }
            }
        }
    }

    /// Moves the times of the last answers forward by the time for which this process did not run: silence during that
    /// time does not count.
    fn extend_after_stall(&mut self, now: Instant) {
        let gap = self.last_tick.map_or(TICK, |last| now - last);
        self.last_tick = Some(now);
        // A shorter gap makes no node suspect, because a node may miss a whole interval. If such gaps counted, a busy
        // control would find silent nodes late.
        if gap >= self.timings.ping_every.max(TICK * 2) {
            let stalled = gap - TICK;
            tracing::warn!(
                stalled_ms = stalled.as_millis(),
                "control was suspended for a while"
            );
            for track in self.tracks.values_mut() {
                let last_answer = &mut track.answers.answered_at;
                *last_answer = (*last_answer + stalled).min(now);
            }
        }
    }

    /// Records answers and publishes their effect at once.
    fn note(&mut self, ping_answers: Vec<PingAnswer>) {
        let (now, view) = (Instant::now(), self.core.view());
        let mut found = BTreeMap::new();
        for PingAnswer {
            node,
            boot,
            at,
            addr,
        } in ping_answers
        {
            let Some(track) = self.tracks.get_mut(&node) else {
                continue;
            };
            track.answers.answered_at = now;
            track.answers.ever_answered = true;
            track.answers.peer_reports = None;
            if let Some((before, _)) = &track.boot
                && *before != boot
            {
                tracing::info!(%node, before, now = boot, "node rebooted");
            }
            (track.boot, track.answered_addr) = (Some((boot, at)), Some(addr));
            let Some(entry) = view.node(&node) else {
                continue;
            };
            self.core.reply_times.set(&node, self.core.now());
            if entry.liveness != Liveness::Alive {
                tracing::info!(%node, before = ?entry.liveness, "node answers");
            }
            if !is_shown(entry, track, Liveness::Alive, None) {
                found.insert(node, found_of(track, Liveness::Alive, None));
            }
        }
        if !found.is_empty() {
            observed_state::liveness(&self.core, &found);
        }
    }

    fn ask_new(&mut self) {
        let view = self.core.view();
        let same = |looked: &Arc<_>| Arc::ptr_eq(looked, &view.nodes);
        if self.known_nodes.as_ref().is_some_and(same) {
            return;
        }
        self.known_nodes = Some(view.nodes.clone());
        let is_new = |entry: &&Arc<NodeEntry>| {
            let Some(seen) = &entry.gossip else {
                return false;
            };
            let asked_at = self
                .tracks
                .get(&entry.id)
                .and_then(|track| track.pinged_addr);
            asked_at != Some(seen.addr)
        };
        let new: Vec<Arc<NodeEntry>> = view.nodes.values().filter(is_new).cloned().collect();
        for entry in new {
            self.ask(&entry);
        }
    }

    /// Pings due nodes, has other agents ping silent ones, and judges every node.
    pub(crate) fn reconcile(&mut self) -> LivenessReport {
        let view = self.core.view();
        let now = Instant::now();
        let mut report = LivenessReport::default();
        self.tracks.retain(|id, _| view.node(id).is_some());
        self.core.reply_times.retain(|id| view.node(id).is_some());
        for entry in view.nodes.values() {
            let is_due = |track: &Track| track.next_ping <= now;
            let due = self.tracks.get(&entry.id).is_none_or(is_due);
            if due && entry.addr().is_some() {
                self.ask(entry);
                report.pinged += 1;
            }
        }
        report.asked_about = self.ask_others(&view, now);
        let thresholds = Thresholds {
            suspect_after: self.timings.suspect_after,
            unreachable_after: self.timings.unreachable_after,
            report_validity: self.timings.peer_check_every * 4,
        };
        let answers = self.tracks.iter().map(|(id, track)| (id, &track.answers));
        let judged = judge_all(answers, thresholds, now);
        let news = judged.into_iter().filter_map(|(id, (liveness, why))| {
            let (entry, track) = (view.node(&id)?, self.tracks.get(&id)?);
            let reason = why.map(|why| why.to_string());
            let is_news = !is_shown(entry, track, liveness, reason.as_deref());
            is_news.then(|| (id, found_of(track, liveness, reason)))
        });
        let news: BTreeMap<NodeId, PingOutcome> = news.collect();
        if !news.is_empty() {
            report.changed = observed_state::liveness(&self.core, &news);
        }
        report
    }

    fn ask(&mut self, entry: &NodeEntry) {
        let now = Instant::now();
        let track = self.tracks.entry(entry.id.clone()).or_insert(Track {
            answers: Answers {
                answered_at: now,
                ever_answered: false,
                cell: String::new(),
                peer_reports: None,
            },
            boot: None,
            answered_addr: None,
            next_ping: now,
            pinged_addr: None,
            next_witness: now,
        });
        track.next_ping = now + self.timings.ping_every;
        if let Some(seen) = &entry.gossip {
            track.answers.cell.clone_from(&seen.cell);
            track.pinged_addr = Some(seen.addr);
        }
        let addrs = addrs(entry, track);
        if addrs.is_empty() {
            return;
        }
        let (core, node) = (self.core.clone(), entry.id.clone());
        let within = self.timings.ping_every;
        self.pings.spawn(async move {
            let ping = |addr: SocketAddr| {
                let (core, node) = (&core, &node);
                Box::pin(async move {
                    let called = core.agents.call_at(addr, node, &Ping, within).await;
                    let pong = called.map_err(drop)?;
                    if pong.node != *node {
                        return Err(());
                    }
                    if !sanitize::is_boot_id(&pong.boot_id) {
                        tracing::warn!(%node, "node publishes a boot id that is not valid; ignored");
                        return Err(());
                    }
                    Ok::<_, ()>((pong.boot_id, addr))
                })
            };
            let (answer, _) = select_ok(addrs.into_iter().map(ping)).await.ok()?;
            let (boot, addr) = answer;
            let at = core.since_start(Instant::now());
            Some(PingAnswer {
                node,
                boot,
                at,
                addr,
            })
        });
    }

    /// Has other agents ping the nodes silent to this control. Returns the number of these nodes.
    fn ask_others(&mut self, view: &Arc<View>, now: Instant) -> usize {
        let silence = |track: &Track| now.saturating_duration_since(track.answers.answered_at);
        let is_due = |track: &Track| {
            silence(track) >= self.timings.suspect_after && track.next_witness <= now
        };
        let due = self.tracks.iter().filter(|(_, track)| is_due(track));
        let due: Vec<NodeId> = due.map(|(id, _)| id.clone()).collect();
        if due.is_empty() {
            return 0;
        }
        let answers_now = |track: &Track| {
            track.answers.ever_answered && silence(track) < self.timings.suspect_after
        };
        let alive = self.tracks.iter().filter(|(_, track)| answers_now(track));
        let mut alive: peer_pings::AnsweringAgents = alive
            .map(|(id, track)| (id.clone(), track.answers.cell.clone()))
            .collect();
        alive.sort();
        let mut asked = 0;
        for id in due {
            if self.rounds.len() >= MAX_ROUNDS {
                break;
            }
            let (Some(entry), Some(track)) = (view.node(&id), self.tracks.get_mut(&id)) else {
                continue;
            };
            track.next_witness = now + self.timings.peer_check_every;
            self.turn = self.turn.wrapping_add(1);
            let chosen = peer_pings::choose(&alive, &id, &track.answers.cell, self.turn);
            let addrs = addrs(entry, track);
            let (core, view) = (self.core.clone(), view.clone());
            self.rounds
                .spawn(peer_pings::ask(core, view, id, addrs, chosen));
            asked += 1;
        }
        asked
    }
}

/// Result of a task. A task that panicked is logged and has no result: its node is pinged again at the next interval.
fn ended<T>(joined: Result<T, JoinError>) -> Option<T> {
    joined
        .inspect_err(|error| tracing::error!(%error, "ping task panicked"))
        .ok()
}

/// Addresses to try for a node: that of its last answer, and the gossiped one.
fn addrs(entry: &NodeEntry, track: &Track) -> Vec<SocketAddr> {
    let mut addrs: Vec<SocketAddr> = track.answered_addr.into_iter().collect();
    let said = entry.gossip.as_ref().map(|seen| seen.addr);
    addrs.extend(said.filter(|addr| track.answered_addr != Some(*addr)));
    addrs
}

/// Whether the view already shows this result.
fn is_shown(entry: &NodeEntry, track: &Track, liveness: Liveness, reason: Option<&str>) -> bool {
    entry.liveness == liveness
        && entry.liveness_reason.as_deref() == reason
        && is_boot_shown(entry, track)
        && entry.reply_addr == track.answered_addr
}

/// Whether the view shows the boot of the last ping. Another answer may have reported a later boot.
fn is_boot_shown(entry: &NodeEntry, track: &Track) -> bool {
    track.boot.as_ref().is_none_or(|(boot, at)| {
        entry.boot.as_ref() == Some(boot) || entry.boot_replied_at.is_some_and(|known| known > *at)
    })
}

fn found_of(track: &Track, liveness: Liveness, reason: Option<String>) -> PingOutcome {
    PingOutcome {
        liveness,
        reason,
        boot: track.boot.clone(),
        reply_addr: track.answered_addr,
    }
}
