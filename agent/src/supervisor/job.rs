//! Starts the job's first process.

use super::script::{self, Script};
use crate::attempt::LaunchRecord;
use lattice_quorum_types::hostlist;
use rustix::fs::Mode;
use rustix::process::{
    Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid, umask,
};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where programs are looked for unless the user says otherwise.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A started job.
pub(super) struct Job {
    pub(super) pid: Pid,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// The variable with [`LaunchRecord::mark`].
pub(super) const MARK: &str = "LATTICE_ATTEMPT_MARK";

/// A minimal environment, then the user's, then what only we may say.
pub(super) fn environment(launch: &LaunchRecord) -> Result<Vec<(String, String)>, String> {
    let account = &launch.account;
    let mut all = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), account.home.display().to_string()),
        ("SHELL".to_owned(), account.shell.display().to_string()),
        ("USER".to_owned(), account.name.clone()),
        ("LOGNAME".to_owned(), account.name.clone()),
    ];
    for (name, value) in &launch.workload.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("{name:?} cannot be an environment variable"));
        }
        all.push((name.clone(), value.clone()));
    }
    let ours = [
        ("LATTICE_ALLOCATION_ID", launch.key.allocation.to_string()),
        ("LATTICE_ATTEMPT", launch.key.attempt.to_string()),
        ("LATTICE_NODE", launch.node.to_string()),
        ("LATTICE_NODELIST", hostlist::fold(&launch.nodes)),
        ("LATTICE_NODE_RANK", launch.rank.to_string()),
        ("LATTICE_NNODES", launch.nodes.len().to_string()),
        ("LATTICE_PROJECT", launch.project.clone()),
        ("LATTICE_USER", launch.user.clone()),
        (MARK, launch.mark.clone()),
    ];
    for (name, value) in ours {
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

fn working_dir(launch: &LaunchRecord) -> PathBuf {
    if let Some(dir) = &launch.workload.working_dir {
        return PathBuf::from(dir);
    }
    let home = &launch.account.home;
    if home.is_dir() {
        home.clone()
    } else {
        PathBuf::from("/")
    }
}

/// Starts it in a session of its own, as the recorded user, without any privilege to gain.
/// The error is for the user.
pub(super) fn spawn(launch: &LaunchRecord) -> Result<Job, String> {
    let script: Option<Script> = match &launch.workload.script {
        Some(text) => Some(script::hold(text).map_err(|e| format!("cannot hold the script: {e}"))?),
        None => None,
    };
    let mut argv: Vec<String> = script.as_ref().map(Script::argv).unwrap_or_default();
    argv.extend(launch.workload.argv.iter().cloned());
    let (program, arguments) = argv.split_first().ok_or("there is nothing to run")?;
    let dir = working_dir(launch);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment(launch)?)
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(user) = &launch.become_user {
        // Setting a uid as root also drops every supplementary group.
        command.uid(user.uid).gid(user.gid);
    }
    detach(&mut command);
    let mut child = command
        .spawn()
        .map_err(|error| explain(program, &dir, &error))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    match (pid, child.stdout.take(), child.stderr.take()) {
        (Some(pid), Some(stdout), Some(stderr)) => Ok(Job {
            pid,
            stdout: stdout.into(),
            stderr: stderr.into(),
        }),
        _ => Err(format!("{program} was started without pipes")),
    }
}

/// After the change of user and before the program: a session, no way to gain privileges, and
/// death with the supervisor.
#[expect(
    unsafe_code,
    reason = "pre_exec: nothing else runs between fork and exec"
)]
fn detach(command: &mut Command) {
    let supervisor = getpid();
    // SAFETY: the closure makes system calls only (rustix's raw ones): it allocates nothing,
    // takes no lock and touches no memory of the parent, as between fork and exec it must.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            rustix::thread::set_no_new_privs(true)?;
            // Ours is private; the job's files are its user's business.
            umask(Mode::from_raw_mode(0o022));
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have died before the line above took effect.
            if getppid() == Some(supervisor) {
                Ok(())
            } else {
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
    }
}

fn explain(program: &str, dir: &std::path::Path, error: &std::io::Error) -> String {
    if !dir.is_dir() {
        return format!("working directory {}: {error}", dir.display());
    }
    format!("{program}: {error}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::attempt::LocalUser;
    use lattice_quorum_types::spec::Workload;
    use lattice_quorum_types::wire::AttemptKey;
    use lattice_quorum_types::{AllocationId, NodeId, Revision, UnixMillis};
    use std::collections::BTreeMap;

    fn launch(env: &[(&str, &str)]) -> LaunchRecord {
        let node = |name: &str| NodeId::new(name).unwrap();
        LaunchRecord {
            key: AttemptKey {
                allocation: AllocationId(12),
                attempt: 3,
            },
            epoch: 1,
            revision: Revision(9),
            user: "alice".to_owned(),
            project: "atlas/web".to_owned(),
            nodes: vec![node("gpu002"), node("gpu001"), node("gpu003")],
            node: node("gpu001"),
            rank: 1,
            workload: Workload {
                argv: vec!["true".to_owned()],
                env: env
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
                ..Workload::default()
            },
            walltime_ms: None,
            become_user: None,
            account: LocalUser {
                name: "alice".to_owned(),
                uid: 1000,
                gid: 1000,
                home: "/home/alice".into(),
                shell: "/bin/sh".into(),
            },
            output_cap_bytes: 1,
            grace_ms: 1,
            mark: "0a1b".to_owned(),
            boot_id: String::new(),
            recorded_at: UnixMillis(0),
        }
    }

    #[test]
    fn the_user_adds_to_the_environment_but_cannot_forge_our_part() {
        let launch = launch(&[
            ("PATH", "/opt/bin"),
            ("LATTICE_NODE_RANK", "0"),
            ("A", "b=c"),
        ]);
        let all: BTreeMap<_, _> = environment(&launch).unwrap().into_iter().collect();
        assert_eq!(all["PATH"], "/opt/bin");
        assert_eq!(all["A"], "b=c");
        assert_eq!(all["LATTICE_NODE_RANK"], "1");
        assert_eq!(all["LATTICE_NODELIST"], "gpu[001-003]");
        assert_eq!(all["LATTICE_NNODES"], "3");
        assert_eq!(all["LATTICE_ALLOCATION_ID"], "12");
        assert_eq!(all["LATTICE_PROJECT"], "atlas/web");
    }

    #[test]
    fn a_name_that_is_no_variable_is_refused() {
        for name in ["", "A=B", "A\0"] {
            assert!(environment(&launch(&[(name, "x")])).is_err(), "{name:?}");
        }
    }
}
