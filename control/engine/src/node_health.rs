//! Node health reports: request to an agent, and parsing of its reply.

use crate::{
    agents::{Agents, with_node},
    error::AgentError,
};
use lattice_agent_rpc::GetHealth;
use lattice_conformance::health::{HealthReport, Reason};
use lattice_quorum_types::NodeId;
use lattice_view::View;
use serde::Deserialize;
use std::time::Duration;

/// Deadline for a new pass of the health checks, which may wait for a driver's own timeout.
const FRESH_TIMEOUT: Duration = Duration::from_secs(50);
/// Deadline for the last pass, which the agent holds already.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest reply in bytes. Agents leave out the mildest reasons of a reply above half of this size.
const MAX_BYTES: usize = 512 << 10;
/// Longest code, entity or evidence that is included in a text of control, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// An agent's reply, limited to the fields that control uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeHealth {
    /// Result of the agent's table of checks, with the reasons that fit into the reply, worst first.
    #[serde(flatten)]
    pub report: HealthReport,
    /// Whether health checks are enabled on the node (`health.disabled` is not set).
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Age of the last reading when the agent replied, in milliseconds; `None` before the first reading of this run of
    /// the agent.
    #[serde(default)]
    pub(crate) read_age_ms: Option<u64>,
    /// Probes without a result that the checks need.
    #[serde(default)]
    pub(crate) blind: Vec<String>,
    /// Number of reasons cleared by this request.
    #[serde(default)]
    pub cleared: u32,
}

const fn yes() -> bool {
    true
}

impl NodeHealth {
    /// Short text for operators about the reasons that require a drained node: the worst one, and the number of others.
    /// `None` without such reasons.
    pub(crate) fn drains(&self) -> Option<String> {
        worst_reason_text(self.report.reasons.iter().filter(|reason| reason.drains()))
    }
}

/// Short text for operators: the first of `reasons`, which come worst first, and the number of others. `None` without
/// reasons.
pub(crate) fn worst_reason_text<'r>(
    mut reasons: impl Iterator<Item = &'r Reason>,
) -> Option<String> {
    let worst = reason_text(reasons.next()?);
    Some(match reasons.count() {
        0 => worst,
        more => format!("{worst}; and {more} more"),
    })
}

/// Text of one reason, such as `gpu.xid.79 on gpu.1: GPU has fallen off the bus; reboot the node`.
fn reason_text(reason: &Reason) -> String {
    let fields = [&reason.code, &reason.entity, &reason.evidence];
    let [code, entity, seen] = fields.map(|text| plain(text));
    format!("{code} on {entity}: {seen}; {}", reason.action)
}

/// Text from a node without control characters, cut to [`MAX_TEXT_CHARS`] characters for display in one line.
pub(crate) fn plain(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    plain.take(MAX_TEXT_CHARS).collect()
}

impl Agents {
    /// Requests a node's health report from its agent.
    pub async fn health(
        &self,
        view: &View,
        node: &NodeId,
        request: &GetHealth,
    ) -> Result<NodeHealth, AgentError> {
        let deadline = match request.fresh {
            true => FRESH_TIMEOUT,
            false => LAST_TIMEOUT,
        };
        let refused = |reason: String| AgentError::Refused {
            node: node.clone(),
            reason,
        };
        let peer = self.peer(view, node)?.with_max_reply(MAX_BYTES);
        let answer = peer.call(request, deadline).await;
        let bytes = with_node(node, answer)?.map_err(refused)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| refused(format!("health report of the agent is not valid: {error}")))
    }
}

#[cfg(test)]
impl NodeHealth {
    fn none() -> Self {
        let report = HealthReport {
            table: String::new(),
            worst: None,
            reasons: Vec::new(),
        };
        Self {
            report,
            enabled: false,
            read_age_ms: None,
            blind: Vec::new(),
            cleared: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::health::{Action, Severity};
    use serde_json::json;

    fn reason(code: &str, severity: Severity, action: Action) -> Reason {
        Reason {
            code: code.to_owned(),
            entity: "gpu.1".to_owned(),
            evidence: format!("seen\n{}", "x".repeat(1000)),
            severity,
            action,
            observe_only: false,
            first_seen_ms: 1,
            last_seen_ms: 1,
            count: 1,
        }
    }

    fn health(reasons: Vec<Reason>) -> NodeHealth {
        let mut health = NodeHealth::none();
        health.report.reasons = reasons;
        health
    }

    #[test]
    fn only_what_needs_the_node_empty_drains_it_and_the_worst_is_named() {
        let mild = reason("a", Severity::Degraded, Action::Inspect);
        let restart = reason("b", Severity::Faulty, Action::RestartApplication);
        let watched = Reason {
            observe_only: true,
            ..reason("c", Severity::Faulty, Action::Reboot)
        };
        let none = vec![mild, restart, watched];
        assert_eq!(health(none.clone()).drains(), None);
        let first = reason("gpu.xid.79", Severity::Faulty, Action::Reboot);
        let second = reason("gpu.gone", Severity::Faulty, Action::Reboot);
        let said = health([none, vec![first.clone()]].concat())
            .drains()
            .unwrap();
        assert!(said.starts_with("gpu.xid.79 on gpu.1: seenxxx"), "{said}");
        assert!(said.ends_with("xxx; reboot the node"), "{said}");
        assert!(said.len() < 300, "{said}");
        let said = health(vec![first, second]).drains().unwrap();
        assert!(said.ends_with("; reboot the node; and 1 more"), "{said}");
    }

    #[test]
    fn an_answer_without_the_newer_fields_is_one_of_checks_that_are_on() {
        let plain = json!({ "table": "1", "worst": null, "reasons": [] });
        let read: NodeHealth = serde_json::from_value(plain).unwrap();
        assert!(read.enabled && read.read_age_ms.is_none() && read.blind.is_empty());
    }
}
