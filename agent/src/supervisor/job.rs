//! Starts the job's first process.

use super::child::{Becomes, Child, Directory, Step};
use super::script::{self, Script};
use crate::attempt::{LaunchRecord, LocalUser};
use lattice_quorum_types::hostlist;
use lattice_quorum_types::spec::OutputFiles;
use lattice_quorum_types::wire::LogStream;
use rustix::fs::fchown;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Pid, Uid, geteuid, getpid};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where programs are looked for unless the user says otherwise.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A started job.
pub(super) struct Job {
    pub(super) pid: Pid,
    /// `None`: it writes into a file of the user's.
    pub(super) stdout: Option<OwnedFd>,
    /// As above.
    pub(super) stderr: Option<OwnedFd>,
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

/// Where a rank begins, as a path.
fn working_dir(launch: &LaunchRecord) -> PathBuf {
    match &launch.workload.working_dir {
        Some(dir) => PathBuf::from(dir),
        None => launch.account.home.clone(),
    }
}

/// The file of the user's that an output goes to, where there is one.
pub(super) fn output_file(
    launch: &LaunchRecord,
    stream: LogStream,
) -> Result<Option<PathBuf>, String> {
    let files = &launch.workload.output;
    let wanted = match stream {
        LogStream::Stdout => &files.stdout,
        LogStream::Stderr => &files.stderr,
    };
    let Some(pattern) = wanted else {
        return Ok(None);
    };
    let path = OutputFiles::file_of(pattern, launch.key.allocation, launch.rank, &launch.node)
        .map_err(|why| format!("output file {pattern}: {why}"))?;
    Ok(Some(working_dir(launch).join(path)))
}

/// What a child works with, as the person who submitted it knows it.
struct Places {
    program: String,
    directory: PathBuf,
    stdout: Option<PathBuf>,
    stderr: Option<PathBuf>,
    user: String,
}

/// Starts it in a session of its own, as the recorded user, in its cgroup (`procs` is that
/// group's `cgroup.procs`), without any privilege to gain. The error is for the user.
pub(super) fn spawn(launch: &LaunchRecord, procs: Option<OwnedFd>) -> Result<Job, String> {
    let script: Option<Script> = match &launch.workload.script {
        Some(text) => Some(script::hold(text).map_err(|e| format!("cannot hold the script: {e}"))?),
        None => None,
    };
    let mut argv: Vec<String> = script.as_ref().map(Script::argv).unwrap_or_default();
    argv.extend(launch.workload.argv.iter().cloned());
    let (program, arguments) = argv.split_first().ok_or("there is nothing to run")?;
    let places = Places {
        program: program.clone(),
        directory: working_dir(launch),
        stdout: output_file(launch, LogStream::Stdout)?,
        stderr: output_file(launch, LogStream::Stderr)?,
        user: launch.account.name.clone(),
    };
    let (complaints, complain) =
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| e.to_string())?;
    let child = prepare(launch, &places, procs, complain)?;
    let user = launch.become_user.as_ref();
    let (stdout, from_stdout) = captured(places.stdout.as_ref(), user)?;
    let (stderr, from_stderr) = captured(places.stderr.as_ref(), user)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment(launch)?)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    before_exec(&mut command, child);
    let started = command.spawn();
    let child = started.map_err(|error| places.explain(complaint(&complaints), &error))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Job {
        pid: pid.ok_or_else(|| format!("{program} has no process id"))?,
        stdout: from_stdout,
        stderr: from_stderr,
    })
}

/// What the job writes to, and where that is read; nothing is where the output goes to a file.
/// The pipe belongs to the user: only its owner can open it once more, as `/dev/stderr` does.
fn captured(
    file: Option<&PathBuf>,
    user: Option<&LocalUser>,
) -> Result<(Stdio, Option<OwnedFd>), String> {
    if file.is_some() {
        return Ok((Stdio::null(), None));
    }
    let (from, to) = io::pipe().map_err(|error| format!("no pipe for its output: {error}"))?;
    if let Some(user) = user.filter(|user| user.uid != u32::MAX && user.gid != u32::MAX) {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        if let Err(error) = fchown(&to, Some(uid), Some(gid)) {
            eprintln!("the job cannot open /dev/stdout or /dev/stderr: {error}");
        }
    }
    Ok((Stdio::from(to), Some(OwnedFd::from(from))))
}

