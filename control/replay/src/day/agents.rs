//! Simulated agents: pings, launches, terminations, checkpoint requests and GPU utilization. As over a network, an
//! answer may not arrive: the result is then `None`.

use super::{
    event::Event,
    job_behavior::JobBehavior,
    machine::{CheckpointPart, Machine, Process},
    planted_bug::PlantedBug,
    scene::{DAY_MS, START},
    site::{Inner, Site},
    true_progress::{Attempt, CheckpointContent, JobProgress},
};
use lattice_agent_rpc::{
    AttemptKey, AttemptStatus, CheckpointRefused, CheckpointStatus, Launch, LaunchRefused,
    WriteCheckpoint,
};
use lattice_quorum_types::{AllocationId, NodeId};
use std::f64::consts::TAU;

/// Range of the time that a rank takes to start (`STARTS_MS`), and to end after a request (`ENDS_MS`), milliseconds.
const STARTS_MS: (u64, u64) = (500, 3_000);
const ENDS_MS: (u64, u64) = (500, 25_000);

impl Site {
    /// Boot id that the node's agent reports; `None` if the node is down.
    pub fn ping(&self, node: &NodeId) -> Option<String> {
        let inner = self.inner();
        let machine = inner.machines.get(node).filter(|of| of.is_up);
        machine.map(Machine::boot_id)
    }

    /// Launches a rank.
    pub fn launch(
        &self,
        node: &NodeId,
        launch: &Launch,
    ) -> Option<Result<AttemptStatus, LaunchRefused>> {
        self.inner().launch(node, launch)
    }

    /// Requests the end of a rank.
    pub fn terminate(
        &self,
        node: &NodeId,
        key: AttemptKey,
    ) -> Option<Result<AttemptStatus, LaunchRefused>> {
        self.inner().terminate(node, key)
    }

    /// Requests a checkpoint of a rank. A repeated request returns the status of the checkpoint.
    pub fn checkpoint(
        &self,
        node: &NodeId,
        asked: &WriteCheckpoint,
    ) -> Option<Result<CheckpointStatus, CheckpointRefused>> {
        self.inner().checkpoint(node, asked)
    }

    /// Utilization of a node's GPUs by a service, millionths.
    pub fn gpu_utilization(&self, node: &NodeId) -> Option<Result<u32, String>> {
        self.inner().usage(node)
    }
}

fn status(key: AttemptKey) -> AttemptStatus {
    AttemptStatus { key, report: None }
}

impl Inner {
    fn launch(
        &mut self,
        node: &NodeId,
        launch: &Launch,
    ) -> Option<Result<AttemptStatus, LaunchRefused>> {
        let checkpoint = launch.checkpoint.as_ref();
        let key = launch.key;
        let machine = self.machines.get(node).filter(|of| of.is_up)?;
        if machine.known.contains(&key) {
            return Some(Ok(status(key)));
        }
        let current = machine.boot_id();
        if let Some(expected) = launch.boot.clone().filter(|boot| *boot != current) {
            return Some(Err(LaunchRefused::OtherBoot { expected, current }));
        }
        let nature = JobBehavior::of(&launch.workload)?;
        let others = machine.runs.keys().map(|of| format!("{of:?}"));
        for other in others.collect::<Vec<_>>() {
            let what = format!("{node} receives {key:?} while {other} still runs");
            self.checks.add(self.now, what);
        }
        let mut restore = checkpoint.and_then(|setup| setup.restore.as_ref());
        let mut walltime_ms = launch.walltime_ms;
        match self.bug {
            Some(PlantedBug::CheckpointForgotten) => restore = None,
            Some(PlantedBug::WalltimeGivenTwice) => {
                let held = self.state.allocation(key.allocation);
                walltime_ms = held.and_then(|held| held.spec.walltime_ms);
            }
            _ => {}
        }
        let number = restore.map_or(0, |restore| restore.number);
        self.record_resume(launch, nature, number, walltime_ms);
        let process = Process {
            rank: launch.rank,
            behavior: nature,
            since: None,
            walltime_ms,
            is_prepared: checkpoint.is_some(),
            is_ending: false,
            write: None,
        };
        let machine = self.machines.get_mut(node)?;
        machine.known.insert(key);
        machine.runs.insert(key, process);
        self.counts.launches += 1;
        let ms = self.rng.range(STARTS_MS.0, STARTS_MS.1);
        self.after(ms, Event::Started(node.clone(), key));
        Some(Ok(status(key)))
    }

