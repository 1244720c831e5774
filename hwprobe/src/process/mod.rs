//! Runs external programs within a deadline and a limit on the output.
//!
//! Each program gets its own process group, so that a kill includes its children; in a disposable process, programs
//! stay in the group of that process ([`stay_in_group`]). A program that cannot be killed (stuck in a driver call in
//! the kernel) is left to a waiting thread and counted in [`UnreapedPrograms`]. At the limit of that count, no further
//! program starts.

mod stuck;

pub(crate) use stuck::{MAX_STUCK_GROUPS, StuckProcesses};

use lattice_conformance::text;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum length of a program's standard error that is kept, in bytes.
pub(crate) const MAX_STDERR_BYTES: u64 = 4 << 10;
/// Time to reap a killed or finished program in the foreground.
const REAP_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of programs stuck in the kernel at which no further one starts.
const MAX_STUCK_PROGRAMS: usize = 2;

/// Whether programs started here stay in the process group of this process.
static STAYS_IN_GROUP: AtomicBool = AtomicBool::new(false);

/// Keeps programs started from now on in the process group of this disposable process. The parent can then kill the
/// entire group, even if this process is stuck.
pub(crate) fn stay_in_group() {
    STAYS_IN_GROUP.store(true, Ordering::Release);
}

/// Makes the kernel kill this process when its parent dies, so that a child does not outlive a killed agent.
pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Killed programs that still exist, shared by all clones of a host.
#[derive(Clone, Debug, Default)]
pub struct UnreapedPrograms(Arc<AtomicUsize>);

impl UnreapedPrograms {
    /// Number of killed programs that still exist.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Limits for one run of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time after which the program is killed, from its start.
    pub deadline: Duration,
    /// Maximum length of the answer, in bytes.
    pub max_output_bytes: u64,
}

/// A program that exited by itself.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    /// Standard output of the program.
    pub stdout: Vec<u8>,
    /// Exit status of the program.
    pub status: ExitStatus,
    /// Start of the program's standard error.
    pub stderr: Vec<u8>,
}

/// Reason for a missing answer of a program.
#[derive(Debug)]
pub(crate) enum RunFailure {
    /// The program could not be started, or no thread could be started to read its answer.
    NotStarted(io::Error),
    /// The deadline passed, or too many other programs are stuck.
    TimedOut,
    /// The program exceeded the output limit and was killed.
    TooLong,
}

impl ProgramOutput {
    /// The exit status and the first line of standard error as one line: `what` ended with …: ….
    pub(crate) fn failure_text(&self, what: &str) -> String {
        let said = String::from_utf8_lossy(&self.stderr);
        let said = said.lines().map(text::collapse).find(|l| !l.is_empty());
        match said {
            Some(said) => format!("{what} ended with {}: {said}", self.status),
            None => format!("{what} ended with {}", self.status),
        }
    }
}

/// Runs `command` until it exits or reaches a limit.
pub(crate) fn run(
    mut command: Command,
    bounds: Bounds,
    outstanding: &UnreapedPrograms,
) -> Result<ProgramOutput, RunFailure> {
    if outstanding.count() >= MAX_STUCK_PROGRAMS {
        return Err(RunFailure::TimedOut);
    }
    let ends_at = Instant::now() + bounds.deadline;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !STAYS_IN_GROUP.load(Ordering::Acquire) {
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(RunFailure::NotStarted)?;
    let answer = drain(child.stdout.take(), bounds.max_output_bytes);
    let complaints = drain(child.stderr.take(), MAX_STDERR_BYTES);
    let stopped = match answer.recv_timeout(bounds.deadline) {
        Ok(PipeBytes::All(answer)) => {
            let ends_at = ends_at.max(Instant::now() + REAP_TIMEOUT);
            match wait_until(&mut child, ends_at) {
                Some(status) => {
                    return Ok(ProgramOutput {
                        stdout: answer,
                        status,
                        stderr: complaints
                            .recv_timeout(REAP_TIMEOUT)
                            .map_or_else(|_| Vec::new(), PipeBytes::bytes),
                    });
                }
                None => RunFailure::TimedOut,
            }
        }
        Ok(PipeBytes::More(_)) => RunFailure::TooLong,
        Err(RecvTimeoutError::Timeout) => RunFailure::TimedOut,
        Err(RecvTimeoutError::Disconnected) => {
            RunFailure::NotStarted(io::Error::other("no thread to read its answer"))
        }
    };
    kill_and_reap(child, outstanding);
    Err(stopped)
}

/// The bytes read from a pipe.
enum PipeBytes {
    /// The complete content.
    All(Vec<u8>),
    /// The first part of a longer content.
    More(Vec<u8>),
}

impl PipeBytes {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::All(bytes) | Self::More(bytes) => bytes,
        }
    }
}

