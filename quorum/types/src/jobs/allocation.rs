//! Allocations: record, ranks, and causes of stops.

pub use super::state::AllocationState;
use crate::{
    AllocationId, AllocationName, NameLookup, NodeId, Revision, UnixMillis,
    array::ElementIds,
    progress::{AllocationProgress, MoveReason},
    spec::AllocationSpec,
    terms::Condition,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a rank ended. The rank's supervisor writes the exit that it observes to disk before the exit is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankExit {
    /// The process exited with this code.
    Exited {
        /// Exit code, 0-255.
        code: i32,
    },
    /// The process was ended by a signal.
    Signaled {
        /// Signal number.
        signal: i32,
    },
    /// The rank was ended because its walltime ran out.
    Walltime,
    /// The rank was ended on request: its allocation was stopped or shrunk, or another rank failed.
    Stopped,
    /// The process could not be started.
    SpawnFailed {
        /// Description of the error.
        reason: String,
    },
    /// The node lost its record of the rank (crash, power loss) and the rank's processes are confirmed gone, or the
    /// node was released by force.
    Lost {
        /// Evidence that the processes are gone, or the principal and the reason of the forced release.
        evidence: String,
    },
    /// The rank was lost before it started: no process of it ever existed. Only the dispatcher, which sends the
    /// launches, reports this, under its lease; agents never do.
    NeverStarted {
        /// Evidence that the rank never started.
        evidence: String,
    },
}

impl RankExit {
    /// Checks for exit code 0.
    pub fn is_success(&self) -> bool {
        matches!(self, RankExit::Exited { code: 0 })
    }
}

impl fmt::Display for RankExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankExit::Exited { code } => write!(f, "exit code {code}"),
            RankExit::Signaled { signal } => write!(f, "signal {signal}"),
            RankExit::Walltime => f.write_str("walltime exceeded"),
            RankExit::Stopped => f.write_str("stopped"),
            RankExit::SpawnFailed { reason } => write!(f, "could not start: {reason}"),
            RankExit::Lost { evidence } => write!(f, "lost: {evidence}"),
            RankExit::NeverStarted { evidence } => write!(f, "lost: never started: {evidence}"),
        }
    }
}

/// Phase of one rank of the current attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankPhase {
    /// Assigned; not known to run.
    Assigned,
    /// The rank's process runs.
    Running {
        /// Start time, by the node's clock.
        at: UnixMillis,
    },
    /// The rank's processes are gone.
    Ended {
        /// End time, by the node's clock.
        at: UnixMillis,
        /// How the rank ended.
        exit: RankExit,
    },
    /// The allocation shrinks by this rank, and the rank's processes are being ended. The exit status of this rank does
    /// not affect the allocation. The node is released when the processes are confirmed gone.
    Leaving {
        /// Start time of the process, by the node's clock; `None` if it is not known to have started.
        running: Option<UnixMillis>,
    },
    /// The rank's processes are gone, and its node was released before the other nodes. The rank stays in the list so
    /// that the other ranks keep their numbers.
    Left {
        /// End time, by the node's clock.
        at: UnixMillis,
        /// How the rank ended.
        exit: RankExit,
    },
}

impl RankPhase {
    /// Checks whether every process of the rank is gone, or counts as gone after a forced release of the node.
    pub fn is_over(&self) -> bool {
        matches!(self, RankPhase::Ended { .. } | RankPhase::Left { .. })
    }
    /// Checks whether the rank keeps its node until the attempt ends: the rank is neither `Leaving` nor `Left`.
    pub fn stays(&self) -> bool {
        !matches!(self, RankPhase::Leaving { .. } | RankPhase::Left { .. })
    }
    /// Start time, by the node's clock; `None` if the rank is not known to run.
    pub fn running_since(&self) -> Option<UnixMillis> {
        match self {
            RankPhase::Running { at } | RankPhase::Leaving { running: Some(at) } => Some(*at),
            _ => None,
        }
    }
    /// How the rank ended; `None` if it has not ended.
    pub fn exit(&self) -> Option<&RankExit> {
        match self {
            RankPhase::Ended { exit, .. } | RankPhase::Left { exit, .. } => Some(exit),
            _ => None,
        }
    }
}

/// One rank: its node and its phase. The position in the list is the rank number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Node of the rank.
    pub node: NodeId,
    /// Boot id of the node at assignment; `None`: not known. Under another boot id no process of the rank is left.
    pub boot: Option<String>,
    /// Phase of the rank.
    pub phase: RankPhase,
}

