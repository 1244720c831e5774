//! Repeated SIGKILL to the processes of a job or a hook.

use super::cgroup::Cgroup;
use super::process_tree;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// First pause before SIGKILL is repeated: processes may have started between listing and signalling.
const MIN_KILL_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between two SIGKILLs: a process that survives SIGKILL is stuck in the kernel.
const MAX_KILL_PAUSE: Duration = Duration::from_secs(1);

/// Repeated SIGKILL to all descendants of this process.
pub(in crate::supervisor) struct KillLoop {
    again_at: Instant,
    pause: Duration,
}

impl KillLoop {
    /// Sends the first SIGKILL, also to all processes in `group`.
    pub(in crate::supervisor) fn begin(group: Option<&Cgroup>) -> Self {
        send_kill(group);
        Self {
            again_at: Instant::now() + MIN_KILL_PAUSE,
            pause: MIN_KILL_PAUSE,
        }
    }
    /// Time of the next SIGKILL.
    pub(in crate::supervisor) fn next_kill_at(&self) -> Instant {
        self.again_at
    }
    pub(in crate::supervisor) fn repeat_kill(&mut self, group: Option<&Cgroup>) {
        send_kill(group);
        self.pause = (self.pause * 2).min(MAX_KILL_PAUSE);
        self.again_at = Instant::now() + self.pause;
    }
}

fn send_kill(group: Option<&Cgroup>) {
    if let Some(group) = group {
        group.kill();
    }
    process_tree::signal_descendants(&[Signal::KILL]);
}
