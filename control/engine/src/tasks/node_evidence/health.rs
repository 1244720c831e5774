//! Health of a node: a fresh pass of its own health checks, and the faults in a fresh BMC reading. Agent and BMC answer
//! separately, and a fault from either is sufficient to drain the node.

use super::{
    Answer, Freshness,
    bmc::{self, Bmc},
};
use crate::{core::Core, error::AgentError, node_health::NodeHealth};
use lattice_agent_rpc::GetHealth;
use lattice_quorum_types::NodeId;
use lattice_view::View;

/// Maximum age of a pass that counts as recent, milliseconds. An agent reads its node when it starts, and its gossip
/// and document take a few seconds to arrive here. Passes are a minute apart, so for a node that has run longer a new
/// pass is requested.
const RECENT_MS: u64 = 10_000;

/// Checks whether health checks or BMC report a fault that requires an empty node. A suspected BMC is read first: one
/// fault is sufficient, and the agent may be silent.
///
/// # Errors
/// The node does not answer or cannot run its checks, and its BMC reports no fault.
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
        (Ok(Answer::Healthy), unknown @ Answer::Unknown(_)) => Ok(unknown),
        (own, _) => own,
    }
}

/// Fault reported by the BMC in a drain reason of a service.
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
            return Ok(health_answer(&last));
        }
    }
    let now = core.agents.health(view, node, &request(true)).await?;
    Ok(health_answer(&now))
}

/// Disabled health checks pass, because an operator has decided so. Health checks without any data do not.
fn health_answer(health: &NodeHealth) -> Answer {
    if !health.enabled {
        return Answer::Healthy;
    }
    match health.drains() {
        Some(reason) => Answer::Drains(reason),
        None if health.blind.is_empty() => Answer::Healthy,
        None => {
            let blind: Vec<&str> = health.blind.iter().take(4).map(String::as_str).collect();
            Answer::Unknown(format!("health checks without data: {}", blind.join(", ")))
        }
    }
}
