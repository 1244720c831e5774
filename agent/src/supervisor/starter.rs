//! Process start on a separate thread.
//!
//! `spawn` returns after the child's exec has succeeded or failed. Until then, `spawn` may block as long as a
//! filesystem does. Meanwhile the walltime may end, and a stop request may arrive.

use super::Signals;
use super::deadline::Deadline;
use super::processes::cgroup::Cgroup;
use super::processes::kill::KillLoop;
use rustix::process::Pid;
use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// Duration from which a start is reported as hanging.
const HANG_REPORT_DELAY: Duration = Duration::from_secs(5);
/// Pause between two reports of a hanging start.
const HANG_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Thread that forked the child. The thread must stay alive: the kernel sends the parent-death signal when the *thread*
/// that forked ends, not when the process of that thread ends.
pub(super) struct Starter {
    keep_alive: mpsc::Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Starter {
    /// Ends the thread. To be called after the child has ended.
    pub(super) fn end_thread(self) {
        drop(self.keep_alive);
        let _ = self.thread.join();
    }
}

/// Process that is being started.
pub(super) struct StartingProcess {
    child: oneshot::Receiver<io::Result<Pid>>,
    pub(super) starter: Starter,
}

/// Reason that a start was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartCutReason {
    /// A stop was requested.
    StopRequested,
    /// The time limit was reached.
    TimedOut,
}

/// Conditions that cut a start short.
pub(super) struct StartLimits<'a> {
    pub(super) deadline: &'a mut Deadline,
    /// Whether a stop request cuts the start short.
    pub(super) can_be_stopped: bool,
    /// Cgroup to kill in addition to the descendants of this process.
    pub(super) group: Option<&'a Cgroup>,
}

/// Result of a start.
pub(super) struct StartResult {
    /// Process, which may have been killed before it executed the program. The process of a failed start is reaped.
    pub(super) child: io::Result<Pid>,
    /// Reason for SIGKILL, if it was sent.
    pub(super) cut: Option<StartCutReason>,
}

/// Starts `command` on a separate thread. `held` is kept until the program runs or the start has failed. `then` is
/// called on that thread before the result is sent.
pub(super) fn start(
    mut command: Command,
    held: impl Send + 'static,
    then: fn(),
) -> io::Result<StartingProcess> {
    let (tell, child) = oneshot::channel();
    let (stays, leave) = mpsc::channel::<Infallible>();
    let thread = Builder::new().name("starter".to_owned()).spawn(move || {
        let started = command.spawn();
        // The command's ends of the pipes would keep the pipes open.
        drop((command, held));
        then();
        let _ = tell.send(started.and_then(|child| pid_of(&child)));
        // The channel carries no message: the thread stays until the sender is dropped.
        let _ = leave.recv();
    })?;
    let starter = Starter {
        keep_alive: stays,
        thread,
    };
    Ok(StartingProcess { child, starter })
}

fn pid_of(child: &std::process::Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the child has no process id"))
}

impl StartingProcess {
    /// Waits until the program runs or the start has failed. Reaps no process meanwhile: `spawn` itself waits for a
    /// failed child. While the start hangs, calls `look` repeatedly; the argument is whether SIGKILL was sent.
    pub(super) async fn wait(
        &mut self,
        signals: &mut Signals,
        limits: StartLimits<'_>,
        mut look: impl FnMut(bool),
    ) -> StartResult {
        let mut cut: Option<(StartCutReason, KillLoop)> = None;
        let mut look_at = Instant::now() + HANG_REPORT_DELAY;
        let group = limits.group;
        // A process that was just killed gets time to end before it is reported as stuck.
        let cut_short = |why, look_at: &mut Instant| {
            *look_at = (*look_at).max(Instant::now() + HANG_REPORT_INTERVAL);
            Some((why, KillLoop::begin(group)))
        };
        loop {
            let killing = cut.as_ref().map(|(_, killing)| killing.next_kill_at());
            let is_due = async {
                match killing {
                    Some(again_at) => sleep_until(again_at).await,
                    None => limits.deadline.passed().await,
                }
            };
            tokio::select! {
                child = &mut self.child => {
                    let gone = || Err(io::Error::other("the starter thread ended unexpectedly"));
                    return StartResult {
                        child: child.unwrap_or_else(|_| gone()),
                        cut: cut.map(|(why, _)| why),
                    };
                }
                _ = signals.terminate.recv(), if limits.can_be_stopped && cut.is_none() => {
                    cut = cut_short(StartCutReason::StopRequested, &mut look_at);
                }
                () = is_due => match &mut cut {
                    Some((_, killing)) => killing.repeat_kill(group),
                    None => cut = cut_short(StartCutReason::TimedOut, &mut look_at),
                },
                () = sleep_until(look_at) => {
                    look(cut.is_some());
                    look_at = Instant::now() + HANG_REPORT_INTERVAL;
                }
            }
        }
    }
}