fn prepare(
    launch: &LaunchRecord,
    places: &Places,
    cgroup: Option<OwnedFd>,
    complaints: OwnedFd,
) -> Result<Child, String> {
    let text = |path: &Path| {
        let text = CString::new(path.as_os_str().as_bytes());
        text.map_err(|_| format!("{} cannot be a path", path.display()))
    };
    let of_file = |file: &Option<PathBuf>| file.as_deref().map(text).transpose();
    let directory = text(&places.directory)?;
    let user = match &launch.become_user {
        Some(user) => Some(Becomes::of(user).ok_or_else(|| {
            let (name, uid, gid) = (&user.name, user.uid, user.gid);
            format!("no work runs as {name} (uid {uid}, gid {gid})")
        })?),
        // The record says so only where the agent is not root.
        None if geteuid().is_root() => {
            return Err("its record names no user to become, and no work runs as root".to_owned());
        }
        None => None,
    };
    Ok(Child {
        supervisor: getpid(),
        cgroup,
        user,
        directory: match launch.workload.working_dir {
            Some(_) => Directory::Wanted(directory),
            None => Directory::Home(directory),
        },
        stdout: of_file(&places.stdout)?,
        stderr: of_file(&places.stderr)?,
        complaints,
    })
}

#[expect(
    unsafe_code,
    reason = "pre_exec: nothing else runs between fork and exec"
)]
fn before_exec(command: &mut Command, child: Child) {
    // SAFETY: the closure makes system calls only (rustix's raw ones): it allocates nothing,
    // takes no lock and touches no memory of the parent, as between fork and exec it must.
    unsafe {
        command.pre_exec(move || child.become_job());
    }
}

/// What the child said before it gave up; nothing if it came as far as the program.
fn complaint(complaints: &OwnedFd) -> Option<Step> {
    let mut byte = [0];
    match rustix::io::read(complaints, &mut byte) {
        Ok(1) => Step::of(byte[0]),
        _ => None,
    }
}

impl Places {
    fn explain(&self, step: Option<Step>, error: &io::Error) -> String {
        let file = |path: &Option<PathBuf>| {
            let path = path.as_deref().unwrap_or(Path::new("-")).display();
            match error
                .raw_os_error()
                .map(rustix::io::Errno::from_raw_os_error)
            {
                Some(rustix::io::Errno::LOOP) => {
                    format!("output file {path}: it is a link, and links are not followed")
                }
                Some(rustix::io::Errno::NXIO) => {
                    format!("output file {path}: it is neither a file nor a device")
                }
                _ => format!("output file {path}: {error}"),
            }
        };
        match step {
            None => format!("{}: {error}", self.program),
            Some(Step::Session | Step::Parent) => format!("its supervisor went: {error}"),
            Some(Step::Cgroup) => format!("it cannot enter its cgroup: {error}"),
            Some(Step::User) => format!("it cannot become {}: {error}", self.user),
            Some(Step::Privileges) => format!("it cannot give up privileges: {error}"),
            Some(Step::Directory) => {
                format!("working directory {}: {error}", self.directory.display())
            }
            Some(Step::Stdout) => file(&self.stdout),
            Some(Step::Stderr) => file(&self.stderr),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::attempt::RankHooks;
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
            sensitive: false,
            hooks: RankHooks::default(),
            cgroup: None,
            become_user: None,
            account: LocalUser {
                name: "alice".to_owned(),
                uid: 1000,
                gid: 1000,
                groups: Vec::new(),
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

    #[test]
    fn an_output_file_is_below_the_working_directory_and_knows_its_rank() {
        let mut launch = launch(&[]);
        launch.workload.output.stdout = Some("out/%j.%r-%n%%".to_owned());
        let path = |launch: &LaunchRecord| output_file(launch, LogStream::Stdout);
        let expected = PathBuf::from("/home/alice/out/12.1-gpu001%");
        assert_eq!(path(&launch), Ok(Some(expected)));
        launch.workload.working_dir = Some("/scratch".to_owned());
        launch.workload.output.stdout = Some("/var/tmp/o".to_owned());
        assert_eq!(path(&launch), Ok(Some(PathBuf::from("/var/tmp/o"))));
        assert_eq!(output_file(&launch, LogStream::Stderr), Ok(None));
        for wrong in ["", "a%", "a%u"] {
            launch.workload.output.stdout = Some(wrong.to_owned());
            assert!(path(&launch).is_err(), "{wrong}");
        }
    }
}
