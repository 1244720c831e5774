//! How a node is: its own health checks, by a pass that is made for this question, and what its BMC
//! names, by a look that is. Each answers for its own, and either is enough to drain it.

use super::{
    Answer, Freshness,
    bmc::{self, Bmc},
};
use crate::{core::Core, error::AgentError, node_health::NodeHealth, view::View};
use lattice_quorum_types::{NodeId, wire::GetHealth};

/// What is younger counts as of just now, milliseconds. An agent reads its node when it starts, and
/// gossip and its document take a few seconds until it is asked here. Passes are a minute apart, so
/// of a node that runs for longer a new one is asked for.
const RECENT_MS: u64 = 10_000;

/// Asks the node whether its checks name anything that needs it empty, and its BMC whether it does.
/// Whoever is suspected is asked first: one that drains is enough, and the other may be silent.
///
/// # Errors
/// When the node does not answer, or cannot look, and its BMC names nothing.
pub(crate) async fn ask(
    core: &Core,
    view: &View,
    node: &NodeId,
    freshness: &Freshness,
    bmc: &Bmc<'_>,
) -> Result<Answer, AgentError> {
    let was_named = was_named(view, node);
    if bmc.is_suspect()
        && let drains @ Answer::Drains(_) = bmc.health(was_named).await
    {
        return Ok(drains);
    }
    let own = of_node(core, view, node, freshness).await;
    if let Ok(Answer::Drains(_)) = own {
        return own;
    }
    match (own, bmc.health(was_named).await) {
        (_, drains @ Answer::Drains(_)) => Ok(drains),
        (Ok(Answer::Unknown(own)), Answer::Unknown(bmc)) => {
            Ok(Answer::Unknown(format!("{own}; {bmc}")))
        }
        (Ok(Answer::Fine), unknown @ Answer::Unknown(_)) => Ok(unknown),
        (own, _) => own,
    }
}

/// What its BMC named, where a service keeps it out for that.
fn was_named<'v>(view: &'v View, node: &NodeId) -> Option<&'v str> {
    let record = view.node(node).and_then(|entry| entry.record.as_ref());
    let drains = record.into_iter().flat_map(|record| &record.drain);
    let mut of_services = drains.filter(|drain| drain.owner.starts_with("service:"));
    of_services.find_map(|drain| bmc::named_in(&drain.reason))
}

async fn of_node(
    core: &Core,
    view: &View,
    node: &NodeId,
    freshness: &Freshness,
) -> Result<Answer, AgentError> {
    let request = |fresh| GetHealth {
        fresh,
        clear: None,
        by: freshness.by(),
    };
    if *freshness == Freshness::Recent {
        let last = core.agents.health(view, node, &request(false)).await?;
        if !last.enabled || last.read_age_ms.is_some_and(|age| age < RECENT_MS) {
            return Ok(said(&last));
        }
    }
    let now = core.agents.health(view, node, &request(true)).await?;
    Ok(said(&now))
}

/// A node whose checks are switched off passes: somebody decided that. One whose checks see nothing
/// does not.
fn said(health: &NodeHealth) -> Answer {
    if !health.enabled {
        return Answer::Fine;
    }
    match health.drains() {
        Some(reason) => Answer::Drains(reason),
        None if health.blind.is_empty() => Answer::Fine,
        None => {
            let blind: Vec<&str> = health.blind.iter().take(4).map(String::as_str).collect();
            Answer::Unknown(format!("its checks see nothing: {}", blind.join(", ")))
        }
    }
}
