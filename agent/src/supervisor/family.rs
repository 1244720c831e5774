//! Processes below a supervisor, found through `/proc`.

use super::cgroup::Cgroup;
use crate::attempt::{Attempts, LaunchRecord, StartedRecord, SupervisorRecord};
use lattice_quorum_types::AllocationId;
use lattice_quorum_types::wire::AttemptKey;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// One line of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// State letter of its first thread; see [`Process::is_gone`].
    pub state: char,
    /// How many threads it has, the first one included until it is reaped.
    pub threads: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// It has ended and was not reaped. One whose first thread alone has ended runs on in the
    /// others, and has the same letter.
    pub fn is_gone(&self) -> bool {
        self.state == 'Z' && self.threads <= 1
    }
}

/// What the kernel says of a process.
pub fn process(pid: Pid) -> io::Result<Process> {
    let pid = pid.as_raw_nonzero().get();
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(pid, &text).ok_or_else(|| io::Error::other("/proc/<pid>/stat has another form"))
}

/// The name in the second field may hold anything, so fields are counted after its last `)`.
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

/// Every process there is. Those that end meanwhile are left out.
fn all() -> io::Result<Vec<Process>> {
    let pids = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids
        .filter_map(|pid| process(Pid::from_raw(pid)?).ok())
        .collect())
}

