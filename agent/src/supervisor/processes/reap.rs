//! Reaping of ended processes, and their result.

use lattice_quorum_types::allocation::RankExit;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

/// Result of reaping.
pub(in crate::supervisor) struct ReapResult {
    /// Status of the first process, if it was reaped.
    pub(in crate::supervisor) main: Option<WaitStatus>,
    /// Whether no child is left.
    pub(in crate::supervisor) none_left: bool,
}

/// Reaps all processes that have ended: one SIGCHLD may stand for several of them.
pub(in crate::supervisor) fn reap(main: Pid) -> ReapResult {
    let mut reaped = ReapResult {
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

pub(in crate::supervisor) fn exit_of(status: WaitStatus) -> RankExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => RankExit::Exited { code },
        (None, Some(signal)) => RankExit::Signaled { signal },
        (None, None) => RankExit::Lost {
            evidence: format!("wait status {}", status.as_raw()),
        },
    }
}
