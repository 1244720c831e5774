//! From the start of a job to the end of its last process.

use super::capture::Capture;
use super::cgroup::Cgroup;
use super::checkpoint::Checkpoints;
use super::deadline::Deadline;
use super::starter::Starter;
use super::{Signals, family};
use crate::attempt::LaunchRecord;
use lattice_quorum_types::allocation::RankExit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Processes that the job leaves behind when its first one ends get this long after SIGTERM, or
/// the configured grace where that is shorter.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// SIGKILL is repeated: new processes may have come between listing and signalling.
const FIRST_REPEAT: Duration = Duration::from_millis(10);
/// A process that does not go is stuck in the kernel; it is looked at this often.
const LAST_REPEAT: Duration = Duration::from_secs(1);
/// "Never", for a timer: tokio's own limit is about as far.
pub(super) const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A job that was started.
pub(super) struct Running {
    pub(super) main: Pid,
    pub(super) outputs: Vec<Capture>,
    pub(super) group: Option<Cgroup>,
    /// When its time is up.
    pub(super) deadline: Deadline,
    /// `None`: it cannot be asked for any.
    pub(super) checkpoints: Option<Checkpoints>,
    /// Its start was cut short: it is killed, and this is its end.
    pub(super) ended: Option<RankExit>,
    /// As long as it stays, the job is not taken for one whose supervisor is gone.
    pub(super) starter: Starter,
}

enum Phase {
    /// The first process runs.
    Running,
    /// SIGTERM was sent; SIGKILL comes at the instant.
    Asked { kill_at: Instant },
    /// SIGKILL was sent, and is again.
    Killed(Killing),
}

/// SIGKILL to everything below this process, again and again.
pub(super) struct Killing {
    again_at: Instant,
    pause: Duration,
}

impl Killing {
    /// To everything in `group` as well.
    pub(super) fn begin(group: Option<&Cgroup>) -> Self {
        send_kill(group);
        Self {
            again_at: Instant::now() + FIRST_REPEAT,
            pause: FIRST_REPEAT,
        }
    }
    /// When it is due once more.
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
    family::signal_descendants(&[Signal::KILL]);
}

impl Phase {
    /// Resolves when something must be done without being asked.
    async fn is_over(&self, deadline: &mut Deadline) {
        match self {
            Phase::Running => deadline.passed().await,
            Phase::Asked { kill_at } => sleep_until(*kill_at).await,
            Phase::Killed(killing) => sleep_until(killing.again_at()).await,
        }
    }
}

/// Waits for the end of every process, ending them when it is time.
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
            // Why it was ended was decided before; only an end of its own accord counts here.
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

/// SIGTERM to all; SIGCONT so that stopped ones hear it.
fn ask(grace: Duration) -> Phase {
    family::signal_descendants(&[Signal::TERM, Signal::CONT]);
    Phase::Asked {
        kill_at: Instant::now() + grace,
    }
}

/// Whether nothing is left in the job's group. What is there and not below this process was put
/// there by somebody else; it is ended with the rest.
fn is_empty(group: Option<&Cgroup>) -> bool {
    let left = group.map_or(Ok(Vec::new()), Cgroup::processes);
    left.is_ok_and(|left| left.is_empty())
}

/// What had ended.
pub(super) struct Reaped {
    /// The first process, if it was among them.
    pub(super) main: Option<WaitStatus>,
    /// No process is left.
    pub(super) none_left: bool,
}

/// Reaps everything that has ended: one signal may stand for several ends.
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
            // ECHILD: none left to wait for.
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
