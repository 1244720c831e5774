//! Rank hooks: programs of the site that run before and after a job, with a timeout and captured output. No process of
//! a hook outlives its hook.

use super::deadline::Deadline;
use super::processes::kill::KillLoop;
use super::processes::reap::{exit_of, reap};
use super::start_report::StartReport;
use super::starter::{self, StartCutReason, StartLimits, StartingProcess};
use super::supervisor_log::log_line;
use super::{Signals, capture};
use crate::attempt::{
    AttemptDir, CapturedOutput, ExitRecord, Hook, HookName, LaunchRecord, open_output,
};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::hostlist;
use rustix::fs::Mode;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid, umask};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Search path of hooks.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Maximum captured output of a hook, in bytes.
pub(crate) const OUTPUT_CAP: u64 = 64 << 10;
/// Maximum length of the last output line in a hook's failure reason, in characters.
const MAX_REASON_CHARS: usize = 200;

/// Result of a hook.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HookOutcome {
    Passed,
    /// The hook failed, with the reason.
    Failed(String),
    /// A stop request interrupted the hook.
    Stopped,
}

/// Runs one hook. Processes that the hook leaves behind are ended: a permanent process belongs to the service manager.
/// `end`: result of the job, or `None` for the prolog. A stop request interrupts only the prolog.
pub(super) async fn run(
    dir: &AttemptDir,
    launch: &LaunchRecord,
    (name, hook): (HookName, &Hook),
    end: Option<&ExitRecord>,
    signals: &mut Signals,
) -> HookOutcome {
    let log = dir.hook_log(name);
    let program = hook.program.display();
    let not_started = |error| failed(name, &format!("{program} could not be started: {error}"));
    let (mut starting, output) = match start(&log, launch, (name, hook), end) {
        Ok(starting) => starting,
        Err(error) => return not_started(error),
    };
    let deadline = Instant::now() + Duration::from_millis(hook.timeout_ms);
    let mut fixed = Deadline::fixed(deadline);
    let limits = StartLimits {
        deadline: &mut fixed,
        can_be_stopped: end.is_none(),
        group: None,
    };
    let mut telling = StartReport::of(dir);
    let at = format!("{} {program}", name.as_str());
    let look = |is_killed| telling.report_hang(at.clone(), is_killed);
    let started = starting.wait(signals, limits, look).await;
    telling.clear();
    let mut is_stopped = started.cut == Some(StartCutReason::StopRequested);
    let mut is_late = started.cut == Some(StartCutReason::TimedOut);
    let main = match started.child {
        Ok(main) => main,
        Err(_) if is_stopped => return HookOutcome::Stopped,
        Err(error) => return not_started(error),
    };
    let mut killing = started.cut.map(|_| KillLoop::begin(None));
    let mut status = None;
    loop {
        let reaped = reap(main);
        status = status.or(reaped.main);
        if reaped.none_left {
            break;
        }
        if status.is_some() && killing.is_none() {
            killing = Some(KillLoop::begin(None));
        }
        let wakes_at = killing.as_ref().map_or(deadline, KillLoop::next_kill_at);
        tokio::select! {
            _ = signals.child.recv() => {}
            _ = signals.terminate.recv() => if end.is_none() {
                is_stopped = true;
                killing.get_or_insert_with(|| KillLoop::begin(None));
            },
            () = sleep_until(wakes_at) => match &mut killing {
                Some(killing) => killing.repeat_kill(None),
                None => {
                    is_late = true;
                    killing = Some(KillLoop::begin(None));
                }
            },
        }
    }
    starting.starter.end_thread();
    output.finish().await;
    join_log(&log);
    let what = match status {
        _ if is_stopped => return HookOutcome::Stopped,
        _ if is_late => format!("killed after the timeout of {} s", hook.timeout_ms / 1000),
        Some(status) if status.exit_status() == Some(0) => return HookOutcome::Passed,
        Some(status) => exit_of(status).to_string(),
        None => "exit status lost".to_owned(),
    };
    failed(name, &with_last_line(&what, log.head()))
}

/// Joins the log of a hook to one file, for operators.
fn join_log(log: &CapturedOutput) {
    if let Err(error) = log.join() {
        log_line(format_args!(
            "cannot join the parts of {}: {error}",
            log.head().display()
        ));
    }
}

fn failed(name: HookName, what: &str) -> HookOutcome {
    HookOutcome::Failed(format!("{} failed: {what}", name.as_str()))
}

