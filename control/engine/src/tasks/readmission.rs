//! Readmission gate: conditions that a node must meet before it (re)enters service, checked with its agent directly.
//!
//! Every path into service uses this one gate:
//! - the node runs no attempt that is not assigned to it;
//! - the health gate of the site passes;
//! - neither its health checks nor its BMC report a fault that requires an empty node, and no enabled health check
//!   lacks its data;
//! - it differs from no baseline with a drain rule, and the compared classes are known.

use crate::{
    core::Core,
    error::AgentError,
    sanitize,
    tasks::{
        autodrain::Cause,
        node_evidence::{
            self, Answer, Freshness, NodeAccess,
            bmc::{self, Bmc},
        },
        orphans::{self, OrphansError},
    },
};
use lattice_agent_rpc::{AttemptKey, CheckHealth, attempt_names};
use lattice_quorum_types::{NodeId, wire::Unavailable};
use std::{
    mem::{Discriminant, discriminant},
    time::Duration,
};
use tokio::time::Instant;

/// Timeout for the health gate of the site, which may take a while; agents limit it as well.
const GATE_TIMEOUT: Duration = Duration::from_secs(35);

/// Time after which the text of a persisting failure is written again.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// Reason why a node may not return to service.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GateError {
    /// The agent was not reached, or gave no valid answer.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The health gate of the site failed.
    #[error("node {node}: the health gate failed: {reason}")]
    Failed {
        /// Node that failed the gate.
        node: NodeId,
        /// Reason reported by the gate.
        reason: String,
    },
    /// The node runs attempts that the quorum does not assign to it.
    #[error("node {node}: leftover processes of {names} are being ended")]
    StillRuns {
        /// Node with orphaned attempts.
        node: NodeId,
        /// Attempts that run there.
        attempts: Vec<AttemptKey>,
        /// Names of the first of these attempts, and the number of the others.
        names: String,
    },
    /// Health checks of the node report a fault that requires an empty node.
    #[error("node {node}: its health checks report {what}")]
    Faulty {
        /// Node with the fault.
        node: NodeId,
        /// Worst reason: code, component, observation and remedy.
        what: String,
    },
    /// The BMC reports a fault that requires an empty node.
    #[error("node {node}: {what}")]
    FaultyByBmc {
        /// Node with the fault.
        node: NodeId,
        /// Worst reason, in the form used by health checks, marked as reported by the BMC.
        what: String,
    },
    /// The node differs from a baseline with a drain rule.
    #[error("node {node} {what}")]
    Differs {
        /// Node that differs.
        node: NodeId,
        /// Baseline and differing keys.
        what: String,
    },
    /// Some input is unknown, and unknown does not count as healthy.
    #[error("node {node}: health unknown: {why}")]
    Unverified {
        /// Node with unknown state.
        node: NodeId,
        /// Unknown input.
        why: String,
    },
    /// The quorum did not report which attempts should run on the node.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<OrphansError> for GateError {
    fn from(error: OrphansError) -> Self {
        match error {
            OrphansError::Agent(error) => Self::Agent(error),
            OrphansError::Unavailable(error) => Self::Unavailable(error),
        }
    }
}

impl GateError {
    /// Whether the error is a verdict on the node, as opposed to a failed query.
    pub(crate) fn is_verdict(&self) -> bool {
        match self {
            Self::Failed { .. }
            | Self::StillRuns { .. }
            | Self::Faulty { .. }
            | Self::FaultyByBmc { .. }
            | Self::Differs { .. }
            | Self::Unverified { .. } => true,
            Self::Agent(_) | Self::Unavailable(_) => false,
        }
    }
}

/// Checks everything required before a node (re)enters service. The site gate comes first: it may be a program that
/// changes what is checked afterwards.
pub async fn check(
    nodes: &NodeAccess,
    node: &NodeId,
    freshness: &Freshness,
) -> Result<(), GateError> {
    check_site(&nodes.core, node).await?;
    verify(nodes, node, freshness).await
}

/// Checks that the node runs no orphaned attempt and that the site gate passes. These checks suffice to clear the
/// dispatcher's drain reason while another reason keeps the node drained.
pub(crate) async fn check_site(core: &Core, node: &NodeId) -> Result<(), GateError> {
    let attempts = orphans::find_orphans(core, node).await?;
    let view = core.view();
    if !attempts.is_empty() {
        return Err(GateError::StillRuns {
            node: node.clone(),
            names: attempt_names(&attempts, &|id| view.name_of(id)),
            attempts,
        });
    }
    let asked = core.agents.call(&view, node, &CheckHealth, GATE_TIMEOUT);
    asked.await?.map_err(|failed| GateError::Failed {
        node: node.clone(),
        reason: sanitize::shortened(failed.reason),
    })
}

/// Checks health and conformance of the node, by its agent and its BMC.
async fn verify(nodes: &NodeAccess, node: &NodeId, freshness: &Freshness) -> Result<(), GateError> {
    let core = &*nodes.core;
    let view = core.view();
    let entry = view
        .node(node)
        .ok_or_else(|| AgentError::UnknownNode { node: node.clone() })?;
    let name = || node.clone();
    // One BMC reading serves both checks.
    let bmc = Bmc::new(nodes, node, freshness, Cause::Health.owner());
    let health = node_evidence::health::ask(core, &view, node, freshness, &bmc).await;
    gate_result(health, node, |what| match bmc::is_from_bmc(&what) {
        true => GateError::FaultyByBmc { node: name(), what },
        false => GateError::Faulty { node: name(), what },
    })?;
    let conformance = node_evidence::conformance::ask(core, &view, entry, freshness, &bmc).await;
    gate_result(conformance, node, |what| GateError::Differs {
        node: name(),
        what,
    })
}

/// Maps an answer to the gate's result. An agent that answers that it cannot check counts as unverified, not as
/// unreachable.
fn gate_result(
    answer: Result<Answer, AgentError>,
    node: &NodeId,
    drains: impl FnOnce(String) -> GateError,
) -> Result<(), GateError> {
    let why = match answer {
        Ok(Answer::Healthy) => return Ok(()),
        Ok(Answer::Drains(what)) => return Err(drains(sanitize::shortened(what))),
        Ok(Answer::Unknown(why)) => why,
        Err(AgentError::Refused { reason, .. }) => reason,
        Err(error) => return Err(error.into()),
    };
    Err(GateError::Unverified {
        node: node.clone(),
        why: sanitize::shortened(why),
    })
}

/// Failure last written for a node that does not pass. A gate may word the same failure differently each time, so the
/// text is renewed only periodically.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportedFailure {
    kind: Discriminant<GateError>,
    at: Instant,
}

impl ReportedFailure {
    pub(crate) fn now(error: &GateError) -> Self {
        Self {
            kind: discriminant(error),
            at: Instant::now(),
        }
    }

    /// Whether this failure is already written and recent.
    pub(crate) fn covers(&self, error: &GateError) -> bool {
        self.kind == discriminant(error) && self.at.elapsed() < REPORT_INTERVAL
    }
}

#[cfg(test)]
mod tests;
