//! Orphaned attempts: attempts that run on a node no longer held for them. The node was taken by force, the attempt was
//! superseded, or a restored quorum has no record of it.

use crate::{core::Core, error::AgentError};
use futures::future::join_all;
use lattice_agent_rpc::{AttemptKey, AttemptStatus, GetOrigin};
use lattice_quorum_types::{
    Allocation, NodeId, command::RankReport, origin::AttemptOrigin, wire::Unavailable,
};
use lattice_view::View;
use std::{collections::BTreeSet, time::Duration};

/// Timeout of a request for the origin of an attempt. Its audit entry must not wait long for a name.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why orphans could not be determined.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum OrphansError {
    /// The agent was not reached, or gave no valid answer.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The quorum did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Returns the orphans on a node, according to everything committed before this call.
pub(crate) async fn find_orphans(
    core: &Core,
    node: &NodeId,
) -> Result<Vec<AttemptKey>, OrphansError> {
    let statuses = list(core, node).await?;
    if !statuses.iter().any(runs) {
        return Ok(Vec::new());
    }
    let present = core.present_view().await?;
    still_reported(core, node, not_held(&present, node, &statuses)).await
}

/// Lists all attempts of an agent without an acknowledged end.
pub(crate) async fn list(core: &Core, node: &NodeId) -> Result<Vec<AttemptStatus>, AgentError> {
    core.agents.attempts(&core.view(), node).await
}

/// Returns the suspects that the agent still reports as running. An attempt that a view newer than the agent's first
/// answer does not show as held is never held again, because attempt numbers only grow. Such an attempt is therefore an
/// orphan.
pub(crate) async fn still_reported(
    core: &Core,
    node: &NodeId,
    suspects: Vec<AttemptKey>,
) -> Result<Vec<AttemptKey>, OrphansError> {
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    let suspects: BTreeSet<AttemptKey> = suspects.into_iter().collect();
    let still = list(core, node).await?;
    let still = still.iter().filter(|status| runs(status));
    let mut still: Vec<AttemptKey> = still
        .map(|status| status.key)
        .filter(|key| suspects.contains(key))
        .collect();
    still.dedup();
    Ok(still)
}

/// Adds origins to the attempts of allocations that the view does not have: their records may be lost.
pub(crate) async fn with_origins(
    core: &Core,
    view: &View,
    node: &NodeId,
    attempts: Vec<AttemptKey>,
) -> Vec<(AttemptKey, Option<AttemptOrigin>)> {
    let described = attempts.into_iter().map(|key| async move {
        let origin = match view.allocation(key.allocation) {
            Some(_) => None,
            None => origin(core, view, node, key).await,
        };
        (key, origin)
    });
    join_all(described).await
}

/// Requests the origin of an attempt; `None` if the node has no record of it, does not answer in time, or reports one that
/// no submit could have had.
async fn origin(core: &Core, view: &View, node: &NodeId, key: AttemptKey) -> Option<AttemptOrigin> {
    let request = GetOrigin { key };
    let answer = core.agents.call(view, node, &request, ORIGIN_TIMEOUT).await;
    let origin = answer
        .inspect_err(|error| tracing::debug!(%node, %error, "origin of attempt not available"))
        .ok()??;
    origin.invalid_field().is_none().then_some(origin)
}

/// Returns running attempts that the view does not show as held on this node.
pub(crate) fn not_held(view: &View, node: &NodeId, statuses: &[AttemptStatus]) -> Vec<AttemptKey> {
    let held = |key: &AttemptKey| {
        let allocation = view.allocation(key.allocation);
        allocation.is_some_and(|allocation| holds(allocation, *key, node))
    };
    let running = statuses.iter().filter(|status| runs(status));
    running
        .map(|status| status.key)
        .filter(|key| !held(key))
        .collect()
}

fn runs(status: &AttemptStatus) -> bool {
    !matches!(status.report, Some(RankReport::Ended { .. }))
}

/// Whether the node is held for this attempt and its rank there has not ended.
fn holds(allocation: &Allocation, key: AttemptKey, node: &NodeId) -> bool {
    let rank = allocation.ranks.iter().find(|rank| rank.node == *node);
    allocation.state.holds()
        && allocation.attempt == key.attempt
        && rank.is_some_and(|rank| !rank.phase.is_over())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{self, KEY};
    use lattice_quorum_types::{
        UnixMillis,
        allocation::{RankExit, RankPhase},
    };

    fn statuses(key: AttemptKey, report: Option<RankReport>) -> Vec<AttemptStatus> {
        vec![AttemptStatus { key, report }]
    }

    fn orphans(statuses: &[AttemptStatus], phase: RankPhase) -> Vec<AttemptKey> {
        let view = testing::view_of_rank("a", Some("b1"), phase, Some("b1"));
        not_held(&view, &testing::id("a"), statuses)
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
        assert_eq!(orphans(&statuses(KEY, None), runs()), []);
        assert_eq!(orphans(&statuses(earlier, None), runs()), [earlier]);
        let started = Some(RankReport::Started { at });
        assert_eq!(
            orphans(&statuses(earlier, started.clone()), runs()),
            [earlier]
        );
        let ended = Some(RankReport::Ended {
            at,
            exit: exit.clone(),
            fault: None,
        });
        assert_eq!(orphans(&statuses(earlier, ended), runs()), []);
        let over = RankPhase::Ended { at, exit };
        assert_eq!(orphans(&statuses(KEY, started), over), [KEY]);
    }
}