/// Cause for which an allocation is being, or was, stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A principal cancelled the allocation.
    Cancelled {
        /// Principal that cancelled the allocation.
        by: String,
    },
    /// A rank did not exit with code 0.
    RankFailed {
        /// Rank number.
        rank: u32,
        /// How the rank ended.
        exit: RankExit,
    },
    /// The walltime ran out.
    Walltime,
    /// A node was lost.
    NodeLost {
        /// Lost node.
        node: NodeId,
    },
    /// The allocation was suspended without a checkpoint. Progress since the last checkpoint is lost.
    Suspended,
    /// A node cannot run any process at present, and no process of the allocation ran there. The allocation is queued
    /// again under every requeue policy; after several attempts, only under the policy `Always`.
    NodeFault {
        /// Faulty node.
        node: NodeId,
        /// Description of the fault.
        reason: String,
    },
    /// The allocation left its nodes because of a preemption, a reclaim or a request.
    Moved {
        /// Reason for the move.
        reason: MoveReason,
        /// Checkpoint that was written for the move, from which the allocation resumes. `None`: there is none. If the
        /// allocation is queued again, it continues from its last complete checkpoint, or starts over without one.
        checkpoint: Option<u32>,
        /// Whether the attempt ran. After an attempt that did not run, no progress is lost, and the allocation is
        /// queued again under every requeue policy.
        has_run: bool,
    },
    /// A dependency ended in a way that does not meet its condition.
    Unsatisfiable {
        /// Allocation that this one depended on.
        on: AllocationId,
        /// Condition of the dependency.
        condition: Condition,
        /// State in which the other allocation ended.
        ended: AllocationState,
    },
    /// The deadline has passed, or the allocation could not end before it.
    Deadline,
    /// A principal requeued the allocation.
    Requeued {
        /// Principal that requeued the allocation.
        by: String,
    },
    /// The DAG that the allocation is a member of was cancelled.
    DagCancelled {
        /// Principal that cancelled the DAG.
        by: String,
    },
}

impl StopCause {
    /// Text with the names of other allocations.
    pub fn text(&self, name: NameLookup<'_>) -> String {
        match self {
            StopCause::Moved {
                reason,
                checkpoint: Some(number),
                ..
            } => format!("{}, after checkpoint {number}", reason.text(name)),
            StopCause::Moved {
                reason,
                checkpoint: None,
                ..
            } => format!("{}, without a checkpoint", reason.text(name)),
            StopCause::Unsatisfiable {
                on,
                condition,
                ended,
            } => format!(
                "allocation {} was {ended}; this one waited for {condition}",
                name(*on)
            ),
            StopCause::Cancelled { .. }
            | StopCause::RankFailed { .. }
            | StopCause::Walltime
            | StopCause::NodeLost { .. }
            | StopCause::Suspended
            | StopCause::NodeFault { .. }
            | StopCause::Deadline
            | StopCause::Requeued { .. }
            | StopCause::DagCancelled { .. } => self.to_string(),
        }
    }

    /// Allocation that the text mentions.
    pub fn other_allocation(&self) -> Option<AllocationId> {
        match self {
            StopCause::Unsatisfiable { on, .. } => Some(*on),
            StopCause::Moved {
                reason: MoveReason::Preempted { by },
                ..
            } => Some(*by),
            _ => None,
        }
    }
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopCause::Cancelled { by } => write!(f, "cancelled by {by}"),
            StopCause::RankFailed { rank, exit } => write!(f, "rank {rank}: {exit}"),
            StopCause::Walltime => f.write_str("walltime exceeded"),
            StopCause::NodeLost { node } => write!(f, "node {node} lost"),
            StopCause::Suspended => f.write_str("suspended without a checkpoint"),
            StopCause::NodeFault { node, reason } => {
                write!(f, "node {node} cannot run it: {reason}")
            }
            StopCause::Moved { .. } | StopCause::Unsatisfiable { .. } => {
                f.write_str(&self.text(&AllocationName::of_id))
            }
            StopCause::Deadline => f.write_str("it could not end by its deadline"),
            StopCause::Requeued { by } => write!(f, "requeued by {by}"),
            StopCause::DagCancelled { by } => write!(f, "its DAG was cancelled by {by}"),
        }
    }
}

/// The whole record of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Number of the allocation.
    pub id: AllocationId,
    /// User that submitted the allocation: the principal of the submission.
    pub user: String,
    /// Request as submitted, with later changes.
    pub spec: AllocationSpec,
    /// Present state.
    pub state: AllocationState,
    /// Time at which the allocation entered the state.
    pub state_since: UnixMillis,
    /// Time of submission.
    pub submitted_at: UnixMillis,
    /// Earliest time at which the allocation could have been placed (after dependencies, holds and the begin time).
    pub eligible_at: UnixMillis,
    /// Time at which the first attempt began to run.
    pub started_at: Option<UnixMillis>,
    /// Time at which the allocation reached a terminal state.
    pub ended_at: Option<UnixMillis>,
    /// Number of the current or last attempt; 0 before the first. Increases with each assignment: by 1, and by more
    /// after a restore from a backup.
    pub attempt: u32,
    /// Ranks of the current or last attempt.
    pub ranks: Vec<Rank>,
    /// Cause for which the allocation is being, or was, stopped; `None` for a plain completion.
    pub stop: Option<StopCause>,
    /// Revision of the last change.
    pub revision: Revision,
    /// History of the allocation.
    #[serde(default)]
    pub progress: AllocationProgress,
}

