//! Hardware health of a node: its own health checks, and the faults reported by its BMC.

use super::{conformance, node_id, nodes, time};
use crate::caller::{Caller, Role};
use crate::state::Api;
use lattice_agent_rpc::{ClearReason, GetHealth};
use lattice_api::{
    health::{ClearRequest, NodeHealthView, ReasonView},
    problem::Problem,
};
use lattice_conformance::{Class, Inventory, health::Reason};
use lattice_engine::{AgentError, Core, node_health::NodeHealth};
use lattice_placement::Health;
use lattice_quorum_types::{NodeId, UnixMillis};
use lattice_view::node::{EXECUTOR_REASONS, SILENT};
use serde::Serialize;
use std::cmp::Reverse;

/// Returns the faults of a node by its health checks and its BMC, from the last pass and reading or, with `fresh`, from
/// new ones.
pub(crate) async fn show(
    api: &Api,
    caller: &Caller,
    node: &str,
    fresh: bool,
) -> Result<NodeHealthView, Problem> {
    let core = api.core();
    if fresh {
        caller.check_role(Role::Operator, "reading the node again (fresh=true)")?;
    }
    let request = GetHealth {
        fresh,
        clear: None,
        by: Some(caller.name.to_string()),
    };
    let id = node_id(node)?;
    let look = async {
        if fresh {
            nodes::read_bmc(api, &id, caller).await;
        }
    };
    let (agent_health, ()) = tokio::join!(query_agent(core, &id, &request), look);
    health_view(api, &id, agent_health).await
}

/// Clears reasons of the health checks after a repair. A persisting fault returns with the next pass.
pub(crate) async fn clear(
    api: &Api,
    caller: &Caller,
    node: &str,
    request: ClearRequest,
) -> Result<NodeHealthView, Problem> {
    let core = api.core();
    caller.check_role(Role::Operator, "clearing a node's health reasons")?;
    let request = GetHealth {
        fresh: false,
        clear: Some(ClearReason {
            code: request.code,
            entity: request.entity,
        }),
        by: Some(caller.name.to_string()),
    };
    let id = node_id(node)?;
    // Reasons from a BMC end only when the BMC reports so.
    let agent_health = query_agent(core, &id, &request).await;
    let agent_health = agent_health.map_err(|error| nodes::agent_problem(&error))?;
    health_view(api, &id, Ok(agent_health)).await
}

async fn query_agent(
    core: &Core,
    node: &NodeId,
    request: &GetHealth,
) -> Result<NodeHealth, AgentError> {
    let agent_health = core.agents.health(&core.view(), node, request).await?;
    if agent_health.enabled {
        return Ok(agent_health);
    }
    let reason = "health checks are disabled on this node (health.disabled)";
    let (node, reason) = (node.clone(), reason.to_owned());
    Err(AgentError::Refused { node, reason })
}

/// Combines the answers of agent and BMC. If the agent gives no answer, the BMC reasons are shown with the error of the
/// agent. For a node that does not answer, its last known pass is shown as well.
async fn health_view(
    api: &Api,
    node: &NodeId,
    agent_health: Result<NodeHealth, AgentError>,
) -> Result<NodeHealthView, Problem> {
    let bmc = api.stores().readings.parts(node);
    let (agent_health, agent_error) = match agent_health {
        Ok(agent_health) => (Ok(agent_health), None),
        Err(error @ AgentError::UnknownNode { .. }) => return Err(nodes::agent_problem(&error)),
        Err(error) => {
            let before = last_known_reasons(api, node, &error).await;
            if before.is_none() && bmc.is_none() {
                return Err(nodes::agent_problem(&error));
            }
            (Err(before), Some(error.to_string()))
        }
    };
    let agents: &[Reason] = match &agent_health {
        Ok(agent_health) => &agent_health.report.reasons,
        Err(Some((before, _))) => before,
        Err(None) => &[],
    };
    let bmcs = bmc.iter().flat_map(|parts| &parts.reasons);
    let agents = agents.iter();
    let agents = agents.map(|reason| (Reverse(reason.severity), reason_view(reason, "agent")));
    let mut reasons: Vec<_> = agents
        .chain(bmcs.map(|reason| (Reverse(reason.severity), reason_view(reason, "bmc"))))
        .collect();
    // The sort is stable: the order within a severity is kept.
    reasons.sort_by_key(|(severity, _)| *severity);
    let mut reasons: Vec<ReasonView> = reasons.into_iter().map(|(_, reason)| reason).collect();
    reasons.extend(other_reasons(api, node, &reasons).await);
    let as_of = agent_health.as_ref().err().and_then(Option::as_ref);
    let as_of = as_of.map(|(_, at)| time(*at));
    let agent_health = agent_health.ok();
    Ok(NodeHealthView {
        node: node.to_string(),
        table: agent_health
            .as_ref()
            .map(|health| health.report.table.clone())
            .unwrap_or_default(),
        reasons,
        cleared: agent_health
            .map(|health| health.cleared)
            .unwrap_or_default(),
        agent_error,
        bmc_read_at: bmc
            .filter(|parts| parts.was_asked)
            .map(|parts| time(parts.read_at)),
        as_of,
    })
}

