//! Attempts that run on a node which is not held for them any more: taken from it by force,
//! overtaken, or unknown to a quorum that was restored.

use crate::{core::Core, error::AgentError, view::View};
use lattice_quorum_types::{
    Allocation, NodeId,
    allocation::RankPhase,
    command::RankReport,
    view::{Answer, Query},
    wire::{AttemptKey, AttemptStatus, ListAttempts, Unavailable},
};
use std::{collections::BTreeSet, time::Duration};

/// How long an agent may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why it could not be told.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum OrphansError {
    /// The agent was not reached.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The quorum did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// What runs on a node and is not its own any more.
pub(crate) async fn of(core: &Core, node: &NodeId) -> Result<Vec<AttemptKey>, OrphansError> {
    let told = list(core, node).await?;
    among(core, node, &told).await
}

/// All attempts an agent knows whose end is not acknowledged.
pub(crate) async fn list(core: &Core, node: &NodeId) -> Result<Vec<AttemptStatus>, AgentError> {
    core.agents
        .call(&core.view(), node, &ListAttempts, CALL_TIMEOUT)
        .await
}

/// Those of `told` that are orphans. What is not held by a linearizable read never will be held
/// again, for attempts only grow; what its agent then still names without an end, runs.
pub(crate) async fn among(
    core: &Core,
    node: &NodeId,
    told: &[AttemptStatus],
) -> Result<Vec<AttemptKey>, OrphansError> {
    let suspects = not_held(&core.view(), node, told);
    let mut orphans = BTreeSet::new();
    for key in suspects {
        let id = key.allocation;
        let held = match core.store.read(Query::Allocation { id }).await? {
            Answer::Allocation(Some(allocation)) => holds(&allocation, key, node),
            _ => false,
        };
        if !held {
            orphans.insert(key);
        }
    }
    if orphans.is_empty() {
        return Ok(Vec::new());
    }
    let still = list(core, node).await?;
    let still = still.iter().filter(|status| runs(status));
    Ok(still
        .map(|status| status.key)
        .filter(|key| orphans.contains(key))
        .collect())
}

/// Attempts without an end that the view does not show on this node.
fn not_held(view: &View, node: &NodeId, told: &[AttemptStatus]) -> Vec<AttemptKey> {
    let held = |key: &AttemptKey| {
        let allocation = view.allocation(key.allocation);
        allocation.is_some_and(|allocation| holds(allocation, *key, node))
    };
    let running = told.iter().filter(|status| runs(status));
    running
        .map(|status| status.key)
        .filter(|key| !held(key))
        .collect()
}

fn runs(status: &AttemptStatus) -> bool {
    !matches!(status.report, Some(RankReport::Ended { .. }))
}

/// Whether the node is held for this attempt, and its rank there has not ended.
fn holds(allocation: &Allocation, key: AttemptKey, node: &NodeId) -> bool {
    let rank = allocation.ranks.iter().find(|rank| rank.node == *node);
    allocation.state.holds()
        && allocation.attempt == key.attempt
        && rank.is_some_and(|rank| !matches!(rank.phase, RankPhase::Ended { .. }))
}

/// As people read them.
pub(crate) fn names(attempts: &[AttemptKey]) -> String {
    let name = |key: &AttemptKey| format!("allocation {} attempt {}", key.allocation, key.attempt);
    let names: Vec<String> = attempts.iter().map(name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{self, KEY};
    use lattice_quorum_types::{UnixMillis, allocation::RankExit};

    fn told(key: AttemptKey, report: Option<RankReport>) -> Vec<AttemptStatus> {
        vec![AttemptStatus { key, report }]
    }

    fn orphans(told: &[AttemptStatus], phase: RankPhase) -> Vec<AttemptKey> {
        let view = testing::view_of_rank("a", Some("b1"), phase, Some("b1"));
        not_held(&view, &testing::id("a"), told)
    }

    #[test]
    fn what_runs_and_is_not_held_is_an_orphan() {
        let at = UnixMillis(1);
        let exit = RankExit::Stopped;
        let runs = || RankPhase::Running { at };
        let earlier = AttemptKey {
            attempt: KEY.attempt - 1,
            ..KEY
        };
        assert_eq!(orphans(&told(KEY, None), runs()), []);
        assert_eq!(orphans(&told(earlier, None), runs()), [earlier]);
        let started = Some(RankReport::Started { at });
        assert_eq!(orphans(&told(earlier, started.clone()), runs()), [earlier]);
        let ended = Some(RankReport::Ended {
            at,
            exit: exit.clone(),
            fault: None,
        });
        assert_eq!(orphans(&told(earlier, ended), runs()), []);
        let over = RankPhase::Ended { at, exit };
        assert_eq!(orphans(&told(KEY, started), over), [KEY]);
    }
}
