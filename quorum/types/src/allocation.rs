//! Allocations: their life cycle and their record.

use crate::{
    AllocationId, NodeId, Revision, UnixMillis,
    array::ElementNumbers,
    course::{Course, MoveReason},
    spec::AllocationSpec,
    terms::Condition,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// `Blocked → Pending ⇄ Held; Pending → Starting → Running ⇄ Checkpointing; holding states →
/// Stopping → Suspended | Completed | Failed | Cancelled; Suspended → Pending`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// Waits for another allocation (a dependency).
    Blocked,
    /// Waits for nodes; holds nothing.
    Pending,
    /// Put on hold by a person; holds nothing.
    Held,
    /// Has nodes; processes are being started.
    Starting,
    /// Its processes run.
    Running,
    /// Runs and writes a checkpoint.
    Checkpointing,
    /// Still holds its nodes while its processes are ended and confirmed gone.
    Stopping,
    /// Checkpointed and off its nodes.
    Suspended,
    /// Every rank exited 0.
    Completed,
    /// A rank failed, the walltime ran out, or a node was lost.
    Failed,
    /// Ended by a person.
    Cancelled,
}

impl AllocationState {
    /// All states in life-cycle order.
    pub const ALL: [AllocationState; 11] = [
        AllocationState::Blocked,
        AllocationState::Pending,
        AllocationState::Held,
        AllocationState::Starting,
        AllocationState::Running,
        AllocationState::Checkpointing,
        AllocationState::Stopping,
        AllocationState::Suspended,
        AllocationState::Completed,
        AllocationState::Failed,
        AllocationState::Cancelled,
    ];
    /// Holds nodes and counts against limits.
    pub fn holds(self) -> bool {
        use AllocationState::*;
        matches!(self, Starting | Running | Checkpointing | Stopping)
    }
    /// Will never change again.
    pub fn is_terminal(self) -> bool {
        use AllocationState::*;
        matches!(self, Completed | Failed | Cancelled)
    }
    /// Lower-case name as printed.
    pub fn as_str(self) -> &'static str {
        use AllocationState::*;
        match self {
            Blocked => "blocked",
            Pending => "pending",
            Held => "held",
            Starting => "starting",
            Running => "running",
            Checkpointing => "checkpointing",
            Stopping => "stopping",
            Suspended => "suspended",
            Completed => "completed",
            Failed => "failed",
            Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for AllocationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for AllocationState {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == s)
            .ok_or_else(|| {
                let all: Vec<_> = Self::ALL.iter().map(|s| s.as_str()).collect();
                format!("unknown state {s:?}; one of {}", all.join(", "))
            })
    }
}

/// How one rank ended. Written durably by its supervisor before anybody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankExit {
    /// The process exited with this code.
    Exited {
        /// 0-255.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// Signal number.
        signal: i32,
    },
    /// It was ended because its walltime ran out.
    Walltime,
    /// It was ended because somebody asked (cancel, or another rank failed).
    Stopped,
    /// It could not be started.
    SpawnFailed {
        /// Why, in words.
        reason: String,
    },
    /// The node lost its record of it (crash, power loss); processes are known to be gone.
    Lost {
        /// How that is known.
        evidence: String,
    },
    /// Lost without ever having been started: no process of it was ever there. Only who sends
    /// launches can know that, and says it under its lease; agents never do.
    NeverStarted {
        /// How that is known.
        evidence: String,
    },
}

impl RankExit {
    /// Exit code 0.
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

/// Where one rank of the current attempt stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankPhase {
    /// Assigned; not known to run.
    Assigned,
    /// Its process runs.
    Running {
        /// Since when, by the node's clock.
        at: UnixMillis,
    },
    /// Its processes are gone.
    Ended {
        /// When, by the node's clock.
        at: UnixMillis,
        /// How.
        exit: RankExit,
    },
    /// The allocation shrinks by this rank: its processes are being ended. How they end says nothing
    /// of the work, and the node goes back with the word that they are gone.
    Leaving {
        /// Since when its process is known to run, by the node's clock.
        running: Option<UnixMillis>,
    },
    /// Its processes are gone and its node went back before the others'. The rank stays in the list,
    /// so that the others keep their numbers.
    Left {
        /// When it ended, by the node's clock.
        at: UnixMillis,
        /// How.
        exit: RankExit,
    },
}

