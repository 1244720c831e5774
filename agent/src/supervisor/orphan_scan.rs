//! Process search: finds processes of an attempt after its supervisor has died.

use super::processes::cgroup::Cgroup;
use super::processes::process_tree::{Process, all_processes};
use crate::attempt::{Attempts, LaunchRecord, StartedRecord, SupervisorRecord};
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::AllocationId;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Processes of an attempt that outlived their supervisor.
#[derive(Debug, Default)]
pub(crate) struct OrphanProcesses {
    /// Processes with the attempt's mark, in its cgroup, in the session of its first process, or forked from its
    /// supervisor and not executed yet.
    pub(crate) of_attempt: Vec<Process>,
    /// Processes of the attempt's user that started after its supervisor and have an unreadable environment.
    pub(crate) possibly_of_attempt: Vec<Process>,
}

/// Kind of processes to search for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanTarget {
    /// Processes of the job and of its prolog.
    Job,
    /// Processes of the hooks after the job. Hooks run as the agent's user, so their environment is readable. The mark
    /// alone does not suffice: the job had the same mark, which the job's user can read.
    Hooks,
}

/// Finds the remaining processes of the attempt in `folder`: all processes in its cgroup, and others that are not older
/// than its supervisor. The session id counts only while no foreign process leads that session.
pub(crate) fn find_orphans(
    launch: &LaunchRecord,
    supervisor: Option<&SupervisorRecord>,
    started: Option<&StartedRecord>,
    (folder, sought): (&Path, ScanTarget),
) -> io::Result<OrphanProcesses> {
    let mark = format!("{}={}", super::program::environment::MARK, launch.mark).into_bytes();
    let user = launch.become_user.as_ref();
    let uid = user.map_or_else(|| geteuid().as_raw(), |user| user.uid);
    let first_tick = supervisor.map_or(0, |supervisor| supervisor.start_ticks);
    let group = launch.cgroup.as_ref().map(|group| Cgroup::at(&group.path));
    let grouped = group.map_or(Ok(Vec::new()), |group| group.processes())?;
    let grouped: BTreeSet<i32> = grouped.into_iter().collect();
    let found = all_processes()?;
    let session = started.filter(|first| {
        let leader = found.iter().find(|process| process.pid == first.pid);
        leader.is_none_or(|leader| leader.start_ticks == first.start_ticks)
    });
    let in_session = |process: &Process| {
        session.is_some_and(|first| {
            process.session == first.pid && process.start_ticks >= first.start_ticks
        })
    };
    let mut left = OrphanProcesses::default();
    for process in found {
        if grouped.contains(&process.pid) {
            left.of_attempt.push(process);
            continue;
        }
        if process.is_zombie() || process.start_ticks < first_tick {
            continue;
        }
        // Before its exec, a forked process still has the environment of the supervisor, without the mark.
        if is_unexecuted(process.pid, folder)
            && (has_only_uid(process.pid, geteuid().as_raw())
                || sought == ScanTarget::Job && may_run_as(process.pid, uid))
        {
            left.of_attempt.push(process);
            continue;
        }
        if sought == ScanTarget::Hooks {
            let environment = environment(process.pid);
            if process_relation(environment, &mark, || false) == ProcessRelation::OfAttempt
                && has_only_uid(process.pid, geteuid().as_raw())
            {
                left.of_attempt.push(process);
            }
            continue;
        }
        // The session id may have been reused.
        if in_session(&process) && may_run_as(process.pid, uid) {
            left.of_attempt.push(process);
            continue;
        }
        match process_relation(environment(process.pid), &mark, || {
            may_run_as(process.pid, uid)
        }) {
            ProcessRelation::OfAttempt => left.of_attempt.push(process),
            ProcessRelation::Unknown => left.possibly_of_attempt.push(process),
            ProcessRelation::Unrelated => {}
        }
    }
    Ok(left)
}

/// Initial environment of a process. After the end of the first thread, the kernel returns the environment only for the
/// other threads.
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

/// Process of any attempt of this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MarkedProcess {
    pub(crate) key: AttemptKey,
    pub(crate) process: Process,
    /// Whether the process is the attempt's supervisor.
    pub(crate) is_supervisor: bool,
}

/// Finds every process with a mark that begins with `agent`, and every supervisor of an attempt folder in `attempts`.
/// Reads neither the folders nor their records, so both may be gone.
pub(crate) fn find_marked(agent: &str, attempts: &Path) -> io::Result<Vec<MarkedProcess>> {
    let own = geteuid().as_raw();
    let mut found = Vec::new();
    for process in all_processes()?
        .into_iter()
        .filter(|process| !process.is_zombie())
    {
        let by_mark = || attempt_of_environment(&environment(process.pid).ok()?, agent);
        let by_command = || {
            let command = std::fs::read(format!("/proc/{}/cmdline", process.pid));
            let key = attempt_of_command_line(&command.ok()?, attempts)?;
            // Any user can start a process with such a command line.
            has_only_uid(process.pid, own).then_some(key)
        };
        let supervised = by_command();
        if let Some(key) = supervised.or_else(by_mark) {
            found.push(MarkedProcess {
                key,
                process,
                is_supervisor: supervised.is_some(),
            });
        }
    }
    Ok(found)
}

/// Processes of the agent's user with exactly this variable (`NAME=value`) in their initial environment.
pub(crate) fn find_with_variable(variable: &[u8]) -> io::Result<Vec<Process>> {
    let own = geteuid().as_raw();
    let has = |process: &Process| {
        let said = process_relation(environment(process.pid), variable, || false);
        !process.is_zombie() && said == ProcessRelation::OfAttempt && has_only_uid(process.pid, own)
    };
    Ok(all_processes()?.into_iter().filter(has).collect())
}