    /// Records that a rank resumes from checkpoint `number`, 0 for none. Checks that this is the last usable
    /// checkpoint, and that the remaining walltime matches it.
    fn record_resume(
        &mut self,
        launch: &Launch,
        nature: JobBehavior,
        number: u32,
        walltime_ms: Option<u64>,
    ) {
        let (id, now) = (launch.key.allocation, self.now);
        let works = &mut self.truth.jobs;
        let work = works.entry(id).or_insert_with(|| JobProgress::new(nature));
        let usable = work.usable;
        let is_new = work.attempt.number < launch.key.attempt;
        let content = work.contents.get(&number);
        if number > 0 && !content.is_some_and(CheckpointContent::is_complete) {
            let what = format!("{id} resumes from incomplete checkpoint {number}");
            self.checks.add(now, what);
        }
        if number != usable {
            let from = match number {
                0 => "the beginning".to_owned(),
                number => format!("checkpoint {number}"),
            };
            let what =
                format!("{id} resumes from {from}, although checkpoint {usable} is the last");
            self.checks.add(now, what);
        }
        let base_ms = content.map_or(0, |content| content.ran_ms);
        let writes = content.map_or(0, |content| content.writes);
        if is_new {
            if work.attempt.number > 0 {
                work.lost_ms += work.attempt.ran_in_all_ms.saturating_sub(base_ms);
            }
            work.attempt = Attempt {
                number: launch.key.attempt,
                ranks: launch.nodes.len(),
                base_ms,
                writes,
                ..Attempt::default()
            };
        }
        // The used walltime may be less than the run time in the checkpoint by at most one pass of control for each
        // checkpoint. Control counts up to the request of a checkpoint, and the processes receive the request in the
        // next pass.
        let held = self.state.allocation(id);
        let asked_ms = held.and_then(|held| held.spec.walltime_ms);
        if let (Some(asked_ms), Some(given_ms)) = (asked_ms, walltime_ms) {
            let used_ms = asked_ms.saturating_sub(given_ms);
            let is_whole =
                used_ms <= base_ms && base_ms - used_ms <= super::MAX_PASS_INTERVAL_MS * writes;
            let is_over = base_ms >= asked_ms && given_ms == 1;
            if !is_whole && !is_over {
                let what =
                    format!("{id} used {used_ms} ms of its walltime but resumes from {base_ms} ms");
                self.checks.add(now, what);
            }
        }
    }

    fn terminate(
        &mut self,
        node: &NodeId,
        key: AttemptKey,
    ) -> Option<Result<AttemptStatus, LaunchRefused>> {
        let machine = self.machines.get_mut(node).filter(|of| of.is_up)?;
        if let Some(process) = machine.runs.get_mut(&key) {
            if !process.is_ending {
                process.is_ending = true;
                let ms = self.rng.range(ENDS_MS.0, ENDS_MS.1);
                self.after(ms, Event::Stopped(node.clone(), key));
            }
        } else if machine.known.insert(key) {
            self.after(100, Event::NeverStarted(node.clone(), key));
        }
        Some(Ok(status(key)))
    }

    fn checkpoint(
        &mut self,
        node: &NodeId,
        asked: &WriteCheckpoint,
    ) -> Option<Result<CheckpointStatus, CheckpointRefused>> {
        let (now, outage, key) = (self.now, self.scene.outage, asked.key);
        let number = asked.order.number;
        let machine = self.machines.get_mut(node).filter(|of| of.is_up)?;
        let Some(process) = machine.runs.get_mut(&key) else {
            return Some(Ok(CheckpointStatus::Gone));
        };
        if !process.is_prepared {
            return Some(Err(CheckpointRefused::NotPrepared));
        }
        if let Some(write) = &process.write {
            let status = write.status(outage, now);
            let current = write.order.number;
            let has_ended = matches!(status, CheckpointStatus::Ended(_));
            if number == current {
                self.truth.note_write(key, process, outage, now);
                return Some(Ok(status));
            }
            if number < current {
                let given = number;
                return Some(Err(CheckpointRefused::StaleNumber { given, current }));
            }
            if !has_ended {
                let given = number;
                return Some(Err(CheckpointRefused::InProgress { given, current }));
            }
        }
        let write = CheckpointPart::new(asked.order.clone(), &process.behavior, now);
        let status = write.status(outage, now);
        process.write = Some(write);
        let rank = process.rank;
        let work = self.truth.jobs.get_mut(&key.allocation)?;
        let (ran_ms, ranks) = (work.attempt.ran_ms(now), work.attempt.ranks);
        let writes = work.attempt.writes + 1;
        let content = work
            .contents
            .entry(number)
            .or_insert_with(|| CheckpointContent {
                ran_ms,
                ranks,
                writes,
                ..CheckpointContent::default()
            });
        // The checkpoint contains only the progress that all ranks had reached.
        content.ran_ms = content.ran_ms.min(ran_ms);
        content.asked.insert(rank);
        Some(Ok(status))
    }

    /// Utilization of a node's GPUs. The nodes of a service share its load, which is low at night and exceeds one node
    /// during the day.
    fn usage(&mut self, node: &NodeId) -> Option<Result<u32, String>> {
        let machine = self.machines.get(node).filter(|of| of.is_up)?;
        let serves = |(key, process): (&AttemptKey, &Process)| {
            let is_one = process.since.is_some() && process.behavior.work_ms.is_none();
            is_one.then_some(key.allocation)
        };
        let Some(id) = machine.runs.iter().find_map(serves) else {
            return Some(Err("no rank of a service runs on this node".to_owned()));
        };
        let of_it = |machine: &&Machine| {
            let mut runs = machine.runs.iter();
            machine.is_up && runs.any(|run| serves(run) == Some(id))
        };
        let nodes = self.machines.values().filter(of_it).count();
        if self.rng.chance(10) {
            return Some(Err("the GPU driver does not respond".to_owned()));
        }
        let load = self.load(id) / nodes.max(1) as f64;
        Some(Ok((load.clamp(0.0, 1.0) * 1e6) as u32))
    }

    /// Load of a service, as a number of fully used nodes.
    fn load(&self, id: AllocationId) -> f64 {
        let of_day = self.now.since(START) as f64 / DAY_MS as f64;
        let shift = (id.0 % 4) as f64 / 16.0;
        0.4 + 1.3 * (1.0 - (TAU * (of_day + 0.25 + shift)).cos()) / 2.0 * 1.4
    }
}
