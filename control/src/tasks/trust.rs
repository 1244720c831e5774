//! Who is trusted, handed on: the trust bundle in force here is pushed to every agent that lives,
//! once it changes and whenever an agent was started anew. Agents ask for it themselves as well,
//! but seldom; what a bundle revokes must end soon.
//!
//! Every control pushes: it needs no lease, for agents judge a bundle by its signature and number.

use crate::{
    core::{Core, TrustNews},
    tasks::activation::Activation,
    view::NodeEntry,
};
use futures::StreamExt;
use lattice_mesh::{PushTrust, SignedBundle};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    view::{Answer, Query},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Revocations that come together are pushed together.
const SPACING: Duration = Duration::from_millis(100);
/// How long an agent may take to put a bundle in force.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// An agent that did not take it is told again after this long.
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// A bundle that is not here yet is asked for again after this long; doubles.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Longest wait until it is asked for again.
const ASK_AGAIN_AT_LAST: Duration = Duration::from_secs(5);
/// Between two looks at our own certificate.
const OWN_PERIOD: Duration = Duration::from_secs(1);
/// Agents told at a time.
const MAX_CALLS: usize = 64;

/// What one run of an agent is known to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    generation: Option<u64>,
    number: u64,
    /// When it is told again, after it did not take this number.
    again: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Trust {
    core: Arc<Core>,
    told: BTreeMap<NodeId, Told>,
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrustReport {
    /// Agents that have the bundle now.
    pub(crate) told: usize,
    /// Agents that did not take it.
    pub(crate) failed: usize,
}

impl Trust {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            told: BTreeMap::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let period = PERIOD.min(self.core.timings.trust_every);
        let mut activation = Activation::new(&self.core, period, SPACING);
        let mut in_force = self.core.agents.mesh().watch_trust();
        loop {
            tokio::select! {
                () = activation.next() => {}
                Ok(()) = in_force.changed() => {}
            }
            let report = self.reconcile().await;
            if report != TrustReport::default() {
                let number = self.core.agents.mesh().trust_state().number;
                tracing::debug!(number, ?report, "trust bundle pushed");
            }
        }
    }

    /// Tells every agent that lives and does not have what is in force here.
    pub(crate) async fn reconcile(&mut self) -> TrustReport {
        let Some(bundle) = self.core.agents.mesh().bundle() else {
            return TrustReport::default();
        };
        let number = self.core.agents.mesh().trust_state().number;
        let view = self.core.view();
        self.told.retain(|node, _| view.node(node).is_some());
        let now = Instant::now();
        let due = |entry: &&Arc<NodeEntry>| {
            let told = self.told.get(&entry.id);
            entry.liveness == Liveness::Alive && is_due(told, generation(entry), number, now)
        };
        let due: Vec<Arc<NodeEntry>> = view.nodes.values().filter(due).cloned().collect();
        let (core, view, bundle) = (&self.core, &view, &bundle);
        let tell = |entry: Arc<NodeEntry>| {
            let (node, generation) = (entry.id.clone(), generation(&entry));
            async move {
                let has = tell(core, view, &node, bundle.clone()).await;
                (node, generation, has)
            }
        };
        let mut answers =
            futures::stream::iter(due.into_iter().map(tell)).buffer_unordered(MAX_CALLS);
        let mut report = TrustReport::default();
        while let Some((node, generation, has)) = answers.next().await {
            let again = match has {
                Ok(has) if has >= number => {
                    report.told += 1;
                    None
                }
                Ok(_) => Some(Instant::now() + TELL_AGAIN),
                Err(reason) => {
                    tracing::info!(%node, reason, "an agent did not take the trust bundle");
                    report.failed += 1;
                    Some(Instant::now() + TELL_AGAIN)
                }
            };
            let told = Told {
                generation,
                number,
                again,
            };
            self.told.insert(node, told);
        }
        report
    }
}

/// Fetches the bundle that the quorum's state demands: a member may have heard of it later than we,
/// so it is asked for until it is here.
pub(crate) async fn catch_up(core: Arc<Core>) {
    let mut news = core.trust_news();
    let mut pause = ASK_AGAIN;
    loop {
        let heard = *news.borrow_and_update();
        let wanted = match heard {
            TrustNews::Number(number) => Some(number),
            TrustNews::Unknown => match core.read(Query::Trust).await {
                Ok(Answer::Trust(trust)) => Some(trust.number),
                Ok(_) | Err(_) => None,
            },
        };
        let in_force = core.agents.mesh().trust_state().number;
        if wanted.is_some_and(|wanted| wanted.0 <= in_force) {
            if news.changed().await.is_err() {
                return;
            }
            pause = ASK_AGAIN;
            continue;
        }
        core.asks_for_trust();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ASK_AGAIN_AT_LAST);
    }
}

/// Says in the log when this control's own certificate needs somebody's attention. Nothing else
/// follows here: a revoked control is let in by nobody, so its leases run out and another one
/// takes over; to enrol anew is an operator's decision.
pub(crate) async fn watch_own(core: Arc<Core>) {
    let mut said = None;
    loop {
        let problem = core.certificate_problem();
        if said != problem {
            let state = core.certificate();
            let error = state.as_ref().and_then(|state| state.last_error.clone());
            match problem {
                Some(reason) => tracing::error!(reason, ?error, "this control's certificate"),
                None => tracing::info!("this control's certificate is good again"),
            }
            said = problem;
        }
        tokio::time::sleep(OWN_PERIOD).await;
    }
}

async fn tell(
    core: &Core,
    view: &crate::View,
    node: &NodeId,
    bundle: SignedBundle,
) -> Result<u64, String> {
    let request = PushTrust { bundle };
    let called = core.agents.call(view, node, &request, CALL_TIMEOUT).await;
    called
        .map_err(|error| error.to_string())?
        .map_err(|refused| refused.to_string())
}

fn generation(entry: &NodeEntry) -> Option<u64> {
    entry.seen.as_ref().map(|seen| seen.generation)
}

fn is_due(told: Option<&Told>, generation: Option<u64>, number: u64, now: Instant) -> bool {
    let same = |told: &&Told| told.generation == generation && told.number == number;
    match told.filter(same) {
        None => true,
        Some(told) => told.again.is_some_and(|again| again <= now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_when_it_or_the_bundle_is_another_one() {
        let now = Instant::now();
        let has = Told {
            generation: Some(1),
            number: 7,
            again: None,
        };
        assert!(is_due(None, Some(1), 7, now));
        assert!(!is_due(Some(&has), Some(1), 7, now));
        assert!(is_due(Some(&has), Some(2), 7, now));
        assert!(is_due(Some(&has), Some(1), 8, now));
        let failed = Told {
            again: Some(now + TELL_AGAIN),
            ..has
        };
        assert!(!is_due(Some(&failed), Some(1), 7, now));
        assert!(is_due(Some(&failed), Some(1), 7, now + TELL_AGAIN));
        assert!(is_due(Some(&failed), Some(1), 8, now));
    }
}
