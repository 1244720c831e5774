//! Site: the cluster of one simulated day, with state, nodes and clock. The simulation and control share the site.

use super::{
    checks::Checks,
    event::Event as Deeds,
    machine::{Machine, PingState},
    planted_bug::PlantedBug,
    report::{Counts, Report},
    scene::{START, Scene},
    true_progress::TrueProgress,
};
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Command, Envelope, Event, NodeId, Outcome, Refusal, UnixMillis,
    allocation::RankExit,
    checkpoint::CheckpointOutcome,
    command::{Principal, Privilege, RankReport, SCHEMA},
};
use lattice_rng::Rng;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, sync::Arc};

/// Principal that reports on behalf of the agents.
pub(super) const SERVICE: &str = "service:control/c1";

/// Cluster of one day. Clones share the same site.
#[derive(Debug, Clone)]
pub struct Site(Arc<Mutex<Inner>>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) scene: Scene,
    pub(super) bug: Option<PlantedBug>,
    pub(super) now: UnixMillis,
    pub(super) state: State,
    index: u64,
    /// Scheduled events, by time and then by order of insertion.
    pub(super) queue: BTreeMap<(UnixMillis, u64), Deeds>,
    scheduled: u64,
    pub(super) machines: BTreeMap<NodeId, Machine>,
    pub(super) truth: TrueProgress,
    pub(super) checks: Checks,
    pub(super) counts: Counts,
    pub(super) pings: Vec<(NodeId, PingState)>,
    pub(super) rng: Rng,
    committed_events: Vec<Event>,
    has_news: bool,
}

impl Site {
    /// Creates the site of a seed at the start of its day: with projects, vClusters and nodes, without allocations.
    pub fn new(seed: u64, plant: Option<PlantedBug>) -> Self {
        Self::with(Scene::of(seed), plant)
    }

    /// Creates the site of a seed with only the first `hours` hours of its day.
    pub fn of_hours(seed: u64, plant: Option<PlantedBug>, hours: u64) -> Self {
        Self::with(Scene::of_hours(seed, hours), plant)
    }

    fn with(scene: Scene, plant: Option<PlantedBug>) -> Self {
        let seed = scene.seed;
        let mut meant = scene.clone();
        if let Some(plant) = plant {
            plant.settings(&mut meant);
        }
        let mut inner = Inner {
            checks: Checks::new(&scene),
            scene: meant,
            bug: plant,
            now: START,
            state: State::new(),
            index: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            machines: BTreeMap::new(),
            truth: TrueProgress::default(),
            counts: Counts::default(),
            pings: Vec::new(),
            rng: Rng::new(seed, "site"),
            committed_events: Vec::new(),
            has_news: true,
        };
        inner.create_cluster();
        Self(Arc::new(Mutex::new(inner)))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Current time of the simulation.
    pub fn now(&self) -> UnixMillis {
        self.inner().now
    }

    /// Scene that was generated from the seed, with the settings that the deliberate bug changes.
    pub fn scene(&self) -> Scene {
        self.inner().scene.clone()
    }

    /// Deliberate bug of this site; `None` if it has none.
    pub fn bug(&self) -> Option<PlantedBug> {
        self.inner().bug
    }

    /// Applies a command as a quorum would, and checks the invariants against the result.
    ///
    /// # Errors
    /// When the state machine refuses the command.
    pub fn propose(&self, envelope: &Envelope) -> Result<Applied, Refusal> {
        self.inner().apply(envelope)
    }

    /// Reads the state.
    pub fn read<T>(&self, of: impl FnOnce(&State) -> T) -> T {
        of(&self.inner().state)
    }

    /// Takes all events that were committed since the last call, in order.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.inner().committed_events)
    }

    /// Takes the outcomes of pings that changed since the last call, in order.
    pub fn take_pings(&self) -> Vec<(NodeId, PingState)> {
        std::mem::take(&mut self.inner().pings)
    }

    pub(super) fn has_changes(&self) -> bool {
        self.inner().has_news
    }

    pub(super) fn next_at(&self) -> Option<UnixMillis> {
        let inner = self.inner();
        let ((at, _), _) = inner.queue.first_key_value()?;
        Some(*at)
    }

    pub(super) fn set_time(&self, now: UnixMillis) {
        let mut inner = self.inner();
        inner.now = inner.now.max(now);
        inner.has_news = false;
        inner.counts.passes += 1;
    }

    pub(super) fn check_after_pass(&self) {
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner
            .checks
            .after_pass(&inner.state, &inner.machines, inner.now);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inner().state.live_allocations().next().is_none()
    }

    /// Whether the maximum number of violations is reached.
    pub(super) fn has_max_violations(&self) -> bool {
        self.inner().checks.is_full()
    }

    /// Executes the next event.
    pub(super) fn step(&self) {
        let mut inner = self.inner();
        let Some(((at, _), what)) = inner.queue.pop_first() else {
            return;
        };
        inner.now = inner.now.max(at);
        inner.counts.events += 1;
        inner.handle_event(what);
    }

