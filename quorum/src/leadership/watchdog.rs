//! Watchdog of the election gate. A stalled gate would leave elections in their last state. If elections were allowed,
//! a returning member would depose a healthy leader. If elections were forbidden, no leader would be elected.

use crate::{
    leadership::election_gate,
    member::{Member, last_contact::LastContact},
};
use lattice_mesh::Mesh;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

/// Stall limit. The gate runs every 40 ms and waits for answers for 100 ms at most, so this is a dozen missed runs.
const STALL_LIMIT: Duration = Duration::from_secs(2);
/// Interval between two checks of the gate.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Pause before the gate is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Keeps a gate running, and forbids elections while none runs.
pub(crate) async fn run(member: Arc<Member>, mesh: Mesh) {
    loop {
        let gate = election_gate::run(member.clone(), mesh.clone());
        let reason = run_until_stall(gate, &member.gate_checked, STALL_LIMIT).await;
        member.raft.runtime_config().elect(false);
        tracing::error!(
            member = member.id,
            reason,
            "election gate stalled; elections disabled, restarting the gate"
        );
        sleep(RESTART_PAUSE).await;
    }
}

/// Runs `work` until it ends or stalls for `hung`. Returns the reason.
async fn run_until_stall(
    work: impl Future<Output = ()> + Send + 'static,
    looked: &LastContact,
    hung: Duration,
) -> String {
    looked.record();
    let mut work = AbortOnDropHandle::new(tokio::spawn(work));
    // A suspended process has not run its gate either, but resumes. So only time in which this task ran is counted.
    let mut awake = Duration::ZERO;
    loop {
        let since = Instant::now();
        tokio::select! {
            biased;
            ended = &mut work => return match ended {
                Ok(()) => "it ended".to_owned(),
                Err(error) => error.to_string(),
            },
            () = sleep(CHECK_INTERVAL.min(hung / 4)) => {}
        }
        let slept = since.elapsed();
        awake = match looked.silent_for(slept) {
            true => awake + slept.min(CHECK_INTERVAL * 2),
            false => Duration::ZERO,
        };
        if awake >= hung {
            let silent = looked.millis().unwrap_or_default();
            return format!("no check for {silent} ms");
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::leadership::watchdog::*;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn one_that_hangs_is_noticed() {
        let looked = LastContact::never();
        let hangs = std::future::pending();
        let reason = run_until_stall(hangs, &looked, SHORT);
        let reason = timeout(PATIENCE, reason).await.unwrap();
        assert!(reason.starts_with("no check for "), "{reason}");
    }

    #[tokio::test]
    async fn one_that_ends_or_panics_is_noticed() {
        let looked = LastContact::never();
        let reason = run_until_stall(async {}, &looked, SHORT);
        assert_eq!(timeout(PATIENCE, reason).await.unwrap(), "it ended");
        let breaks = async { panic!("no reason") };
        let reason = run_until_stall(breaks, &looked, SHORT);
        let reason = timeout(PATIENCE, reason).await.unwrap();
        assert!(reason.contains("panicked"), "{reason}");
    }

    #[tokio::test]
    async fn one_that_looks_is_left_alone() {
        let looked = LastContact::never();
        let looks = {
            let looked = looked.clone();
            async move {
                for _ in 0..40 {
                    looked.record();
                    sleep(SHORT / 10).await;
                }
            }
        };
        let reason = run_until_stall(looks, &looked, SHORT * 2);
        assert_eq!(timeout(PATIENCE, reason).await.unwrap(), "it ended");
    }
}
