//! Process tree below a supervisor, read from `/proc`.

use crate::supervisor::supervisor_log::log_line;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io;

/// Process as in `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Process id of the parent.
    pub parent: i32,
    /// Session id.
    pub session: i32,
    /// State letter of the first thread; see [`Process::is_zombie`].
    pub state: char,
    /// Number of threads; the first one counts until it is reaped.
    pub threads: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// Whether the process has ended and is not reaped. State `Z` alone does not prove the end: a process also has this
    /// state while only its first thread has ended.
    pub fn is_zombie(&self) -> bool {
        self.state == 'Z' && self.threads <= 1
    }
}

/// Reads a process from `/proc`.
pub fn process(pid: Pid) -> io::Result<Process> {
    let pid = pid.as_raw_nonzero().get();
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(pid, &text).ok_or_else(|| io::Error::other("/proc/<pid>/stat has an unknown format"))
}

/// Parses a line of `stat`. The name in the second field may contain any character, so fields are counted after its
/// last `)`.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Process {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

/// All processes. Processes that end meanwhile are skipped.
pub(in crate::supervisor) fn all_processes() -> io::Result<Vec<Process>> {
    let pids = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids
        .filter_map(|pid| process(Pid::from_raw(pid)?).ok())
        .collect())
}

/// All processes below this one.
fn descendants() -> io::Result<Vec<Process>> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for found in all_processes()? {
        children.entry(found.parent).or_default().push(found);
    }
    let mut below = Vec::new();
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            below.push(child);
        }
    }
    Ok(below)
}

/// Sends `signals` to every process below this one.
pub(in crate::supervisor) fn signal_descendants(signals: &[Signal]) {
    let below = match descendants() {
        Ok(below) => below,
        Err(error) => {
            log_line(format_args!("cannot list processes: {error}"));
            return;
        }
    };
    for found in below.iter().filter(|found| !found.is_zombie()) {
        for signal in signals {
            signal_process(found, *signal);
        }
    }
}

/// Signals exactly this process, never a later one with the same id.
pub(crate) fn signal_process(target: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(target.pid) else {
        return;
    };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    // The handle is open, so `/proc` now describes the process behind the handle.
    if process(pid).is_ok_and(|found| found.start_ticks == target.start_ticks) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let stat = "42 (a) R (b) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        let found = parse(42, stat).unwrap();
        assert_eq!((found.parent, found.session, found.state), (7, 42, 'S'));
        assert_eq!((found.threads, found.start_ticks), (1, 98765));
        assert_eq!(parse(1, "1 (init"), None);
    }

    #[test]
    fn process_without_main_thread_is_alive() {
        let stat = |threads| {
            let text =
                format!("42 (a) Z 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 98765 1");
            parse(42, &text).unwrap()
        };
        assert!(!stat(2).is_zombie());
        assert!(stat(1).is_zombie());
        assert!(stat(0).is_zombie());
    }

    #[test]
    fn this_process_is_listed_with_its_parent() {
        let me = process(getpid()).unwrap();
        let parent = rustix::process::getppid().unwrap();
        assert_eq!(me.parent, parent.as_raw_nonzero().get());
        assert!(
            all_processes()
                .unwrap()
                .iter()
                .any(|found| found.pid == me.pid)
        );
    }
}