    pub(super) fn end(&self) -> Report {
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.checks.check_end(&inner.state, inner.now);
        for work in inner.truth.jobs.values() {
            inner.counts.lost_ms += work.lost_ms;
        }
        Report {
            seed: inner.scene.seed,
            violations: inner.checks.found().to_vec(),
            counts: inner.counts.clone(),
            state: blake3::hash(&inner.state.snapshot()).to_hex()[..16].to_owned(),
        }
    }
}

impl Inner {
    /// Schedules an event, relative to the current time.
    pub(super) fn after(&mut self, ms: u64, what: Deeds) {
        self.at(self.now.after(ms), what);
    }

    pub(super) fn at(&mut self, at: UnixMillis, what: Deeds) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), what);
    }

    /// Proposes a command with this principal.
    pub(super) fn propose(
        &mut self,
        name: &str,
        power: Privilege,
        command: Command,
    ) -> Result<Applied, Refusal> {
        let name = name.to_owned();
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name,
                privilege: power,
            },
            key: None,
            at: self.now,
            fence: None,
            command,
        };
        self.apply(&envelope)
    }

    /// Applies an agent's report to the state. A refused report would be lost, so a refusal is a violation.
    pub(super) fn report(&mut self, key: AttemptKey, node: &NodeId, report: RankReport) {
        let command = Command::Report {
            id: key.allocation,
            attempt: key.attempt,
            node: node.clone(),
            report,
        };
        if let Err(refusal) = self.propose(SERVICE, Privilege::Service, command) {
            let (now, what) = (
                self.now,
                format!("report of {node} for {key:?} is refused: {refusal}"),
            );
            self.checks.add(now, what);
        }
    }

    pub(super) fn apply(&mut self, envelope: &Envelope) -> Result<Applied, Refusal> {
        let tampered = self.tampered_command(envelope);
        let envelope = tampered.as_ref().unwrap_or(envelope);
        if let (Some(PlantedBug::LoanKept), Command::ReturnNode { .. })
        | (Some(PlantedBug::LeftSuspended), Command::Resume { .. }) =
            (self.bug, &envelope.command)
        {
            let revision = self.state.revision();
            let (outcome, events) = (Outcome::Done, Vec::new());
            return Ok(Applied {
                revision,
                outcome,
                events,
            });
        }
        self.index += 1;
        let answer = self.state.apply(self.index, envelope);
        match &answer {
            Ok(applied) => {
                self.counts.committed(envelope, applied);
                self.record_lost_ranks(&envelope.command);
                self.checks
                    .check_command(&self.state, &mut self.truth, envelope, applied);
                self.has_news |= !applied.events.is_empty();
                self.committed_events.extend(applied.events.iter().cloned());
            }
            Err(refusal) => self.counts.refused(&envelope.command, refusal),
        }
        if let (Some(PlantedBug::PromiseDropped), Command::Preempt { id, .. }, Ok(_)) =
            (self.bug, &envelope.command, &answer)
        {
            let withdraw = Envelope {
                command: Command::WithdrawPromise { id: *id },
                ..envelope.clone()
            };
            // The state machine may refuse the withdrawal like any other command.
            let _ = self.apply(&withdraw);
        }
        answer
    }

    /// Records as lost each rank that was assigned to a node that has already failed, before control detected the
    /// failure.
    fn record_lost_ranks(&mut self, command: &Command) {
        let (Command::Assign { id, .. }
        | Command::AssignSensitive { id, .. }
        | Command::Grow { id, .. }) = command
        else {
            return;
        };
        let Some(held) = self.state.allocation(*id) else {
            return;
        };
        let key = AttemptKey {
            allocation: *id,
            attempt: held.attempt,
        };
        for rank in &held.ranks {
            let machine = self.machines.get(&rank.node).filter(|of| of.is_up);
            let boot = machine.map(Machine::boot_id);
            if boot.is_none() || boot != rank.boot {
                self.truth.lost.insert((rank.node.clone(), key));
            }
        }
    }

    /// Returns the command with the change of the deliberate bug; `None` if the bug does not change this command.
    fn tampered_command(&self, envelope: &Envelope) -> Option<Envelope> {
        let mut tampered = envelope.clone();
        match (self.bug?, &mut tampered.command) {
            (
                PlantedBug::LostWorkCredited,
                Command::Report {
                    report: RankReport::Checkpoint { of },
                    ..
                },
            ) if !of.outcome.is_written() => {
                of.outcome = CheckpointOutcome::Written {
                    at: self.now,
                    bytes: None,
                    took_ms: 1,
                };
            }
            (PlantedBug::LimitsDoubled, Command::CreateProject { limits, .. }) => {
                let limits = limits.as_mut()?;
                let twice = |limit: &mut Option<u64>| *limit = limit.map(|limit| limit * 2);
                twice(&mut limits.max_nodes);
                twice(&mut limits.max_concurrent_allocations);
            }
            _ => return None,
        }
        Some(tampered)
    }
}

/// Report of the end of a process.
pub(super) fn ended(at: UnixMillis, exit: RankExit) -> RankReport {
    RankReport::Ended {
        at,
        exit,
        fault: None,
    }
}