impl Allocation {
    /// Name in texts: the number, or for an array element the array's number and the index.
    pub fn name(&self) -> AllocationName {
        AllocationName::new(self.id, self.progress.element)
    }

    /// Numbers of the array's elements; `None` for an allocation that is not a job array.
    pub fn element_numbers(&self) -> Option<ElementIds<'_>> {
        let array = self.spec.terms.array.as_ref()?;
        Some(array.numbers(self.id))
    }

    /// The highest allocation number that the record takes: its own, or that of its last element.
    pub fn last_number(&self) -> AllocationId {
        self.element_numbers().map_or(self.id, ElementIds::last)
    }

    /// Nodes of the current or last attempt, in rank order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeId> {
        self.ranks.iter().map(|r| &r.node)
    }
    /// Nodes of the current or last attempt, without those of ranks that have `Left`.
    pub fn kept_nodes(&self) -> impl Iterator<Item = &NodeId> {
        let kept = |rank: &&Rank| !matches!(rank.phase, RankPhase::Left { .. });
        self.ranks.iter().filter(kept).map(|rank| &rank.node)
    }
    /// Start of the present attempt, by the nodes' clocks: the latest start among the running ranks that the attempt
    /// began with. `None` while no rank is known to run.
    ///
    /// A service begins with `min_nodes` ranks. Ranks that were added later count only if none of the first ones runs.
    pub fn attempt_began_at(&self) -> Option<UnixMillis> {
        let scale = self.spec.terms.scale.as_ref();
        let first = scale.map_or(self.ranks.len(), |scale| scale.min_nodes as usize);
        let started = |ranks: &[Rank]| {
            let started = ranks.iter().filter_map(|rank| rank.phase.running_since());
            started.max()
        };
        let (began_with, came) = self.ranks.split_at(first.min(self.ranks.len()));
        started(began_with).or_else(|| started(came))
    }
    /// Checks whether a rank has ended without leaving the allocation (phase `Ended`). Such a rank writes no checkpoint
    /// part, and without that part no checkpoint is complete.
    pub fn has_ended_rank(&self) -> bool {
        let mut ranks = self.ranks.iter();
        ranks.any(|rank| matches!(rank.phase, RankPhase::Ended { .. }))
    }
    /// Remaining walltime of the present or next attempt, from its start on, milliseconds; `None`: unbounded. Run time
    /// that is contained in the checkpoint to resume from counts as used.
    pub fn walltime_left_ms(&self) -> Option<u64> {
        let before_ms = self.before_ms();
        Some(self.spec.walltime_ms?.saturating_sub(before_ms).max(1))
    }
    /// End of the walltime, by the nodes' clocks; `None` without a walltime. For an attempt that has not started, the
    /// computation assumes a start at assignment; the end moves with the actual start.
    pub fn ends_at(&self) -> Option<UnixMillis> {
        let began = match self.state {
            AllocationState::Starting => None,
            _ => self.attempt_began_at().or(self.started_at),
        };
        Some(
            began
                .unwrap_or(self.state_since)
                .after(self.walltime_left_ms()?),
        )
    }
    /// Used walltime at `now`, milliseconds: the run time contained in the checkpoint that the present or next attempt
    /// resumes from, plus the run time of the present attempt, by the nodes' clocks.
    pub fn used_ms(&self, now: UnixMillis) -> u64 {
        let began = self.attempt_began_at().filter(|_| self.state.holds());
        let ran_ms = began.map_or(0, |began| now.since(began));
        self.before_ms().saturating_add(ran_ms)
    }
    /// Walltime used before the present or next attempt, milliseconds.
    fn before_ms(&self) -> u64 {
        match self.state.holds() {
            true => self.progress.resumed_ms,
            false => self
                .progress
                .kept
                .as_ref()
                .map_or(0, |kept| kept.progress_ms),
        }
    }
    /// Number of nodes in sensitive use by the allocation.
    pub fn sensitive_nodes(&self) -> u64 {
        match self.spec.sensitive && self.state.holds() {
            true => u64::from(self.spec.nodes),
            false => 0,
        }
    }
}
