//! Job supervision, from the start of a job to the end of its last process.

use super::capture::Capture;
use super::cgroup::Cgroup;
use super::checkpoint::Checkpoints;
use super::deadline::Deadline;
use super::starter::Starter;
use super::{Signals, process_tree};
use crate::attempt::LaunchRecord;
use lattice_quorum_types::allocation::RankExit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Time between SIGTERM and SIGKILL for processes that outlive the job's first process, unless the configured grace is
/// shorter.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// First pause before SIGKILL is repeated: processes may have started between listing and signalling.
const FIRST_REPEAT: Duration = Duration::from_millis(10);
/// Longest pause between two SIGKILLs: a process that survives SIGKILL is stuck in the kernel.
const LAST_REPEAT: Duration = Duration::from_secs(1);
/// Duration that stands for "never" in timers, close to tokio's own limit.
pub(super) const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Job that was started.
pub(super) struct Running {
    pub(super) main: Pid,
    pub(super) outputs: Vec<Capture>,
    pub(super) group: Option<Cgroup>,
    /// End of the job's walltime.
    pub(super) deadline: Deadline,
    /// Checkpoint handling; `None`: the job writes no checkpoints.
    pub(super) checkpoints: Option<Checkpoints>,
    /// Result of a job that was killed during its start.
    pub(super) ended: Option<RankExit>,
    /// Keeps the forking thread alive: its end would send the parent-death signal to the job.
    pub(super) starter: Starter,
}

enum Phase {
    /// The first process runs.
    Running,
    /// SIGTERM was sent; SIGKILL follows at `kill_at`.
    Asked { kill_at: Instant },
    /// SIGKILL was sent and is repeated.
    Killed(Killing),
}

/// Repeated SIGKILL to all processes below this one.
pub(super) struct Killing {
    again_at: Instant,
    pause: Duration,
}

impl Killing {
    /// Sends the first SIGKILL, also to all processes in `group`.
    pub(super) fn begin(group: Option<&Cgroup>) -> Self {
        send_kill(group);
        Self {
            again_at: Instant::now() + FIRST_REPEAT,
            pause: FIRST_REPEAT,
        }
    }
    /// Time of the next SIGKILL.
    pub(super) fn again_at(&self) -> Instant {
        self.again_at
    }
    pub(super) fn again(&mut self, group: Option<&Cgroup>) {
        send_kill(group);
        self.pause = (self.pause * 2).min(LAST_REPEAT);
        self.again_at = Instant::now() + self.pause;
    }
}

fn send_kill(group: Option<&Cgroup>) {
    if let Some(group) = group {
        group.kill();
    }
    process_tree::signal_descendants(&[Signal::KILL]);
}

impl Phase {
    /// Resolves when the phase ends by time.
    async fn is_over(&self, deadline: &mut Deadline) {
        match self {
            Phase::Running => deadline.passed().await,
            Phase::Asked { kill_at } => sleep_until(*kill_at).await,
            Phase::Killed(killing) => sleep_until(killing.again_at()).await,
        }
    }
}

/// Waits for the end of every process, and ends processes when required.
pub(super) async fn until_gone(
    signals: &mut Signals,
    launch: &LaunchRecord,
    mut running: Running,
) -> RankExit {
    let grace = Duration::from_millis(launch.grace_ms);
    let mut exit = running.ended;
    let mut phase = match &exit {
        None => Phase::Running,
        Some(_) => Phase::Killed(Killing::begin(running.group.as_ref())),
    };
    loop {
        let reaped = reap(running.main);
        if let Some(status) = reaped.main {
            // A reason that was set before takes precedence; otherwise the exit status counts.
            exit.get_or_insert_with(|| exit_of(status));
        }
        if reaped.none_left && is_empty(running.group.as_ref()) {
            break;
        }
        if exit.is_some() && matches!(phase, Phase::Running) {
            phase = ask(grace.min(LEFTOVER_GRACE));
        }
        tokio::select! {
            _ = signals.child.recv() => {}
            _ = signals.order.recv() => {
                if let Some(checkpoints) = &running.checkpoints {
                    checkpoints.look();
                }
                running.deadline.look();
            }
            _ = signals.terminate.recv() => {
                if matches!(phase, Phase::Running) {
                    exit = Some(RankExit::Stopped);
                    phase = ask(grace);
                }
            }
            () = phase.is_over(&mut running.deadline) => {
                if matches!(phase, Phase::Running) {
                    exit = Some(RankExit::Walltime);
                    phase = ask(grace);
                } else if let Phase::Killed(killing) = &mut phase {
                    killing.again(running.group.as_ref());
                } else {
                    phase = Phase::Killed(Killing::begin(running.group.as_ref()));
                }
            }
        }
    }
    if let Some(checkpoints) = running.checkpoints {
        checkpoints.finish().await;
    }
    running.starter.leave();
    for output in running.outputs {
        output.finish().await;
    }
    exit.unwrap_or_else(|| RankExit::Lost {
        evidence: "no process of it is left, and the kernel kept no status".to_owned(),
    })
}

/// Sends SIGTERM to all processes, and SIGCONT so that stopped ones receive it.
fn ask(grace: Duration) -> Phase {
    process_tree::signal_descendants(&[Signal::TERM, Signal::CONT]);
    Phase::Asked {
        kill_at: Instant::now() + grace,
    }
}

/// Whether the job's cgroup is empty. A process in it that is not below this one was moved there from outside; it is
/// ended with the rest.
fn is_empty(group: Option<&Cgroup>) -> bool {
    let left = group.map_or(Ok(Vec::new()), Cgroup::processes);
    left.is_ok_and(|left| left.is_empty())
}

/// Result of reaping.
pub(super) struct Reaped {
    /// Status of the first process, if it was reaped.
    pub(super) main: Option<WaitStatus>,
    /// Whether no child is left.
    pub(super) none_left: bool,
}

/// Reaps all processes that have ended: one SIGCHLD may stand for several of them.
pub(super) fn reap(main: Pid) -> Reaped {
    let mut reaped = Reaped {
        main: None,
        none_left: false,
    };
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => reaped.main = Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return reaped,
            // ECHILD: no child is left.
            Err(_) => {
                reaped.none_left = true;
                return reaped;
            }
        }
    }
}

pub(super) fn exit_of(status: WaitStatus) -> RankExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => RankExit::Exited { code },
        (None, Some(signal)) => RankExit::Signaled { signal },
        (None, None) => RankExit::Lost {
            evidence: format!("wait status {}", status.as_raw()),
        },
    }
}
