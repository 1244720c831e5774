//! States of an allocation.

use serde::{Deserialize, Serialize};
use std::fmt;

/// State of an allocation. Transitions: `Blocked ⇄ Pending ⇄ Held; Blocked → Held; Pending → Starting → Running ⇄
/// Checkpointing; holding states → (Stopping →) Pending | Suspended | Completed | Failed | Cancelled; Suspended →
/// Pending`. An allocation that holds no nodes can also end directly, as `Cancelled`. A job array never holds nodes: it
/// ends once its last element has ended, as `Completed`, `Failed` or `Cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// Waits for other allocations: a dependency or a mutex. A job array also waits here while none of its elements can
    /// be placed.
    Blocked,
    /// Waits for nodes; holds none.
    Pending,
    /// Held by the user or an operator; holds no nodes.
    Held,
    /// Holds nodes; the processes are being started.
    Starting,
    /// The processes run.
    Running,
    /// Runs and writes a checkpoint.
    Checkpointing,
    /// Still holds nodes while the processes are ended and confirmed gone.
    Stopping,
    /// Holds no nodes until resumed. On resumption the allocation continues from its last complete checkpoint, if there
    /// is one.
    Suspended,
    /// Every rank exited with code 0.
    Completed,
    /// A rank failed, the walltime ran out, a node was lost, or the allocation was stopped for another reason and is
    /// not queued again.
    Failed,
    /// Cancelled on request, or ended while waiting: the deadline or a dependency could not be met any more.
    Cancelled,
}

impl AllocationState {
    /// All states, in the order of their encoding.
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
    /// Checks whether the allocation holds nodes and counts against limits.
    pub fn holds(self) -> bool {
        use AllocationState::*;
        matches!(self, Starting | Running | Checkpointing | Stopping)
    }
    /// Checks whether the state is final.
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
