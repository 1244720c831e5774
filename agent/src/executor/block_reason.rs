//! Block reasons: reasons to place no job on this node, and other faults, apart from its hardware.

use lattice_agent_rpc::AttemptKey;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// Reason to place no job on a node, or fault for the operator to inspect ([`BlockReason::blocks_jobs`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockReason {
    /// The configuration disables the executor.
    Off,
    /// Attempts cannot be recorded.
    Journal,
    /// Processes of an attempt without a record are running.
    Orphans,
    /// Processes that claim to belong to this agent run without a record or proof, and have outlasted the hold time.
    Strays,
    /// The hooks after a rank have not completed since the node rebooted.
    Finishing,
    /// The start of a process hangs before it reaches its program. The attempt holds its node anyway.
    Starting,
    /// The site's health gate failed, or has not passed yet.
    Gate,
}

impl BlockReason {
    /// Reason code that the node announces.
    pub fn code(self) -> &'static str {
        match self {
            Self::Off => "executor.off",
            Self::Journal => "executor.journal",
            Self::Orphans => "executor.orphans",
            // Control treats any code that begins with `executor.` as a reason to place no job.
            Self::Strays => "orphans.left",
            Self::Starting => "start.hangs",
            Self::Finishing => "executor.finishing",
            Self::Gate => "executor.gate",
        }
    }

    /// Whether the reason keeps jobs away from the node.
    pub fn blocks_jobs(self) -> bool {
        !matches!(self, Self::Strays | Self::Starting)
    }
}

/// Present block reasons, except [`BlockReason::Off`] and [`BlockReason::Journal`].
#[derive(Debug)]
pub(super) struct BlockReasons {
    active: watch::Sender<ActiveBlockReasons>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct ActiveBlockReasons {
    gate: Option<String>,
    attempts: BTreeMap<BlockReason, BTreeSet<AttemptKey>>,
}

impl BlockReasons {
    pub(super) fn new() -> Self {
        Self {
            active: watch::Sender::new(ActiveBlockReasons::default()),
        }
    }

    /// Present block reasons; `changes` notifies of each change.
    pub(super) fn active(&self) -> Vec<BlockReason> {
        let held = self.active.borrow();
        let gate = held.gate.is_some().then_some(BlockReason::Gate);
        held.attempts.keys().copied().chain(gate).collect()
    }

    /// Receiver that resolves when a block reason has changed since the receiver was last read.
    pub(super) fn changes(&self) -> BlockReasonChanges {
        BlockReasonChanges(self.active.subscribe())
    }

    /// Records the result of the gate; `None`: passed.
    pub(super) fn record_gate_result(&self, failure: Option<String>) {
        self.active.send_if_modified(|held| {
            let is_news = held.gate != failure;
            held.gate = failure;
            is_news
        });
    }

    /// Records `key` as a cause of the block reason.
    pub(super) fn add(&self, reason: BlockReason, key: AttemptKey) {
        self.active
            .send_if_modified(|held| held.attempts.entry(reason).or_default().insert(key));
    }

    /// Removes `key` as a cause of the block reason.
    pub(super) fn remove(&self, reason: BlockReason, key: AttemptKey) {
        self.active.send_if_modified(|held| {
            let Some(keys) = held.attempts.get_mut(&reason) else {
                return false;
            };
            let was_there = keys.remove(&key);
            if keys.is_empty() {
                held.attempts.remove(&reason);
            }
            was_there
        });
    }

    /// Attempts that cause the block reason.
    pub(super) fn attempts(&self, reason: BlockReason) -> BTreeSet<AttemptKey> {
        let held = self.active.borrow();
        held.attempts.get(&reason).cloned().unwrap_or_default()
    }
}

/// Receiver of changes of an executor's block reasons.
#[derive(Debug, Clone)]
pub struct BlockReasonChanges(watch::Receiver<ActiveBlockReasons>);

impl BlockReasonChanges {
    /// Marks all changes up to now as seen.
    pub fn mark_seen(&mut self) {
        self.0.mark_unchanged();
    }
    /// Waits for the next change; `false` once the executor is dropped.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}
