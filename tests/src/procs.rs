//! Processes of this machine, as `/proc` shows them.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

/// A process; a later one with the same number has another start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// What a process of a job says of itself in its environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfJob {
    /// The node it runs for.
    pub node: String,
    /// Its allocation.
    pub allocation: u64,
    /// Its attempt.
    pub attempt: u32,
}

/// The variable by which the jobs of one site are told from all others on the machine. The site's
/// tests put it into every request.
pub const SITE_VARIABLE: &str = "TEST_SITE";

/// Every live process; zombies are gone.
pub fn all() -> Vec<Process> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(process).collect()
}

/// A process by its number, if it lives.
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

/// Signals exactly this process, never a later one with its number.
pub fn signal(target: Process, signal: Signal) {
    let handle =
        Pid::from_raw(target.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(handle) = handle else { return };
    if process(target.pid) == Some(target) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Processes of the jobs of one site. What was there before the site is never looked at again.
#[derive(Debug)]
pub struct Jobs {
    site: String,
    strangers: BTreeSet<Process>,
    known: BTreeMap<Process, OfJob>,
    /// Without the mark, and since when they are known.
    unmarked: BTreeMap<Process, Instant>,
}

/// A process that executes the job does so within milliseconds of its birth; one that is older and
/// carries no mark never will.
const SETTLED: Duration = Duration::from_secs(1);

impl Jobs {
    /// For the site with this name; made before any job of it runs.
    pub fn of_site(site: &str) -> Self {
        Self {
            site: site.to_owned(),
            strangers: all().into_iter().collect(),
            known: BTreeMap::new(),
            unmarked: BTreeMap::new(),
        }
    }

    /// Every process of a job that lives now.
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

/// Processes whose command line names something in `folder`.
pub fn naming(folder: &Path) -> Vec<Process> {
    let folder = folder.to_str().unwrap().as_bytes();
    let names = |process: &Process| {
        std::fs::read(format!("/proc/{}/cmdline", process.pid))
            .is_ok_and(|line| line.windows(folder.len()).any(|part| part == folder))
    };
    all().into_iter().filter(names).collect()
}

/// Every process of a site's jobs.
pub fn of_site(site: &str) -> BTreeMap<Process, OfJob> {
    let mut jobs = Jobs {
        site: site.to_owned(),
        strangers: BTreeSet::new(),
        known: BTreeMap::new(),
        unmarked: BTreeMap::new(),
    };
    jobs.alive()
}
