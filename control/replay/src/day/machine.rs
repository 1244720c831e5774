//! Simulated node: whether it is up, its boot number, and the processes and journal of its agent.

use super::job_behavior::{CheckpointReaction, JobBehavior};
use lattice_agent_rpc::{AttemptKey, CheckpointOrder, CheckpointStatus};
use lattice_quorum_types::{
    UnixMillis,
    checkpoint::{CheckpointFailure, CheckpointOutcome},
};
use std::collections::{BTreeMap, BTreeSet};

/// Deferral of a job that defers its checkpoint, milliseconds.
const DEFERRAL_MS: u64 = 60_000;
/// Size of a rank's part of a checkpoint, bytes.
const PART_BYTES: u64 = 80_000_000_000;

/// Simulated node.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) is_up: bool,
    /// Number of boots.
    pub(super) boot: u64,
    /// Time of the last failure or return.
    pub(super) state_changed_at: UnixMillis,
    /// Processes that run or are about to start.
    pub(super) runs: BTreeMap<AttemptKey, Process>,
    /// Attempts in the agent's journal, including those of earlier boots. The agent never starts such an attempt again.
    pub(super) known: BTreeSet<AttemptKey>,
    /// Attempts with an end that the agent could not report because the node failed.
    pub(super) lost: Vec<AttemptKey>,
}

impl Machine {
    /// Boot id that the agent reports.
    pub(super) fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }
}

/// Outcome of control's pings to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PingState {
    /// The agent answers, with this boot id.
    Alive(String),
    /// The agent has not answered lately.
    Suspect,
    /// The node is unreachable.
    Unreachable,
}

/// Process of one rank.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) rank: u32,
    pub(super) behavior: JobBehavior,
    /// Start of the process.
    pub(super) since: Option<UnixMillis>,
    /// Time limit from the start on, milliseconds.
    pub(super) walltime_ms: Option<u64>,
    /// Whether the launch prepared the process for checkpoint requests.
    pub(super) is_prepared: bool,
    /// Whether the process received a request to end.
    pub(super) is_ending: bool,
    /// Last requested checkpoint.
    pub(super) write: Option<CheckpointPart>,
}

/// A rank's part of a checkpoint.
#[derive(Debug)]
pub(super) struct CheckpointPart {
    pub(super) order: CheckpointOrder,
    asked_at: UnixMillis,
    answers: CheckpointReaction,
    takes_ms: u64,
}

impl CheckpointPart {
    pub(super) fn new(order: CheckpointOrder, nature: &JobBehavior, now: UnixMillis) -> Self {
        let takes_ms = match nature.reaction {
            // 1.1 to 2 times the timeout: some parts are written within the extension, others are too late.
            CheckpointReaction::TooSlow => order.timeout_ms * (11 + nature.write_ms % 10) / 10,
            _ => nature.write_ms,
        };
        Self {
            order,
            asked_at: now,
            answers: nature.reaction,
            takes_ms,
        }
    }

