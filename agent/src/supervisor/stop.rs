//! Job supervision, from the start of a job to the end of its last process.

use super::Signals;
use super::capture::Capture;
use super::checkpoint::Checkpoints;
use super::deadline::Deadline;
use super::processes::cgroup::Cgroup;
use super::processes::kill::KillLoop;
use super::processes::process_tree;
use super::processes::reap::{exit_of, reap};
use super::starter::Starter;
use crate::attempt::LaunchRecord;
use lattice_quorum_types::allocation::RankExit;
use rustix::process::{Pid, Signal};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Time between SIGTERM and SIGKILL for processes that outlive the job's first process, unless the configured grace is
/// shorter.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// Job that was started.
pub(super) struct StartedJob {
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
    Terminating { kill_at: Instant },
    /// SIGKILL was sent and is repeated.
    Killed(KillLoop),
}

impl Phase {
    /// Resolves when the time limit of the phase is reached.
    async fn wait_for_limit(&self, deadline: &mut Deadline) {
        match self {
            Phase::Running => deadline.passed().await,
            Phase::Terminating { kill_at } => sleep_until(*kill_at).await,
            Phase::Killed(killing) => sleep_until(killing.next_kill_at()).await,
        }
    }
}

/// Waits for the end of every process, and ends processes when required.
pub(super) async fn supervise(
    signals: &mut Signals,
    launch: &LaunchRecord,
    mut running: StartedJob,
) -> RankExit {
    let grace = Duration::from_millis(launch.grace_ms);
    let mut exit = running.ended;
    let mut phase = match &exit {
        None => Phase::Running,
        Some(_) => Phase::Killed(KillLoop::begin(running.group.as_ref())),
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
            phase = send_sigterm(grace.min(LEFTOVER_GRACE));
        }
        tokio::select! {
            _ = signals.child.recv() => {}
            _ = signals.order.recv() => {
                if let Some(checkpoints) = &running.checkpoints {
                    checkpoints.read_order();
                }
                running.deadline.apply_recorded_change();
            }
            _ = signals.terminate.recv() => {
                if matches!(phase, Phase::Running) {
                    exit = Some(RankExit::Stopped);
                    phase = send_sigterm(grace);
                }
            }
            () = phase.wait_for_limit(&mut running.deadline) => {
                if matches!(phase, Phase::Running) {
                    exit = Some(RankExit::Walltime);
                    phase = send_sigterm(grace);
                } else if let Phase::Killed(killing) = &mut phase {
                    killing.repeat_kill(running.group.as_ref());
                } else {
                    phase = Phase::Killed(KillLoop::begin(running.group.as_ref()));
                }
            }
        }
    }
    if let Some(checkpoints) = running.checkpoints {
        checkpoints.finish().await;
    }
    running.starter.end_thread();
    for output in running.outputs {
        output.finish().await;
    }
    exit.unwrap_or_else(|| RankExit::Lost {
        evidence: "all processes have ended, and the exit status is lost".to_owned(),
    })
}

/// Sends SIGTERM to all processes, and SIGCONT so that stopped ones receive it.
fn send_sigterm(grace: Duration) -> Phase {
    process_tree::signal_descendants(&[Signal::TERM, Signal::CONT]);
    Phase::Terminating {
        kill_at: Instant::now() + grace,
    }
}

/// Whether the job's cgroup is empty; `false` if the cgroup is unreadable. The cgroup may also contain processes moved
/// there from outside, which are not descendants of this process; they are ended with the rest.
fn is_empty(group: Option<&Cgroup>) -> bool {
    let left = group.map_or(Ok(Vec::new()), Cgroup::processes);
    left.is_ok_and(|left| left.is_empty())
}