/// Every process below this one.
fn descendants() -> io::Result<Vec<Process>> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for found in all()? {
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
pub(super) fn signal_descendants(signals: &[Signal]) {
    let below = match descendants() {
        Ok(below) => below,
        Err(error) => {
            eprintln!("cannot list processes: {error}");
            return;
        }
    };
    for found in below.iter().filter(|found| !found.is_gone()) {
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
    // The handle is held, so what /proc says now is said of the process it names.
    if process(pid).is_ok_and(|found| found.start_ticks == target.start_ticks) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// What is left of an attempt whose supervisor is gone.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// They carry its mark, are in its cgroup or in the session of its first process, or have not
    /// executed its program yet.
    pub(crate) ours: Vec<Process>,
    /// They run as its user and came after its supervisor, and whether they carry its mark cannot
    /// be read.
    pub(crate) unknown: Vec<Process>,
}

/// Which processes of an attempt are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    /// The job's, and those of the hook before it.
    Job,
    /// Those of the hooks after it. They are the agent's user's, and their environment can be
    /// read. The job had the same mark, and its user may still know it.
    Hooks,
}

/// Looks at every process that is not older than the supervisor, for the attempt in `folder`. The
/// session counts only as long as no stranger leads it by now.
pub(crate) fn left_of_attempt(
    launch: &LaunchRecord,
    supervisor: Option<&SupervisorRecord>,
    started: Option<&StartedRecord>,
    (folder, sought): (&Path, Sought),
) -> io::Result<Left> {
    let mark = format!("{}={}", super::environment::MARK, launch.mark).into_bytes();
    let user = launch.become_user.as_ref();
    let uid = user.map_or_else(|| geteuid().as_raw(), |user| user.uid);
    let first_tick = supervisor.map_or(0, |supervisor| supervisor.start_ticks);
    let group = launch.cgroup.as_ref().map(|group| Cgroup::at(&group.path));
    let grouped = group.map_or(Ok(Vec::new()), |group| group.processes())?;
    let grouped: BTreeSet<i32> = grouped.into_iter().collect();
    let found = all()?;
    let session = started.filter(|first| {
        let leader = found.iter().find(|process| process.pid == first.pid);
        leader.is_none_or(|leader| leader.start_ticks == first.start_ticks)
    });
    let in_session = |process: &Process| {
        session.is_some_and(|first| {
            process.session == first.pid && process.start_ticks >= first.start_ticks
        })
    };
    let mut left = Left::default();
    for process in found {
        if grouped.contains(&process.pid) {
            left.ours.push(process);
            continue;
        }
        if process.is_gone() || process.start_ticks < first_tick {
            continue;
        }
        // No mark in its environment yet, which is its supervisor's.
        if is_unexecuted(process.pid, folder)
            && (is_wholly_of(process.pid, geteuid().as_raw())
                || sought == Sought::Job && may_be_of(process.pid, uid))
        {
            left.ours.push(process);
            continue;
        }
        if sought == Sought::Hooks {
            let environment = environment(process.pid);
            if kin(environment, &mark, || false) == Kin::Ours
                && is_wholly_of(process.pid, geteuid().as_raw())
            {
                left.ours.push(process);
            }
            continue;
        }
        // A number of a session may be somebody else's by now.
        if in_session(&process) && may_be_of(process.pid, uid) {
            left.ours.push(process);
            continue;
        }
        match kin(environment(process.pid), &mark, || {
            may_be_of(process.pid, uid)
        }) {
            Kin::Ours => left.ours.push(process),
            Kin::Unknown => left.unknown.push(process),
            Kin::Stranger => {}
        }
    }
    Ok(left)
}

/// The environment a process was started with. Where its first thread has ended the kernel tells
/// it of the others only.
fn environment(pid: i32) -> io::Result<Vec<u8>> {
    let first = std::fs::read(format!("/proc/{pid}/environ"));
    if first.as_ref().is_ok_and(|read| !read.is_empty()) {
        return first;
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut of_others = threads.into_iter().flatten().filter_map(|thread| {
        let read = std::fs::read(thread.ok()?.path().join("environ")).ok()?;
        (!read.is_empty()).then_some(read)
    });
    of_others.next().map_or(first, Ok)
}

/// A process of some attempt of this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) key: AttemptKey,
    pub(crate) process: Process,
    /// It supervises the attempt.
    pub(crate) is_supervisor: bool,
}

/// Every process whose mark begins with `agent`, and every supervisor of an attempt whose folder
/// is, or was, in `attempts`: found without any record.
pub(crate) fn marked(agent: &str, attempts: &Path) -> io::Result<Vec<Marked>> {
    let own = geteuid().as_raw();
    let mut found = Vec::new();
    for process in all()?.into_iter().filter(|process| !process.is_gone()) {
        let by_mark = || key_in(&environment(process.pid).ok()?, agent);
        let by_command = || {
            let command = std::fs::read(format!("/proc/{}/cmdline", process.pid));
            let key = supervised(&command.ok()?, attempts)?;
            // Anybody can call a process like that.
            is_wholly_of(process.pid, own).then_some(key)
        };
        let supervised = by_command();
        if let Some(key) = supervised.or_else(by_mark) {
            found.push(Marked {
                key,
                process,
                is_supervisor: supervised.is_some(),
            });
        }
    }
    Ok(found)
}

/// The attempt that an environment names, if its mark is one of `agent`'s.
fn key_in(environment: &[u8], agent: &str) -> Option<AttemptKey> {
    let value = |name: &str| {
        environment.split(|byte| *byte == 0).find_map(|own| {
            let own = std::str::from_utf8(own).ok()?;
            own.strip_prefix(name)?.strip_prefix('=')
        })
    };
    let is_ours = value(super::environment::MARK)?
        .strip_prefix(agent)?
        .starts_with('-');
    if !is_ours {
        return None;
    }
    Some(AttemptKey {
        allocation: AllocationId(value("LATTICE_ALLOCATION_ID")?.parse().ok()?),
        attempt: value("LATTICE_ATTEMPT")?.parse().ok()?,
    })
}

/// The attempt whose folder in `attempts` a command line supervises.
fn supervised(command: &[u8], attempts: &Path) -> Option<AttemptKey> {
    let folder = supervised_folder(command)?;
    (folder.parent() == Some(attempts)).then(|| Attempts::key_of(folder))?
}

fn supervised_folder(command: &[u8]) -> Option<&Path> {
    let mut words = command.split(|byte| *byte == 0).skip(1);
    if words.next()? != super::SUBCOMMAND.as_bytes() {
        return None;
    }
    Some(Path::new(std::str::from_utf8(words.next()?).ok()?))
}

/// Whether a process has the command line of a supervisor of `folder`: where none lives, it is a
/// copy of one, forked to become a job or a hook, that hangs on its way to the program.
fn is_unexecuted(pid: i32, folder: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline"));
    command.is_ok_and(|command| supervised_folder(&command) == Some(folder))
}

#[derive(Debug, PartialEq, Eq)]
enum Kin {
    Ours,
    Stranger,
    Unknown,
}

/// What a process's environment says of it; `may_be_ours` is asked where it cannot be read.
fn kin(environment: io::Result<Vec<u8>>, mark: &[u8], may_be_ours: impl FnOnce() -> bool) -> Kin {
    match environment {
        Ok(read) if read.split(|byte| *byte == 0).any(|own| own == mark) => Kin::Ours,
        Ok(_) => Kin::Stranger,
        Err(_) if may_be_ours() => Kin::Unknown,
        Err(_) => Kin::Stranger,
    }
}

/// Whether a process runs as this user, or that cannot be read either. One that is gone does not.
fn may_be_of(pid: i32, uid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => runs_as(&status, uid).unwrap_or(true),
        Err(error) => {
            let is_gone = error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
            !is_gone
        }
    }
}

