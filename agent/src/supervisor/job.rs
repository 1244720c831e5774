//! Starts the job's first process.

use super::child::{Becomes, Child, Directory, Step};
use super::complain::complain;
use super::environment::environment;
use super::places::Places;
use super::privileges;
use super::script::{self, Script};
use super::starter::{self, Starting};
use crate::attempt::{LaunchRecord, LocalUser};
use rustix::fs::fchown;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Uid, geteuid, getpid};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A job that is about to start.
pub(super) struct Prepared {
    command: Command,
    /// Its child opens it.
    script: Option<Script>,
    job: Job,
}

/// A job, seen by its supervisor.
pub(super) struct Job {
    places: Places,
    steps: OwnedFd,
    step: Option<Step>,
    /// `None`: it writes into a file of the user's.
    pub(super) stdout: Option<OwnedFd>,
    /// As above.
    pub(super) stderr: Option<OwnedFd>,
}

/// Makes everything ready to start it in a session of its own, as the recorded user, in its cgroup
/// (`procs` is that group's `cgroup.procs`), without any privilege to gain. The error is for the
/// user.
pub(super) fn prepare(launch: &LaunchRecord, procs: Option<OwnedFd>) -> Result<Prepared, String> {
    let script: Option<Script> = match &launch.workload.script {
        Some(text) => Some(script::hold(text).map_err(|e| format!("cannot hold the script: {e}"))?),
        None => None,
    };
    let mut argv: Vec<String> = script.as_ref().map(Script::argv).unwrap_or_default();
    argv.extend(launch.workload.argv.iter().cloned());
    let (program, arguments) = argv.split_first().ok_or("there is nothing to run")?;
    let places = Places::of(launch, program)?;
    let (steps, told) =
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| e.to_string())?;
    let child = child(launch, &places, procs, told)?;
    let user = launch.become_user.as_ref();
    let (to_stdout, stdout) = captured(places.stdout.as_ref(), user)?;
    let (to_stderr, stderr) = captured(places.stderr.as_ref(), user)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment(launch)?)
        .stdin(Stdio::null())
        .stdout(to_stdout)
        .stderr(to_stderr);
    before_exec(&mut command, child);
    Ok(Prepared {
        command,
        script,
        job: Job {
            places,
            steps,
            step: None,
            stdout,
            stderr,
        },
    })
}

impl Prepared {
    /// Begins to start it.
    pub(super) fn start(self) -> io::Result<(Starting, Job)> {
        // That thread needs no more than the other one.
        let starting = starter::start(self.command, self.script, privileges::give_up)?;
        Ok((starting, self.job))
    }
}

impl Job {
    /// What its child is at, short of the program's own business.
    pub(super) fn at(&mut self) -> String {
        let step = self.step();
        self.places.at(step)
    }

    /// Why its child gave up.
    pub(super) fn explain(&mut self, error: &io::Error) -> String {
        let step = self.step();
        self.places.explain(step, error)
    }

    /// The last step that was told.
    fn step(&mut self) -> Option<Step> {
        let mut told = [0; 64];
        if let Ok(count) = rustix::io::read(&self.steps, &mut told)
            && let Some(last) = told.get(..count).and_then(<[u8]>::last)
        {
            self.step = Step::of(*last);
        }
        self.step
    }
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
            complain(format_args!(
                "the job cannot open /dev/stdout or /dev/stderr: {error}"
            ));
        }
    }
    Ok((Stdio::from(to), Some(OwnedFd::from(from))))
}

fn child(
    launch: &LaunchRecord,
    places: &Places,
    cgroup: Option<OwnedFd>,
    steps: OwnedFd,
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
        steps,
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
        command.pre_exec(move || Ok(child.become_job()?));
    }
}
