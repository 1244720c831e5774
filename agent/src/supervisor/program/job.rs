//! First process of the job.

use super::child::{Child, ChildUser, Step};
use super::environment::environment;
use super::job_paths::JobPaths;
use super::privileges;
use super::script::{self, Script};
use crate::attempt::{LaunchRecord, LocalUser};
use crate::supervisor::starter::{self, StartingProcess};
use crate::supervisor::supervisor_log::log_line;
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

/// Job that is ready to start.
pub(in crate::supervisor) struct PreparedJob {
    command: Command,
    /// Script that the child opens.
    script: Option<Script>,
    job: Job,
}

/// Supervisor's side of a job.
pub(in crate::supervisor) struct Job {
    places: JobPaths,
    steps: OwnedFd,
    step: Option<Step>,
    /// Read end of the output pipe; `None`: the job writes into a file of the user.
    pub(in crate::supervisor) stdout: Option<OwnedFd>,
    /// Read end of the error pipe; `None`: the job writes into a file of the user.
    pub(in crate::supervisor) stderr: Option<OwnedFd>,
}

/// Prepares the start in a separate session, as the recorded user, in the job's cgroup (`procs` is its `cgroup.procs`),
/// without a way to gain privileges. The error text is for the user.
pub(in crate::supervisor) fn prepare(
    launch: &LaunchRecord,
    procs: Option<OwnedFd>,
) -> Result<PreparedJob, String> {
    let script: Option<Script> = match &launch.workload.script {
        Some(text) => Some(
            script::create_sealed(text)
                .map_err(|e| format!("cannot create the script file in memory: {e}"))?,
        ),
        None => None,
    };
    let mut argv: Vec<String> = script.as_ref().map(Script::argv).unwrap_or_default();
    argv.extend(launch.workload.argv.iter().cloned());
    let (program, arguments) = argv
        .split_first()
        .ok_or("the job has neither a program nor a script")?;
    let places = JobPaths::of(launch, program)?;
    let (steps, step_sink) =
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| e.to_string())?;
    let child = child(launch, &places, procs, step_sink)?;
    let user = launch.become_user.as_ref();
    let (to_stdout, stdout) = output_stream(places.stdout.as_ref(), user)?;
    let (to_stderr, stderr) = output_stream(places.stderr.as_ref(), user)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment(launch)?)
        .stdin(Stdio::null())
        .stdout(to_stdout)
        .stderr(to_stderr);
    before_exec(&mut command, child);
    Ok(PreparedJob {
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

impl PreparedJob {
    /// Starts the process.
    pub(in crate::supervisor) fn start(self) -> io::Result<(StartingProcess, Job)> {
        // The forking thread needs no more privileges than the main thread.
        let starting = starter::start(self.command, self.script, privileges::drop_except_kill)?;
        Ok((starting, self.job))
    }
}

impl Job {
    /// Text for the present step of the child before its program runs.
    pub(in crate::supervisor) fn step_text(&mut self) -> String {
        let step = self.step();
        self.places.step_text(step)
    }

    /// Reason that the child failed.
    pub(in crate::supervisor) fn explain(&mut self, error: &io::Error) -> String {
        let step = self.step();
        self.places.explain(step, error)
    }

    /// Last reported step.
    fn step(&mut self) -> Option<Step> {
        let mut steps_read = [0; 64];
        if let Ok(count) = rustix::io::read(&self.steps, &mut steps_read)
            && let Some(last) = steps_read.get(..count).and_then(<[u8]>::last)
        {
            self.step = Step::of(*last);
        }
        self.step
    }
}

/// Output stream for the job, and the read end of its pipe; no pipe if the output goes to a file. The user owns the
/// pipe: only the owner of a pipe can open it again, as `/dev/stderr` does.
fn output_stream(
    file: Option<&PathBuf>,
    user: Option<&LocalUser>,
) -> Result<(Stdio, Option<OwnedFd>), String> {
    if file.is_some() {
        return Ok((Stdio::null(), None));
    }
    let (from, to) = io::pipe()
        .map_err(|error| format!("cannot create a pipe for the job's output: {error}"))?;
    if let Some(user) = user.filter(|user| user.uid != u32::MAX && user.gid != u32::MAX) {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        if let Err(error) = fchown(&to, Some(uid), Some(gid)) {
            log_line(format_args!(
                "the job cannot open /dev/stdout or /dev/stderr: {error}"
            ));
        }
    }
    Ok((Stdio::from(to), Some(OwnedFd::from(from))))
}

fn child(
    launch: &LaunchRecord,
    places: &JobPaths,
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
        Some(user) => Some(ChildUser::of(user).ok_or_else(|| {
            let (name, uid, gid) = (&user.name, user.uid, user.gid);
            format!("user {name} (uid {uid}, gid {gid}) cannot run jobs: root and id 4294967295 are not permitted")
        })?),
        // A record without a user is valid only if the agent is not root.
        None if geteuid().is_root() => {
            return Err("the launch record names no user, and jobs never run as root".to_owned());
        }
        None => None,
    };
    Ok(Child {
        supervisor: getpid(),
        cgroup,
        user,
        directory,
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
    // SAFETY: as required between fork and exec, the closure makes system calls only (rustix's raw ones), allocates
    // nothing, takes no lock and touches no memory of the parent.
    unsafe {
        command.pre_exec(move || Ok(child.become_job()?));
    }
}