impl RankPhase {
    /// Whether every process of it is gone.
    pub fn is_over(&self) -> bool {
        matches!(self, RankPhase::Ended { .. } | RankPhase::Left { .. })
    }
    /// Whether nobody has asked for its node back.
    pub fn stays(&self) -> bool {
        !matches!(self, RankPhase::Leaving { .. } | RankPhase::Left { .. })
    }
    /// Since when it runs, by the node's clock; `None` where it is not known to.
    pub fn running_since(&self) -> Option<UnixMillis> {
        match self {
            RankPhase::Running { at } | RankPhase::Leaving { running: Some(at) } => Some(*at),
            _ => None,
        }
    }
    /// How it ended, once it has.
    pub fn exit(&self) -> Option<&RankExit> {
        match self {
            RankPhase::Ended { exit, .. } | RankPhase::Left { exit, .. } => Some(exit),
            _ => None,
        }
    }
}

/// One rank: its node and where it stands. The position in the list is the rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Its node.
    pub node: NodeId,
    /// The boot of that node it was assigned under: under another one nothing of it is left.
    pub boot: Option<String>,
    /// Where it stands.
    pub phase: RankPhase,
}

/// Why an allocation is being, or was, stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A person cancelled it.
    Cancelled {
        /// Who.
        by: String,
    },
    /// A rank did not exit 0.
    RankFailed {
        /// Which.
        rank: u32,
        /// How.
        exit: RankExit,
    },
    /// The walltime ran out.
    Walltime,
    /// A node was lost.
    NodeLost {
        /// Which.
        node: NodeId,
    },
    /// Suspended, and what it did since its last checkpoint is lost.
    Suspended,
    /// A node cannot run anything at present, and nothing of this work ran there. The allocation
    /// waits again, whatever it says of requeueing.
    NodeFault {
        /// Which.
        node: NodeId,
        /// Why, in words.
        reason: String,
    },
    /// It made room.
    Moved {
        /// For whom.
        reason: MoveReason,
        /// The checkpoint it goes on from; `None`: there is none, and it begins anew where it is
        /// queued again at all.
        checkpoint: Option<u32>,
        /// Whether the attempt ran. One that did not has lost nothing, and waits again in any case.
        has_run: bool,
    },
    /// What it comes after did not end as it must have.
    Unsatisfiable {
        /// Which one.
        on: AllocationId,
        /// How that must have ended.
        condition: Condition,
        /// How it did.
        ended: AllocationState,
    },
    /// Its deadline has passed, or it could not end before it any more.
    Deadline,
    /// Somebody put it back to the queue.
    Requeued {
        /// Who.
        by: String,
    },
    /// The graph that it is a member of was cancelled.
    DagCancelled {
        /// By whom.
        by: String,
    },
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
            StopCause::Moved {
                reason,
                checkpoint: Some(number),
                ..
            } => write!(f, "{reason}, after checkpoint {number}"),
            StopCause::Moved {
                reason,
                checkpoint: None,
                ..
            } => write!(f, "{reason}, without a checkpoint"),
            StopCause::Unsatisfiable {
                on,
                condition,
                ended,
            } => write!(
                f,
                "allocation {on} was {ended}; this one waited for {condition}"
            ),
            StopCause::Deadline => f.write_str("it could not end by its deadline"),
            StopCause::Requeued { by } => write!(f, "requeued by {by}"),
            StopCause::DagCancelled { by } => write!(f, "its graph was cancelled by {by}"),
        }
    }
}

