//! Whose a process is, where no supervisor lives that it is below of.

use super::cgroup::Cgroup;
use super::family::{Process, all};
use crate::attempt::{Attempts, LaunchRecord, StartedRecord, SupervisorRecord};
use lattice_quorum_types::AllocationId;
use lattice_quorum_types::wire::AttemptKey;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

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

/// The agent's user's own processes that were started with exactly this variable (`NAME=value`).
pub(crate) fn with_variable(variable: &[u8]) -> io::Result<Vec<Process>> {
    let own = geteuid().as_raw();
    let has = |process: &Process| {
        let said = kin(environment(process.pid), variable, || false);
        !process.is_gone() && said == Kin::Ours && is_wholly_of(process.pid, own)
    };
    Ok(all()?.into_iter().filter(has).collect())
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
    use super::*;
    use rustix::process::getpid;

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