/// Reads a pipe to its end on a separate thread. Returns early once there are more than `most` bytes. The thread ends
/// when the last writer has closed the pipe.
fn drain(pipe: Option<impl Read + Send + 'static>, most: u64) -> Receiver<PipeBytes> {
    let (sender, receiver) = channel();
    let Some(mut pipe) = pipe else {
        return receiver;
    };
    let reader = move || {
        let mut kept = Vec::new();
        // A read error ends the answer early; the parser of the answer reports it.
        let _ = pipe.by_ref().take(most + 1).read_to_end(&mut kept);
        let is_more = kept.len() as u64 > most;
        let _ = sender.send(if is_more {
            PipeBytes::More(kept)
        } else {
            PipeBytes::All(kept)
        });
        // Without a reader the program would block at a full pipe and never exit.
        let _ = io::copy(&mut pipe, &mut io::sink());
    };
    // Without a thread the sender is dropped, and the caller sees a closed channel.
    let _ = thread::Builder::new()
        .name("probe-drain".to_owned())
        .spawn(reader);
    receiver
}

/// Polls for the exit until `ends_at`: the standard library has no wait with a timeout.
fn wait_until(child: &mut Child, ends_at: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < ends_at => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(10));
            }
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Kills a child, with its process group unless the child is in the group of this process, and reaps the child, in the
/// background if the child is stuck.
///
/// Only this function and `wait_until` reap children, so the process id cannot have been reused.
fn kill_and_reap(mut child: Child, outstanding: &UnreapedPrograms) {
    if !STAYS_IN_GROUP.load(Ordering::Acquire)
        && let Ok(id) = i32::try_from(child.id())
        && let Some(group) = Pid::from_raw(id)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    if wait_until(&mut child, Instant::now() + REAP_TIMEOUT).is_some() {
        return;
    }
    let count = Arc::clone(&outstanding.0);
    count.fetch_add(1, Ordering::AcqRel);
    let reaper = move || {
        let _ = child.wait();
        count.fetch_sub(1, Ordering::AcqRel);
    };
    // Without a thread the child stays counted: no further child is better than many stuck ones.
    let _ = thread::Builder::new()
        .name("probe-reap".to_owned())
        .spawn(reaper);
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn while_too_many_children_are_stuck_no_further_one_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("started");
        let bounds = Bounds {
            deadline: LONG,
            max_output_bytes: 100,
        };
        let touch = || shell(&format!("touch {}", mark.display()));
        let outstanding = UnreapedPrograms::default();
        outstanding.0.store(MAX_STUCK_PROGRAMS, Ordering::Release);
        let started_at = Instant::now();
        let refused = run(touch(), bounds, &outstanding);
        assert!(matches!(refused, Err(RunFailure::TimedOut)), "{refused:?}");
        assert!(started_at.elapsed() < LONG);
        assert!(!mark.exists());
        outstanding.0.store(0, Ordering::Release);
        run(touch(), bounds, &outstanding).unwrap();
        assert!(mark.exists());
        assert_eq!(outstanding.count(), 0);
    }

    #[test]
    fn an_answer_may_be_as_long_as_its_bound_and_no_byte_longer() {
        let outstanding = UnreapedPrograms::default();
        let bounds = Bounds {
            deadline: LONG,
            max_output_bytes: 5,
        };
        let exact = run(shell("printf 12345; echo bad >&2"), bounds, &outstanding).unwrap();
        assert_eq!(exact.stdout, b"12345");
        assert_eq!(exact.stderr, b"bad\n");
        let longer = run(shell("printf 123456; exec sleep 600"), bounds, &outstanding);
        assert!(matches!(longer, Err(RunFailure::TooLong)), "{longer:?}");
    }
}