/// Last known reasons of a node that does not answer, and when it was last present. `None` for a node that answers with
/// a refusal, because its state is unknown, and for one that is not silent.
async fn last_known_reasons(
    api: &Api,
    node: &NodeId,
    error: &AgentError,
) -> Option<(Vec<Reason>, UnixMillis)> {
    let core = api.core();
    if matches!(error, AgentError::Refused { .. }) {
        return None;
    }
    let at = conformance::last_present_at(api, &core.view(), node).await?;
    let reasons = api.stores().history.reasons(node.to_string()).await;
    Some((reasons.unwrap_or_default(), at))
}

/// Other reasons behind the node's verdict: those its agent announces outside its checks, and those that this control
/// observes.
async fn other_reasons(api: &Api, node: &NodeId, known: &[ReasonView]) -> Vec<ReasonView> {
    let core = api.core();
    let view = core.view();
    let (Some(entry), Ok(shown)) = (view.node(node), nodes::get(api, node.as_str())) else {
        return Vec::new();
    };
    let seen = entry.gossip.as_ref();
    let said = seen.map_or(&[][..], |seen| &seen.health_reasons);
    let is_bad = seen.is_some_and(|seen| seen.health != Health::Healthy);
    let mut others = Vec::new();
    for code in shown.health.reasons {
        if known.iter().any(|reason| reason.code == code) {
            continue;
        }
        let class = code.strip_suffix(".incomplete");
        let class: Option<Class> = class.and_then(|class| class.parse().ok());
        let since = match class {
            Some(class) => entry.since(class),
            None => conformance::last_present_at(api, &view, node).await,
        };
        let since = time(since.unwrap_or_else(|| core.now()));
        let evidence = match class {
            Some(class) => conformance::why_incomplete(api, node, class).await,
            None if code == SILENT => entry.liveness_reason.clone(),
            None => Some("reported by the agent".to_owned()),
        };
        let severity = match class {
            Some(_) => "unknown",
            None if code == SILENT || Inventory::is_class_unknown(&code) => "unknown",
            None if code.starts_with(EXECUTOR_REASONS) => "faulty",
            None if is_bad && !is_note(&code) => "degraded",
            None => "inform",
        };
        others.push(ReasonView {
            source: match said.contains(&code) {
                true => "agent",
                false => "control",
            }
            .to_owned(),
            entity: class.map_or_else(|| "node".to_owned(), |class| class.to_string()),
            evidence: evidence.unwrap_or_else(|| "no reason is known".to_owned()),
            severity: severity.to_owned(),
            action: "inspect".to_owned(),
            observe_only: false,
            first_seen: since.clone(),
            last_seen: since,
            count: 1,
            code,
        });
    }
    others
}

/// Whether the code is informational and changes no verdict.
fn is_note(code: &str) -> bool {
    code.ends_with(".unheard") || matches!(code, "history.damaged" | "reasons.more")
}

fn reason_view(reason: &Reason, source: &str) -> ReasonView {
    ReasonView {
        source: source.to_owned(),
        code: reason.code.clone(),
        entity: reason.entity.clone(),
        evidence: reason.evidence.clone(),
        severity: json_name(&reason.severity),
        action: json_name(&reason.action),
        observe_only: reason.observe_only,
        first_seen: time(UnixMillis(reason.first_seen_ms)),
        last_seen: time(UnixMillis(reason.last_seen_ms)),
        count: reason.count,
    }
}

/// Name of a value in JSON.
fn json_name(value: &impl Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    let name = name.as_ref().and_then(|name| name.as_str());
    name.unwrap_or("unknown").to_owned()
}