    /// Status of the part while its process is alive. `outage` is the period without storage.
    pub(super) fn status(
        &self,
        outage: (UnixMillis, UnixMillis),
        now: UnixMillis,
    ) -> CheckpointStatus {
        let failed = |at, cause, reason: &str| {
            CheckpointStatus::Ended(CheckpointOutcome::Failed {
                at,
                cause,
                reason: reason.to_owned(),
            })
        };
        let timeout_ms = self.order.timeout_ms;
        let begins_at = match self.answers {
            CheckpointReaction::Declines => {
                return failed(self.asked_at, CheckpointFailure::Declined, "no");
            }
            CheckpointReaction::Ignores => {
                let until = self.asked_at.after(timeout_ms);
                return match now < until {
                    true => CheckpointStatus::Asked { at: self.asked_at },
                    false => failed(until, CheckpointFailure::Unresponsive, "no answer"),
                };
            }
            CheckpointReaction::Defers => self.asked_at.after(DEFERRAL_MS),
            CheckpointReaction::Writes | CheckpointReaction::TooSlow => self.asked_at,
        };
        if now < begins_at {
            return CheckpointStatus::Deferred {
                until: begins_at,
                times: 1,
            };
        }
        let done_at = begins_at.after(self.takes_ms);
        let limit = begins_at.after(timeout_ms + self.order.extension_ms);
        let breaks_at = begins_at.max(outage.0);
        let is_broken = breaks_at < outage.1 && breaks_at <= done_at.min(limit);
        if is_broken && now >= breaks_at {
            return failed(breaks_at, CheckpointFailure::Storage, "no storage");
        }
        match () {
            () if done_at <= limit && now >= done_at => {
                CheckpointStatus::Ended(CheckpointOutcome::Written {
                    at: done_at,
                    bytes: Some(PART_BYTES),
                    took_ms: done_at.since(self.asked_at),
                })
            }
            () if now >= limit => failed(limit, CheckpointFailure::TooSlow, "not in time"),
            () => CheckpointStatus::Writing { heard_at: now },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(answers: CheckpointReaction, write_ms: u64, at_ms: u64) -> CheckpointStatus {
        let nature = JobBehavior {
            work_ms: None,
            write_ms,
            reaction: answers,
            code: 0,
        };
        let order = CheckpointOrder::new(1, "/scratch", 100_000);
        let write = CheckpointPart::new(order, &nature, UnixMillis(1000));
        let outage = (UnixMillis(500_000), UnixMillis(600_000));
        write.status(outage, UnixMillis(1000 + at_ms))
    }

    fn cause(status: CheckpointStatus) -> Option<CheckpointFailure> {
        match status {
            CheckpointStatus::Ended(CheckpointOutcome::Failed { cause, .. }) => Some(cause),
            _ => None,
        }
    }

    #[test]
    fn a_part_is_written_when_it_is_whole_and_never_while_there_is_no_storage() {
        use CheckpointStatus::{Asked, Deferred, Ended, Writing};
        let done = stands(CheckpointReaction::Writes, 50, 50);
        assert!(matches!(&done, Ended(outcome) if outcome.is_written()));
        assert!(matches!(
            stands(CheckpointReaction::Writes, 50, 49),
            Writing { .. }
        ));
        assert!(matches!(
            stands(CheckpointReaction::Defers, 50, 50),
            Deferred { .. }
        ));
        let late = stands(CheckpointReaction::Defers, 50, 60_050);
        assert!(matches!(&late, Ended(outcome) if outcome.is_written()));
        assert!(matches!(
            stands(CheckpointReaction::Ignores, 50, 50),
            Asked { .. }
        ));
        let silent = cause(stands(CheckpointReaction::Ignores, 50, 100_000));
        assert_eq!(silent, Some(CheckpointFailure::Unresponsive));
        // Twice the timeout exceeds the extension; 1.1 times the timeout does not.
        let slow = cause(stands(CheckpointReaction::TooSlow, 9, 150_000));
        assert_eq!(slow, Some(CheckpointFailure::TooSlow));
        let extended = stands(CheckpointReaction::TooSlow, 10, 110_000);
        assert!(matches!(&extended, Ended(outcome) if outcome.is_written()));
        let mut write = CheckpointPart::new(
            CheckpointOrder::new(1, "/scratch", 100_000),
            &JobBehavior {
                work_ms: None,
                write_ms: 2000,
                reaction: CheckpointReaction::Writes,
                code: 0,
            },
            UnixMillis(499_000),
        );
        let outage = (UnixMillis(500_000), UnixMillis(600_000));
        let status = write.status(outage, UnixMillis(501_000));
        assert_eq!(cause(status), Some(CheckpointFailure::Storage));
        write.asked_at = UnixMillis(600_000);
        let status = write.status(outage, UnixMillis(602_000));
        assert!(matches!(status, Ended(outcome) if outcome.is_written()));
    }
}
