//! Checkpoint requests: which agent to call for which part, and how to read its answer.

use crate::{core::Core, error::AgentError};
use lattice_agent_rpc::{
    AttemptKey, CheckpointOrder, CheckpointRefused, CheckpointStatus, WriteCheckpoint,
};
use lattice_quorum_types::{
    Allocation, NodeId, UnixMillis,
    allocation::RankPhase,
    checkpoint::{CheckpointFailure, CheckpointOutcome},
    progress::{AfterCheckpoint, RankCheckpoint},
};
use lattice_view::View;
use std::{collections::BTreeMap, time::Duration};

/// Timeout for an agent to record an order and answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a part is requested again after a final answer with no effect in the quorum yet, or after a failed
/// call.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
/// Shortest and longest pause between two requests. The pause starts short, because small checkpoints are short.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Longest pause while other jobs wait for the nodes, milliseconds: a late request prolongs their wait.
const MAX_PAUSE_AWAITED_MS: u64 = 50;

/// Part of one rank in one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) key: AttemptKey,
    pub(super) number: u32,
    pub(super) node: NodeId,
    /// When the checkpoint was requested.
    pub(super) asked_at: UnixMillis,
    /// Longest pause between two requests.
    pub(super) most_pause: Duration,
}

/// Result of a request.
#[derive(Debug)]
pub(super) enum RequestOutcome {
    Status(CheckpointStatus),
    /// The part can never be written, whatever is requested.
    Failed(String),
    NotReached(AgentError),
}

/// Returns every part that is not yet written.
pub(super) fn wanted(view: &View) -> BTreeMap<Part, CheckpointOrder> {
    let savers = view
        .checkpointable
        .iter()
        .filter_map(|id| view.allocation(*id));
    let parts = savers.flat_map(|held| parts(view, held));
    parts.collect()
}

fn parts(view: &View, held: &Allocation) -> Vec<(Part, CheckpointOrder)> {
    let Some(writing) = &held.progress.writing else {
        return Vec::new();
    };
    let policy = view.movement_of(&held.spec.vcluster).checkpoint;
    let deadlines = policy.deadlines(held.spec.sensitive);
    let timeout_ms = writing.until.since(writing.asked_at);
    let order = CheckpointOrder {
        number: writing.number,
        directory: writing.directory.clone(),
        timeout_ms,
        extension_ms: deadlines.extended_ms().saturating_sub(deadlines.timeout_ms),
        most_deferrals: deadlines.max_deferrals,
        most_deferral_ms: deadlines.max_deferral_ms,
    };
    let most_pause = match writing.then {
        AfterCheckpoint::GoOn => PAUSES.1,
        // Limits the rate to about a thousand requests per second for a job on up to a thousand nodes.
        AfterCheckpoint::MakeRoom { .. } | AfterCheckpoint::Suspend { .. } => {
            let ranks = u64::try_from(held.ranks.len()).unwrap_or(u64::MAX);
            Duration::from_millis(ranks.max(MAX_PAUSE_AWAITED_MS)).min(PAUSES.1)
        }
    };
    let ranks = (0..).zip(&held.ranks);
    let missing = ranks.filter(|(rank, of)| {
        let runs = matches!(
            of.phase,
            RankPhase::Running { .. } | RankPhase::Leaving { .. }
        );
        runs && !writing.written.contains(rank)
    });
    let part = |(_, of): (u32, &lattice_quorum_types::allocation::Rank)| {
        let part = Part {
            key: AttemptKey {
                allocation: held.id,
                attempt: held.attempt,
            },
            number: writing.number,
            node: of.node.clone(),
            asked_at: writing.asked_at,
            most_pause,
        };
        (part, order.clone())
    };
    missing.map(part).collect()
}

/// Sends the order to the agent of a rank. A repeated order returns the current status.
pub(super) async fn call(
    core: &Core,
    view: &View,
    part: &Part,
    order: CheckpointOrder,
    epoch: u64,
) -> RequestOutcome {
    let key = part.key;
    let request = WriteCheckpoint { key, epoch, order };
    let asked = core.agents.call(view, &part.node, &request, CALL_TIMEOUT);
    match asked.await {
        Ok(Ok(status)) => RequestOutcome::Status(status),
        Ok(Err(refused @ (CheckpointRefused::NotPrepared | CheckpointRefused::Invalid { .. }))) => {
            RequestOutcome::Failed(refused.to_string())
        }
        // The agent has received a newer epoch or order, or still writes the previous checkpoint; the call is repeated
        // while the quorum wants the part.
        Ok(Err(refused)) => {
            let node = part.node.clone();
            RequestOutcome::NotReached(AgentError::Refused {
                node,
                reason: refused.to_string(),
            })
        }
        Err(error) => RequestOutcome::NotReached(error),
    }
}

/// Report of a part that will not be written.
pub(super) fn failed(part: &Part, at: UnixMillis, reason: String) -> RankCheckpoint {
    RankCheckpoint {
        number: part.number,
        outcome: CheckpointOutcome::Failed {
            at,
            cause: CheckpointFailure::Declined,
            reason,
        },
    }
}

/// Pause before the next request: a tenth of the time taken so far. The end of a short checkpoint is noticed soon, and
/// a long one costs few requests, unless another job waits for its nodes.
pub(super) fn pause(part: &Part, now: UnixMillis) -> Duration {
    let so_far = Duration::from_millis(now.since(part.asked_at));
    (so_far / 10).clamp(PAUSES.0, part.most_pause)
}