/// Attempt that an environment names, if its mark belongs to `agent`.
fn attempt_of_environment(environment: &[u8], agent: &str) -> Option<AttemptKey> {
    let value = |name: &str| {
        environment.split(|byte| *byte == 0).find_map(|own| {
            let own = std::str::from_utf8(own).ok()?;
            own.strip_prefix(name)?.strip_prefix('=')
        })
    };
    let is_ours = value(super::program::environment::MARK)?
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

/// Attempt of the supervisor with this command line, if the attempt's folder is in `attempts`.
fn attempt_of_command_line(command: &[u8], attempts: &Path) -> Option<AttemptKey> {
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

/// Whether a process has the command line of a supervisor of `folder`. If that supervisor is dead, the process is a
/// forked copy of the supervisor that hangs before the exec of a job or a hook.
fn is_unexecuted(pid: i32, folder: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline"));
    command.is_ok_and(|command| supervised_folder(&command) == Some(folder))
}

#[derive(Debug, PartialEq, Eq)]
enum ProcessRelation {
    OfAttempt,
    Unrelated,
    Unknown,
}

/// Classifies a process by its environment; `may_be_ours` is called if the environment is unreadable.
fn process_relation(
    environment: io::Result<Vec<u8>>,
    mark: &[u8],
    may_be_ours: impl FnOnce() -> bool,
) -> ProcessRelation {
    match environment {
        Ok(read) if read.split(|byte| *byte == 0).any(|own| own == mark) => {
            ProcessRelation::OfAttempt
        }
        Ok(_) => ProcessRelation::Unrelated,
        Err(_) if may_be_ours() => ProcessRelation::Unknown,
        Err(_) => ProcessRelation::Unrelated,
    }
}

/// Whether a process runs as this user, or has unreadable ids. `false` for a process that has ended.
fn may_run_as(pid: i32, uid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => runs_as(&status, uid).unwrap_or(true),
        Err(error) => {
            let is_gone = error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
            !is_gone
        }
    }
}

/// Whether all user ids of a process are this user's. A process of a set-user-ID program has ids of two users.
fn has_only_uid(pid: i32, uid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| {
        let ids = user_ids(&status);
        ids.is_some_and(|ids| ids.iter().all(|id| *id == uid))
    })
}

/// Real, effective, saved and filesystem user id.
fn user_ids(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let ids: Result<Vec<u32>, _> = line.split_whitespace().map(str::parse).collect();
    ids.ok()?.try_into().ok()
}

/// Whether any of the four user ids equals `uid`.
fn runs_as(status: &str, uid: u32) -> Option<bool> {
    Some(user_ids(status)?.contains(&uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;

    #[test]
    fn unread_process_is_not_foreign() {
        let mark = b"LATTICE_ATTEMPT_MARK=0a1b";
        let read = |text: &[u8]| Ok(text.to_vec());
        let never = || -> bool { unreachable!() };
        let with = b"PATH=/bin\0LATTICE_ATTEMPT_MARK=0a1b\0";
        assert_eq!(
            process_relation(read(with), mark, never),
            ProcessRelation::OfAttempt
        );
        let other = b"PATH=/bin\0LATTICE_ATTEMPT_MARK=0a1bc\0";
        assert_eq!(
            process_relation(read(other), mark, never),
            ProcessRelation::Unrelated
        );
        let denied = || Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(
            process_relation(denied(), mark, || true),
            ProcessRelation::Unknown
        );
        assert_eq!(
            process_relation(denied(), mark, || false),
            ProcessRelation::Unrelated
        );
    }

    #[test]
    fn the_user_of_an_unreadable_process_decides_whether_it_is_waited_for() {
        let status = "Name:\tsleep\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t5\t5\t5\n";
        assert_eq!(runs_as(status, 1001), Some(true));
        assert_eq!(runs_as(status, 5), Some(false));
        assert_eq!(runs_as("Name:\tsleep\n", 5), None);
        let me = getpid().as_raw_nonzero().get();
        assert!(may_run_as(me, geteuid().as_raw()));
        assert!(!may_run_as(me, 4_000_000_000));
        assert!(has_only_uid(me, geteuid().as_raw()));
        assert_eq!(user_ids(status), Some([1000, 1001, 1000, 1000]));
        assert!(!may_run_as(i32::MAX, geteuid().as_raw()));
    }

    #[test]
    fn finds_unrecorded_attempt_by_processes() {
        let key = AttemptKey {
            allocation: AllocationId(12),
            attempt: 3,
        };
        let environment = |mark: &str| {
            format!("A=b\0LATTICE_ALLOCATION_ID=12\0LATTICE_ATTEMPT=3\0{MARK}={mark}\0")
        };
        use super::super::program::environment::MARK;
        let attempt_of = |mark: &str| attempt_of_environment(environment(mark).as_bytes(), "0a1b");
        assert_eq!(attempt_of("0a1b-ffff"), Some(key));
        // The mark of another agent, or of a build without agent ids.
        assert_eq!(attempt_of("0a1bc-ffff"), None);
        assert_eq!(attempt_of("ffff"), None);
        let attempts = Path::new("/data/executor/attempts");
        let command = |text: &str| attempt_of_command_line(text.as_bytes(), attempts);
        let line = "/proc/self/exe\0__supervise\0/data/executor/attempts/12.3\0";
        assert_eq!(command(line), Some(key));
        assert_eq!(command("a\0__supervise\0/other/attempts/12.3\0"), None);
        assert_eq!(command("a\0b\0/data/executor/attempts/12.3\0"), None);
    }
}
