//! Processes of this machine, from `/proc`.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

/// A process. A later process with the same pid has another start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// Identity of a job's process, from its environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfJob {
    /// Node for which the process runs.
    pub node: String,
    /// Allocation of the process.
    pub allocation: u64,
    /// Attempt of the process.
    pub attempt: u32,
}

/// Variable that distinguishes the jobs of one site from all others on the machine. The site's tests put it into every
/// request.
pub const SITE_VARIABLE: &str = "TEST_SITE";

/// All live processes, without zombies.
pub fn all() -> Vec<Process> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(process).collect()
}

/// The process with this pid, if it lives.
pub fn process(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let start_ticks = fields.get(19)?.parse().ok()?;
    Some(Process { pid, start_ticks })
}

/// Sends a signal to exactly this process, never to a later one with the same pid.
pub fn signal(target: Process, signal: Signal) {
    let handle =
        Pid::from_raw(target.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(handle) = handle else { return };
    if process(target.pid) == Some(target) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Processes of the jobs of one site. Processes that existed before the site are ignored.
#[derive(Debug)]
pub struct Jobs {
    site: String,
    strangers: BTreeSet<Process>,
    known: BTreeMap<Process, OfJob>,
    /// Processes without the site's variable, with the time of their first observation.
    unmarked: BTreeMap<Process, Instant>,
}

/// Time after which a process without the site's variable can never belong to a job. A job's process executes the job
/// within milliseconds of its creation.
const SETTLED: Duration = Duration::from_secs(1);

impl Jobs {
    /// Creates the value for the site with this name; must be called before the site's first job.
    pub fn of_site(site: &str) -> Self {
        Self {
            site: site.to_owned(),
            strangers: all().into_iter().collect(),
            known: BTreeMap::new(),
            unmarked: BTreeMap::new(),
        }
    }

    /// All live processes of jobs.
    pub fn alive(&mut self) -> BTreeMap<Process, OfJob> {
        let (mut alive, mut unmarked) = (BTreeMap::new(), BTreeMap::new());
        for process in all() {
            if self.strangers.contains(&process) {
                continue;
            }
            let since = self.unmarked.get(&process).copied();
            let since = since.unwrap_or_else(Instant::now);
            let known = self.known.get(&process).cloned();
            let asked = || (since.elapsed() < SETTLED).then(|| self.ask(process))?;
            match known.or_else(asked) {
                Some(of) => drop(alive.insert(process, of)),
                None => drop(unmarked.insert(process, since)),
            }
        }
        self.known.clone_from(&alive);
        self.unmarked = unmarked;
        alive
    }

    fn ask(&self, process: Process) -> Option<OfJob> {
        let environ = std::fs::read(format!("/proc/{}/environ", process.pid)).ok()?;
        let variables: BTreeMap<&str, &str> = environ
            .split(|byte| *byte == 0)
            .filter_map(|line| std::str::from_utf8(line).ok()?.split_once('='))
            .collect();
        if *variables.get(SITE_VARIABLE)? != self.site {
            return None;
        }
        Some(OfJob {
            node: (*variables.get("LATTICE_NODE")?).to_owned(),
            allocation: variables.get("LATTICE_ALLOCATION_ID")?.parse().ok()?,
            attempt: variables.get("LATTICE_ATTEMPT")?.parse().ok()?,
        })
    }
}

/// Processes with a path in `folder` on their command line.
pub fn naming(folder: &Path) -> Vec<Process> {
    let folder = folder.to_str().unwrap().as_bytes();
    let names = |process: &Process| {
        std::fs::read(format!("/proc/{}/cmdline", process.pid))
            .is_ok_and(|line| line.windows(folder.len()).any(|part| part == folder))
    };
    all().into_iter().filter(names).collect()
}

/// All processes of a site's jobs.
pub fn of_site(site: &str) -> BTreeMap<Process, OfJob> {
    let mut jobs = Jobs {
        site: site.to_owned(),
        strangers: BTreeSet::new(),
        known: BTreeMap::new(),
        unmarked: BTreeMap::new(),
    };
    jobs.alive()
}
