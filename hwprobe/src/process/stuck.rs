//! Killed processes that still exist: they are stuck in the kernel, where no signal reaches them.

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time for a killed process to disappear.
const KILL_TIMEOUT: Duration = Duration::from_millis(200);

/// Number of stuck process groups of one probe at which the probe is no longer started.
pub(crate) const MAX_STUCK_GROUPS: u32 = 2;

/// Maximum number of tracked groups. Each group belongs to some probe, so there are normally fewer.
const MAX_TRACKED_GROUPS: usize = 64;

/// Stuck processes, shared by all clones of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct StuckProcesses(Arc<Mutex<Vec<RemainingGroup>>>);

/// Remaining processes of one process group.
#[derive(Debug)]
struct RemainingGroup {
    /// The group's first process until it is reaped; unreaped, it would stay as a zombie.
    child: Option<Child>,
    /// The remaining processes of the group, by pid and start time.
    others: Vec<Process>,
    /// The probes that hung in the group.
    probes: Vec<String>,
}

/// A process, identified by pid and start time so that a reused pid does not match.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: String,
    started: String,
}

impl StuckProcesses {
    /// Removes groups that are gone, and counts the remaining ones by probe.
    pub(crate) fn count_by_probe(&self) -> BTreeMap<String, u32> {
        let mut left = self.lock();
        left.retain_mut(RemainingGroup::is_there);
        let mut counts = BTreeMap::new();
        for probe in left.iter().flat_map(|left| &left.probes) {
            *counts.entry(probe.clone()).or_default() += 1;
        }
        counts
    }

    /// Kills a child with its process group. Processes that do not disappear soon are tracked, with the probes that
    /// hung in the group.
    pub(crate) fn kill_and_track(&self, mut child: Child, probes: Vec<String>) {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // Kill before reaping the child: until then no other group can have the same id.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.kill();
        let ends_at = Instant::now() + KILL_TIMEOUT;
        let is_reaped = wait_until(ends_at, || !matches!(child.try_wait(), Ok(None)));
        let is_empty = |group| test_kill_process_group(group).is_err();
        let others = match group {
            Some(group) if is_reaped && wait_until(ends_at, || is_empty(group)) => return,
            Some(group) => members(group),
            None => Vec::new(),
        };
        let left = RemainingGroup {
            child: (!is_reaped).then_some(child),
            others,
            probes,
        };
        if left.child.is_some() || !left.others.is_empty() {
            let mut all = self.lock();
            if all.len() >= MAX_TRACKED_GROUPS {
                all.remove(0);
            }
            all.push(left);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RemainingGroup>> {
        self.0.lock()
    }
}

impl RemainingGroup {
    fn is_there(&mut self) -> bool {
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
        self.others.retain(Process::is_there);
        self.child.is_some() || !self.others.is_empty()
    }
}

impl Process {
    fn is_there(&self) -> bool {
        stat(&self.pid).is_some_and(|(_, now)| now == *self)
    }
}

/// Processes of a group without zombies, which only wait for another process to reap them.
fn members(group: Pid) -> Vec<Process> {
    let group = group.as_raw_nonzero().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(|pid| stat(&pid))
        .filter_map(|(its_group, process)| (its_group == group).then_some(process))
        .collect()
}

/// Group and identity of a process that is not a zombie.
fn stat(pid: &str) -> Option<(String, Process)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name in parentheses may contain any character.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // From the third field of proc_pid_stat(5): state, parent, group, …, start time (22nd).
    let (state, group, started) = (fields.first()?, fields.get(2)?, fields.get(19)?);
    if matches!(*state, "Z" | "X") {
        return None;
    }
    let process = Process {
        pid: pid.to_owned(),
        started: (*started).to_owned(),
    };
    Some(((*group).to_owned(), process))
}

/// Polls `is_so` until it holds or `ends_at` is reached: the kernel has no event for the end of a process group.
fn wait_until(ends_at: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    let mut pause = Duration::from_micros(200);
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= ends_at {
            return false;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
