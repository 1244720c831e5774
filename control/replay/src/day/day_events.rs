//! Events that control does not cause: users submit, processes start and end, nodes fail and return.

use super::{
    event::Event,
    machine::{Machine, PingState},
    planted_bug::PlantedBug,
    scene::{DayEvent, START},
    site::{Inner, ended},
};
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::{
    AllocationId, Command, NodeId,
    allocation::RankExit,
    command::{Privilege, RankReport},
    node::Lifecycle,
    scheduler::{SchedulerPatch, SettingPatch},
    vcluster::VclusterPatch,
};

const ADMIN: &str = "root";
/// Time without ping answers after which a node is suspect (`SUSPECT_MS`) or unreachable, milliseconds.
const SUSPECT_MS: u64 = 3_000;
const UNREACHABLE_MS: u64 = 32_000;
/// Time from a boot to the report of the agent's journal, milliseconds.
const JOURNAL_MS: u64 = 3_000;

impl Inner {
    /// Creates the projects, vClusters and nodes of the scene, and schedules its events.
    pub(super) fn create_cluster(&mut self) {
        let scene = self.scene.clone();
        for (path, limits) in scene.projects {
            let command = Command::CreateProject {
                path,
                limits: Some(limits),
                admins: Vec::new(),
                description: String::new(),
            };
            self.propose_as_admin(command);
        }
        for part in scene.vclusters {
            let change = VclusterPatch {
                description: Some("of a day".to_owned()),
                ..VclusterPatch::default()
            };
            self.propose_as_admin(Command::SetScheduler {
                vcluster: part.name.clone(),
                change: Box::new(change),
                settings: Box::new(part.settings),
                expected_version: None,
            });
            for node in part.nodes {
                self.propose_as_admin(Command::RegisterNode {
                    node: node.clone(),
                    vcluster: part.name.clone(),
                });
                self.propose_as_admin(Command::SetLifecycle {
                    node: node.clone(),
                    lifecycle: Lifecycle::Ready,
                });
                let machine = Machine {
                    is_up: true,
                    boot: 1,
                    state_changed_at: START,
                    ..Machine::default()
                };
                let ping = PingState::Alive(machine.boot_id());
                self.pings.push((node.clone(), ping));
                self.machines.insert(node, machine);
            }
        }
        for (at, deed) in scene.events {
            self.at(at, Event::Scheduled(deed));
        }
    }

    fn propose_as_admin(&mut self, command: Command) {
        let description = format!("{command:?}");
        if let Err(refusal) = self.propose(ADMIN, Privilege::Admin, command) {
            let now = self.now;
            self.checks.add(now, format!("{description}: {refusal}"));
        }
    }

    pub(super) fn handle_event(&mut self, what: Event) {
        match what {
            Event::Scheduled(deed) => self.handle_day_event(deed),
            Event::Started(node, key) => self.started(&node, key),
            Event::Finished(key) => self.finished(key),
            Event::Overdue(node, key) => self.overdue(&node, key),
            Event::Stopped(node, key) => self.end_process(&node, key, RankExit::Stopped),
            Event::NeverStarted(node, key) => match self.machines.get_mut(&node) {
                Some(machine) if !machine.is_up => machine.lost.push(key),
                _ => self.report(key, &node, ended(self.now, RankExit::Stopped)),
            },
            Event::Suspected(node, boot) => self.pinged(node, boot, PingState::Suspect),
            Event::Unreachable(node, boot) => self.pinged(node, boot, PingState::Unreachable),
            Event::NodeReturned(node) => self.node_returned(&node),
            Event::Journal(node) => self.report_lost(&node),
        }
    }

    fn pinged(&mut self, node: NodeId, boot: u64, ping: PingState) {
        let known = self.machines.get(&node);
        if known.is_some_and(|machine| !machine.is_up && machine.boot == boot) {
            self.checks.pinged(&node, &ping, self.now);
            self.pings.push((node, ping));
        }
    }

    fn handle_day_event(&mut self, deed: DayEvent) {
        // The refusal of a user's command is not a violation: a limit may be reached.
        match deed {
            DayEvent::Submit { user, spec } => {
                let _ = self.propose(&user, Privilege::User, Command::Submit { spec });
            }
            DayEvent::SubmitDag { user, dag } => {
                let _ = self.propose(&user, Privilege::User, Command::SubmitDag { dag });
            }
            DayEvent::Cancel { nth } => self.cancel(nth),
            DayEvent::Fail { node, for_ms } => self.fail(node, for_ms),
            DayEvent::Reserve { name, spec } => self.propose_as_admin(Command::SetReservation {
                name,
                spec,
                expected: None,
            }),
            DayEvent::StorageOut {
                announced: is_announced,
            } => {
                if is_announced {
                    self.set_storage_bandwidth(SettingPatch::Set(0));
                }
            }
            DayEvent::StorageBack => self.set_storage_bandwidth(SettingPatch::Clear),
            DayEvent::EndServices => self.end_services(),
        }
    }

    /// Sets the bandwidth of checkpoint storage in every vCluster.
    fn set_storage_bandwidth(&mut self, bytes_s: SettingPatch<u64>) {
        let settings = SchedulerPatch {
            checkpoint_bytes_s: bytes_s,
            ..SchedulerPatch::default()
        };
        for part in self.scene.vclusters.clone() {
            self.propose_as_admin(Command::SetScheduler {
                vcluster: part.name,
                change: Box::default(),
                settings: Box::new(settings),
                expected_version: None,
            });
        }
    }