/// An allocation's whole record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Its number.
    pub id: AllocationId,
    /// Who submitted it: the token's principal.
    pub user: String,
    /// What was asked for.
    pub spec: AllocationSpec,
    /// Where it stands.
    pub state: AllocationState,
    /// When it entered that state.
    pub state_since: UnixMillis,
    /// When it was submitted.
    pub submitted_at: UnixMillis,
    /// When it could first have been placed (after dependencies and holds).
    pub eligible_at: UnixMillis,
    /// When its first attempt began to run.
    pub started_at: Option<UnixMillis>,
    /// When it reached a terminal state.
    pub ended_at: Option<UnixMillis>,
    /// Counts assignments, from 1; 0 before the first.
    pub attempt: u32,
    /// Ranks of the current, or last, attempt.
    pub ranks: Vec<Rank>,
    /// Why it is being or was stopped; `None` for a plain completion.
    pub stop: Option<StopCause>,
    /// Last change.
    pub revision: Revision,
    /// To what it belongs, and what was done to it.
    #[serde(default)]
    pub course: Course,
}

impl Allocation {
    /// The numbers of its elements; `None` for an allocation that is not an array.
    pub fn element_numbers(&self) -> Option<ElementNumbers<'_>> {
        let array = self.spec.terms.array.as_ref()?;
        Some(array.numbers(self.id))
    }

    /// The highest allocation number that the record takes: its own, or that of its last element.
    pub fn last_number(&self) -> AllocationId {
        self.element_numbers().map_or(self.id, ElementNumbers::last)
    }

    /// The nodes of the current, or last, attempt in rank order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeId> {
        self.ranks.iter().map(|r| &r.node)
    }
    /// The same without those it gave back before the others.
    pub fn kept_nodes(&self) -> impl Iterator<Item = &NodeId> {
        let kept = |rank: &&Rank| !matches!(rank.phase, RankPhase::Left { .. });
        self.ranks.iter().filter(kept).map(|rank| &rank.node)
    }
    /// Since when the present attempt runs on all nodes that it began with, by their clocks; `None` while it is not
    /// known to. A service begins with the least number of nodes, and ranks keep their places: those behind came
    /// later, and count where none of the first is left.
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
    /// Whether a rank has ended by itself: it has nothing left to write, and without its part no checkpoint is whole.
    pub fn has_ended_rank(&self) -> bool {
        let mut ranks = self.ranks.iter();
        ranks.any(|rank| matches!(rank.phase, RankPhase::Ended { .. }))
    }
    /// Walltime that the next attempt, or the present one, has from its begin on, milliseconds: what the
    /// checkpoint it goes on from has in it is used. `None` is unbounded.
    pub fn walltime_left_ms(&self) -> Option<u64> {
        let before_ms = self.before_ms();
        Some(self.spec.walltime_ms?.saturating_sub(before_ms).max(1))
    }
    /// When its walltime is over, by its nodes' clocks; `None` without one. An attempt that has not started yet is
    /// taken to start when it was assigned: its walltime then still lies ahead, and the end moves.
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
    /// How much of its walltime is used at `now`, milliseconds: what it goes on from, and what it has run
    /// since by its nodes' clocks.
    pub fn used_ms(&self, now: UnixMillis) -> u64 {
        let began = self.attempt_began_at().filter(|_| self.state.holds());
        let ran_ms = began.map_or(0, |began| now.since(began));
        self.before_ms().saturating_add(ran_ms)
    }
    /// What of its walltime was used before the present, or the next, attempt, milliseconds.
    fn before_ms(&self) -> u64 {
        match self.state.holds() {
            true => self.course.resumed_ms,
            false => self.course.kept.as_ref().map_or(0, |kept| kept.progress_ms),
        }
    }
    /// Nodes that it has in sensitive use.
    pub fn sensitive_nodes(&self) -> u64 {
        match self.spec.sensitive && self.state.holds() {
            true => u64::from(self.spec.nodes),
            false => 0,
        }
    }
}
