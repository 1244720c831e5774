//! Node wipes after a node claim: calls each agent until it reports the result of the wipe, and commits that result.
//!
//! The agent wipes once per order and answers a repeat with its recorded result. After a restart of either side,
//! repeating the call is therefore sufficient.

#[cfg(test)]
mod tests;

use crate::{
    core::Core,
    tasks::reconciler::{Reconciler, ReconcilerPace},
};
use futures::{StreamExt, stream};
use lattice_agent_rpc::{Wipe, WipeStatus};
use lattice_placement::Liveness;
use lattice_quorum_types::{Command, NodeId, command::Fence};
use lattice_view::View;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Pace of the reconciler; a wipe takes from seconds to hours.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(2),
    spacing: Duration::from_millis(250),
};
/// Timeout of a call; an agent answers at once that the wipe is running.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of agents called concurrently.
const MAX_CALLS: usize = 64;

/// Wipe reconciler; see the module.
#[derive(Debug)]
pub struct Wipes {
    core: Arc<Core>,
    /// Last failure of each pending wipe, so that each failure is logged once.
    logged_failures: BTreeMap<NodeId, String>,
}

impl Reconciler for Wipes {
    const NAME: &'static str = "wipe";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        self.reconcile(&fence).await;
    }

    fn forget(&mut self) {
        self.logged_failures.clear();
    }
}

impl Wipes {
    /// New [`Wipes`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            logged_failures: BTreeMap::new(),
        }
    }

    /// Calls the agent of every pending wipe. Returns the number of wipes that ended.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> usize {
        let view = self.core.view();
        let due = due(&view);
        self.logged_failures
            .retain(|node, _| due.iter().any(|(id, _)| id == node));
        let (core, asked_in) = (&self.core, &view);
        let calls = due.into_iter().map(|(node, wipe)| async move {
            let answer = core.agents.call(asked_in, &node, &wipe, CALL_TIMEOUT).await;
            let answer = answer.map_err(|error| error.to_string());
            (node, wipe.number, answer.and_then(|answer| answer))
        });
        let calls: Vec<_> = calls.collect();
        let mut answers = stream::iter(calls).buffer_unordered(MAX_CALLS);
        let (mut ended, mut said) = (0, Vec::new());
        while let Some((node, wipe, answer)) = answers.next().await {
            let outcome = match answer {
                Ok(WipeStatus::Ended(outcome)) => outcome,
                Ok(WipeStatus::Running { .. }) => continue,
                Err(reason) => {
                    said.push((node, reason));
                    continue;
                }
            };
            let words = outcome.to_string();
            let command = Command::ReportWipe {
                node: node.clone(),
                wipe,
                outcome,
            };
            match core.propose_as_service(Some(fence.clone()), command).await {
                Ok(_) => {
                    tracing::info!(%node, wipe, outcome = words, "node wipe ended");
                    ended += 1;
                }
                Err(error) => {
                    tracing::warn!(%node, wipe, %error, "result of node wipe not committed yet")
                }
            }
        }
        drop(answers);
        for (node, reason) in said {
            if self.logged_failures.get(&node) != Some(&reason) {
                tracing::warn!(%node, reason, "node not wiped yet");
                self.logged_failures.insert(node, reason);
            }
        }
        ended
    }
}

/// Nodes that wait for a wipe, without unreachable ones.
fn due(view: &View) -> Vec<(NodeId, Wipe)> {
    let due = view.nodes.values().filter_map(|entry| {
        let node_claim = entry.record.as_ref()?.node_claim.as_ref()?;
        let number = node_claim.awaits_wipe()?;
        (entry.liveness != Liveness::Unreachable).then(|| {
            let wipe = Wipe {
                number,
                user: node_claim.user.clone(),
                project: node_claim.project.to_string(),
            };
            (entry.id.clone(), wipe)
        })
    });
    due.collect()
}
