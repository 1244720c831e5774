//! Search for the running processes of an agent, by attempt.

use super::clearing::kill;
use crate::supervisor::{Cgroup, Cgroups, OrphanProcesses, Process, find_marked, process};
use lattice_agent_rpc::AttemptKey;
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Finds the running processes of this agent's attempts.
#[derive(Debug, Clone)]
pub(in crate::executor) struct OrphanFinder {
    /// Agent id, the prefix of each process mark.
    pub(in crate::executor) agent: String,
    pub(in crate::executor) attempts: PathBuf,
    pub(in crate::executor) cgroups: Option<Cgroups>,
}

/// Processes of one attempt that a search has found.
#[derive(Debug, Default)]
pub(in crate::executor) struct OrphanAttempt {
    pub(in crate::executor) left: OrphanProcesses,
    /// Number of supervisors among the processes.
    supervisors: usize,
    pub(in crate::executor) group: Option<Cgroup>,
    /// Whether the attempt's cgroup contains a process that has not ended: only root can place a process there.
    pub(in crate::executor) is_proven: bool,
}

impl OrphanAttempt {
    pub(in crate::executor) fn is_empty(&self) -> bool {
        self.left.of_attempt.is_empty()
    }
    /// Whether only supervisors are left, which have written the end and are about to exit.
    pub(in crate::executor) fn is_over(&self) -> bool {
        self.left.of_attempt.len() <= self.supervisors
    }
    pub(in crate::executor) fn pids(&self) -> Vec<i32> {
        self.left
            .of_attempt
            .iter()
            .map(|process| process.pid)
            .collect()
    }
    fn add(&mut self, process: Process) {
        let is_same =
            |one: &Process| (one.pid, one.start_ticks) == (process.pid, process.start_ticks);
        if !self.left.of_attempt.iter().any(is_same) {
            self.left.of_attempt.push(process);
        }
    }
}

impl OrphanFinder {
    /// All running processes of the agent's attempts, by attempt. An empty cgroup is listed without processes.
    pub(in crate::executor) fn all_attempts(
        &self,
    ) -> std::io::Result<BTreeMap<AttemptKey, OrphanAttempt>> {
        let mut found: BTreeMap<AttemptKey, OrphanAttempt> = BTreeMap::new();
        for one in find_marked(&self.agent, &self.attempts)? {
            let of_key = found.entry(one.key).or_default();
            of_key.add(one.process);
            of_key.supervisors += usize::from(one.is_supervisor);
        }
        let groups = self
            .cgroups
            .as_ref()
            .map_or(Ok(Vec::new()), Cgroups::list)?;
        for (key, group) in groups {
            let of_key = found.entry(key).or_default();
            for pid in group.processes()? {
                // A process that has ended meanwhile is skipped.
                if let Some(process) = Pid::from_raw(pid).and_then(|pid| process(pid).ok()) {
                    of_key.is_proven |= !process.is_zombie();
                    of_key.add(process);
                }
            }
            of_key.group = Some(group);
        }
        Ok(found)
    }

    /// Running processes of one attempt.
    pub(in crate::executor) fn attempt(&self, key: AttemptKey) -> std::io::Result<OrphanAttempt> {
        Ok(self.all_attempts()?.remove(&key).unwrap_or_default())
    }

    pub(in crate::executor) fn kill(&self, key: AttemptKey) -> Result<OrphanProcesses, String> {
        let found = self.attempt(key).map_err(|error| error.to_string())?;
        kill(&found.left, found.group.as_ref());
        Ok(found.left)
    }
}
