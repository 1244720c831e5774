//! Whom to ask for which part, and what an answer says.

use crate::{core::Core, error::AgentError, view::View};
use lattice_quorum_types::{
    Allocation, NodeId, UnixMillis,
    allocation::RankPhase,
    checkpoint::{CheckpointFailure, CheckpointOrder, CheckpointOutcome, CheckpointStatus},
    course::{AfterCheckpoint, RankCheckpoint},
    wire::{AttemptKey, CheckpointRefused, WriteCheckpoint},
};
use std::{collections::BTreeMap, time::Duration};

/// How long an agent may take to take down an order and answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer that was committed is asked for again when the quorum still shows no effect of it then.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
/// Between two questions, from the first on and at most: small checkpoints are short.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// At most while others wait for the nodes: what is asked late they wait longer.
const AWAITED_MS: u64 = 50;

/// One rank's part of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) key: AttemptKey,
    pub(super) number: u32,
    pub(super) node: NodeId,
    /// When the checkpoint was asked for.
    pub(super) asked_at: UnixMillis,
    /// Longest between two questions.
    pub(super) most_pause: Duration,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Asked {
    Stands(CheckpointStatus),
    /// There will be none, whatever is asked.
    Failed(String),
    NotReached(AgentError),
}

/// Every part that is not written yet.
pub(super) fn wanted(view: &View) -> BTreeMap<Part, CheckpointOrder> {
    let savers = view.savers.iter().filter_map(|id| view.allocation(*id));
    let parts = savers.flat_map(|held| parts(view, held));
    parts.collect()
}

fn parts(view: &View, held: &Allocation) -> Vec<(Part, CheckpointOrder)> {
    let Some(writing) = &held.course.writing else {
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
        // A thousand questions a second, of work on many nodes.
        AfterCheckpoint::MakeRoom { .. } | AfterCheckpoint::Suspend { .. } => {
            let ranks = u64::try_from(held.ranks.len()).unwrap_or(u64::MAX);
            Duration::from_millis(ranks.max(AWAITED_MS)).min(PAUSES.1)
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

/// Asks a rank's agent. A repeat says where it stands.
pub(super) async fn call(
    core: &Core,
    view: &View,
    part: &Part,
    order: CheckpointOrder,
    epoch: u64,
) -> Asked {
    let key = part.key;
    let request = WriteCheckpoint { key, epoch, order };
    let asked = core.agents.call(view, &part.node, &request, CALL_TIMEOUT);
    match asked.await {
        Ok(Ok(status)) => Asked::Stands(status),
        Ok(Err(refused @ (CheckpointRefused::NotPrepared | CheckpointRefused::Invalid { .. }))) => {
            Asked::Failed(refused.to_string())
        }
        // A later order, or one before it, or another asker: the quorum knows which.
        Ok(Err(refused)) => {
            let node = part.node.clone();
            Asked::NotReached(AgentError::Refused {
                node,
                reason: refused.to_string(),
            })
        }
        Err(error) => Asked::NotReached(error),
    }
}

/// A part of which nothing comes.
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

/// Until it is asked again: a tenth of the time that it has taken so far. So what is short is known soon, and
/// what is long costs few questions, unless somebody waits for it.
pub(super) fn pause(part: &Part, now: UnixMillis) -> Duration {
    let so_far = Duration::from_millis(now.since(part.asked_at));
    (so_far / 10).clamp(PAUSES.0, part.most_pause)
}