/// Whether a process is this user's alone. A program that is started with the rights of its file
/// belongs to whoever started it as well.
fn is_wholly_of(pid: i32, uid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| {
        let ids = user_ids(&status);
        ids.is_some_and(|ids| ids.iter().all(|id| *id == uid))
    })
}

/// Real, effective, saved, and for files.
fn user_ids(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let ids: Result<Vec<u32>, _> = line.split_whitespace().map(str::parse).collect();
    ids.ok()?.try_into().ok()
}

/// Whether any of the four user ids is this one.
fn runs_as(status: &str, uid: u32) -> Option<bool> {
    Some(user_ids(status)?.contains(&uid))
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
    fn a_process_whose_first_thread_has_ended_is_not_gone() {
        let stat = |threads| {
            let text =
                format!("42 (a) Z 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 98765 1");
            parse(42, &text).unwrap()
        };
        assert!(!stat(2).is_gone());
        assert!(stat(1).is_gone());
        assert!(stat(0).is_gone());
    }

    #[test]
    fn this_process_is_listed_with_its_parent() {
        let me = process(getpid()).unwrap();
        let parent = rustix::process::getppid().unwrap();
        assert_eq!(me.parent, parent.as_raw_nonzero().get());
        assert!(all().unwrap().iter().any(|found| found.pid == me.pid));
    }

    #[test]
    fn only_what_was_read_tells_a_stranger_from_ours() {
        let mark = b"LATTICE_ATTEMPT_MARK=0a1b";
        let read = |text: &[u8]| Ok(text.to_vec());
        let never = || -> bool { unreachable!() };
        let with = b"PATH=/bin\0LATTICE_ATTEMPT_MARK=0a1b\0";
        assert_eq!(kin(read(with), mark, never), Kin::Ours);
        let other = b"PATH=/bin\0LATTICE_ATTEMPT_MARK=0a1bc\0";
        assert_eq!(kin(read(other), mark, never), Kin::Stranger);
        let denied = || Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(kin(denied(), mark, || true), Kin::Unknown);
        assert_eq!(kin(denied(), mark, || false), Kin::Stranger);
    }

    #[test]
    fn the_user_of_an_unreadable_process_decides_whether_it_is_waited_for() {
        let status = "Name:\tsleep\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t5\t5\t5\n";
        assert_eq!(runs_as(status, 1001), Some(true));
        assert_eq!(runs_as(status, 5), Some(false));
        assert_eq!(runs_as("Name:\tsleep\n", 5), None);
        let me = getpid().as_raw_nonzero().get();
        assert!(may_be_of(me, geteuid().as_raw()));
        assert!(!may_be_of(me, 4_000_000_000));
        assert!(is_wholly_of(me, geteuid().as_raw()));
        assert_eq!(user_ids(status), Some([1000, 1001, 1000, 1000]));
        assert!(!may_be_of(i32::MAX, geteuid().as_raw()));
    }

    #[test]
    fn an_attempt_without_a_record_is_told_by_its_processes() {
        let key = AttemptKey {
            allocation: AllocationId(12),
            attempt: 3,
        };
        let environment = |mark: &str| {
            format!("A=b\0LATTICE_ALLOCATION_ID=12\0LATTICE_ATTEMPT=3\0{MARK}={mark}\0")
        };
        use super::super::environment::MARK;
        let told = |mark: &str| key_in(environment(mark).as_bytes(), "0a1b");
        assert_eq!(told("0a1b-ffff"), Some(key));
        // Another agent's, or one of a build that did not name its agent.
        assert_eq!(told("0a1bc-ffff"), None);
        assert_eq!(told("ffff"), None);
        let attempts = Path::new("/data/executor/attempts");
        let command = |text: &str| supervised(text.as_bytes(), attempts);
        let line = "/proc/self/exe\0__supervise\0/data/executor/attempts/12.3\0";
        assert_eq!(command(line), Some(key));
        assert_eq!(command("a\0__supervise\0/other/attempts/12.3\0"), None);
        assert_eq!(command("a\0b\0/data/executor/attempts/12.3\0"), None);
    }
}