/// Environment of a hook, without the user's variables, because the hook runs with the agent's rights.
fn environment(
    launch: &LaunchRecord,
    name: HookName,
    end: Option<&ExitRecord>,
) -> Vec<(&'static str, String)> {
    let account = &launch.account;
    let mut all = vec![
        ("PATH", PATH.to_owned()),
        ("LATTICE_HOOK", name.as_str().to_owned()),
        ("LATTICE_ALLOCATION_ID", launch.key.allocation.to_string()),
        ("LATTICE_ATTEMPT", launch.key.attempt.to_string()),
        ("LATTICE_NODE", launch.node.to_string()),
        ("LATTICE_NODELIST", hostlist::fold(&launch.nodes)),
        ("LATTICE_NODE_RANK", launch.rank.to_string()),
        ("LATTICE_PROJECT", launch.project.clone()),
        ("LATTICE_USER", launch.user.clone()),
        ("LATTICE_LOCAL_USER", account.name.clone()),
        ("LATTICE_LOCAL_UID", account.uid.to_string()),
        ("LATTICE_LOCAL_GID", account.gid.to_string()),
        ("LATTICE_SENSITIVE", u8::from(launch.sensitive).to_string()),
        // The mark identifies the hook's processes after this supervisor was killed.
        (super::program::environment::MARK, launch.mark.clone()),
    ];
    if let Some(end) = end {
        let (word, code) = end_words(&end.exit);
        all.push(("LATTICE_JOB_END", word.to_owned()));
        all.push(("LATTICE_JOB_EXIT", code));
    }
    all
}

/// Result of the job as a word, and its exit code in shell convention (empty if there is none).
fn end_words(exit: &RankExit) -> (&'static str, String) {
    match exit {
        RankExit::Exited { code } => ("exited", code.to_string()),
        RankExit::Signaled { signal } => ("signaled", (128 + signal).to_string()),
        RankExit::Walltime => ("walltime", String::new()),
        RankExit::Stopped => ("stopped", String::new()),
        RankExit::SpawnFailed { .. } => ("spawn_failed", String::new()),
        RankExit::Lost { .. } | RankExit::NeverStarted { .. } => ("lost", String::new()),
    }
}

fn start(
    log: &CapturedOutput,
    launch: &LaunchRecord,
    (name, hook): (HookName, &Hook),
    end: Option<&ExitRecord>,
) -> io::Result<(StartingProcess, capture::Capture)> {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let errors: OwnedFd = input.try_clone()?;
    let mut command = Command::new(&hook.program);
    command
        .args(&hook.args)
        .env_clear()
        .envs(&hook.env)
        .envs(environment(launch, name, end))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(input)
        .stderr(errors);
    before_exec(&mut command);
    // Parts that remain from a run with a killed supervisor.
    join_log(log);
    let file = open_output(log.head())?;
    let capture = capture::spawn(output, log.clone(), file, OUTPUT_CAP)?;
    Ok((starter::start(command, (), || {})?, capture))
}

#[expect(
    unsafe_code,
    reason = "pre_exec: nothing else runs between fork and exec"
)]
fn before_exec(command: &mut Command) {
    let supervisor = getpid();
    // SAFETY: as required between fork and exec, the closure makes system calls only (rustix's raw ones), allocates
    // nothing, takes no lock and touches no memory of the parent.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            umask(Mode::from_raw_mode(0o022));
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() == Some(supervisor) {
                Ok(())
            } else {
                Err(io::ErrorKind::Interrupted.into())
            }
        });
    }
}

/// Formats `what: <last line of the log>`.
pub(crate) fn with_last_line(what: &str, log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    match last_line(&text) {
        Some(line) => format!("{what}: {line}"),
        None => what.to_owned(),
    }
}

/// Last line that is not blank, without control characters.
fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let clean = line.trim().chars().filter(|c| !c.is_control());
    Some(clean.take(MAX_REASON_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_is_sanitized_and_short() {
        assert_eq!(last_line(b"a\n b \n\n").as_deref(), Some("b"));
        assert_eq!(last_line(b"\x1b[31mred\x07\n").as_deref(), Some("[31mred"));
        assert_eq!(last_line(b"\n \n"), None);
        let long = "x".repeat(5000);
        assert_eq!(
            last_line(long.as_bytes()).map(|l| l.len()),
            Some(MAX_REASON_CHARS)
        );
    }

    #[test]
    fn exit_code_uses_shell_convention() {
        assert_eq!(
            end_words(&RankExit::Exited { code: 7 }),
            ("exited", "7".to_owned())
        );
        assert_eq!(
            end_words(&RankExit::Signaled { signal: 9 }),
            ("signaled", "137".to_owned())
        );
        assert_eq!(end_words(&RankExit::Walltime), ("walltime", String::new()));
    }
}