    fn cancel(&mut self, nth: u64) {
        let live = self.state.live_allocations();
        let live = live.filter(|held| held.spec.terms.scale.is_none());
        let live: Vec<(AllocationId, String)> =
            live.map(|held| (held.id, held.user.clone())).collect();
        let place = nth % live.len().max(1) as u64;
        if let Some((id, user)) = live.get(place as usize) {
            self.cancel_allocation(*id, user);
        }
    }

    fn cancel_allocation(&mut self, id: AllocationId, user: &str) {
        self.truth.cancelled.insert(id);
        let _ = self.propose(user, Privilege::User, Command::Cancel { id });
    }

    fn end_services(&mut self) {
        let live = self.state.live_allocations();
        let live = live.filter(|held| held.spec.terms.scale.is_some());
        let live: Vec<(AllocationId, String)> =
            live.map(|held| (held.id, held.user.clone())).collect();
        for (id, user) in live {
            self.cancel_allocation(id, &user);
        }
    }

    fn started(&mut self, node: &NodeId, key: AttemptKey) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node).filter(|of| of.is_up) else {
            return;
        };
        let Some(process) = machine.runs.get_mut(&key) else {
            return;
        };
        if process.is_ending || process.since.is_some() {
            return;
        }
        process.since = Some(now);
        let (rank, walltime) = (process.rank, process.walltime_ms);
        if let Some(ms) = walltime {
            self.after(ms, Event::Overdue(node.clone(), key));
        }
        self.report(key, node, RankReport::Started { at: now });
        let Some(work) = self.truth.jobs.get_mut(&key.allocation) else {
            return;
        };
        if work.attempt.number != key.attempt {
            return;
        }
        work.attempt.started.insert(rank);
        if work.attempt.started.len() == work.attempt.ranks && work.attempt.began_at.is_none() {
            work.attempt.began_at = Some(now);
            let left = work.nature.work_ms;
            let left = left.map(|ms| ms.saturating_sub(work.attempt.base_ms).max(1));
            if let Some(ms) = left {
                self.after(ms, Event::Finished(key));
            }
        }
    }

    fn finished(&mut self, key: AttemptKey) {
        let Some(work) = self.truth.jobs.get_mut(&key.allocation) else {
            return;
        };
        if work.attempt.number != key.attempt || work.attempt.is_broken {
            return;
        }
        let code = work.nature.code;
        let runs = |(_, machine): &(&NodeId, &Machine)| {
            let process = machine.runs.get(&key);
            machine.is_up && process.is_some_and(|process| process.since.is_some())
        };
        let on = self.machines.iter().filter(runs);
        let on: Vec<NodeId> = on.map(|(node, _)| node.clone()).collect();
        // A job that lost a rank does not finish: it runs until control stops it.
        if on.len() < work.attempt.ranks {
            return;
        }
        work.is_done = true;
        for node in on {
            self.end_process(&node, key, RankExit::Exited { code });
        }
    }

    fn overdue(&mut self, node: &NodeId, key: AttemptKey) {
        let machine = self.machines.get(node).filter(|of| of.is_up);
        if machine.is_some_and(|of| of.runs.contains_key(&key)) {
            if let Some(work) = self.truth.jobs.get_mut(&key.allocation) {
                work.is_overdue = true;
            }
            self.end_process(node, key, RankExit::Walltime);
        }
    }

    /// Ends a process, and reports its end as the agent of the node.
    fn end_process(&mut self, node: &NodeId, key: AttemptKey, exit: RankExit) {
        let outage = self.scene.outage;
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node).filter(|of| of.is_up) else {
            return;
        };
        // With this bug, the agent reports the end of a process that continues to run.
        let stays = self.bug == Some(PlantedBug::EndedTooSoon) && exit == RankExit::Stopped;
        let process = match stays {
            true => None,
            false => match machine.runs.remove(&key) {
                Some(process) => Some(process),
                None => return,
            },
        };
        if let Some(process) = process {
            self.truth.process_ended(key, &process, outage, now);
        }
        self.report(key, node, ended(now, exit));
    }

    fn fail(&mut self, node: NodeId, for_ms: u64) {
        let (outage, now) = (self.scene.outage, self.now);
        let Some(machine) = self.machines.get_mut(&node).filter(|of| of.is_up) else {
            return;
        };
        self.counts.failures += 1;
        machine.is_up = false;
        machine.state_changed_at = now;
        let boot = machine.boot;
        if let Some(holder) = self.state.node(&node).and_then(|of| of.holder) {
            let key = AttemptKey {
                allocation: holder.allocation,
                attempt: holder.attempt,
            };
            self.truth.lost.insert((node.clone(), key));
        }
        for (key, process) in std::mem::take(&mut machine.runs) {
            machine.lost.push(key);
            self.truth.process_ended(key, &process, outage, now);
        }
        self.after(SUSPECT_MS, Event::Suspected(node.clone(), boot));
        self.after(UNREACHABLE_MS, Event::Unreachable(node.clone(), boot));
        self.after(for_ms, Event::NodeReturned(node));
    }

    fn node_returned(&mut self, node: &NodeId) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        machine.is_up = true;
        machine.boot += 1;
        machine.state_changed_at = now;
        let ping = PingState::Alive(machine.boot_id());
        self.checks.pinged(node, &ping, now);
        self.pings.push((node.clone(), ping));
        self.after(JOURNAL_MS, Event::Journal(node.clone()));
    }

    fn report_lost(&mut self, node: &NodeId) {
        let Some(machine) = self.machines.get_mut(node).filter(|of| of.is_up) else {
            return;
        };
        for key in std::mem::take(&mut machine.lost) {
            let evidence = "the node rebooted".to_owned();
            self.report(key, node, ended(self.now, RankExit::Lost { evidence }));
        }
    }
}
