//! What must hold before a node goes (back) into service, asked of its agent directly. One place for
//! every way there is: nothing runs there that is not its own any more, the site's health gate lets
//! it, neither its health checks nor its BMC name anything that needs it empty, and it differs from no
//! baseline that says to drain it.

use crate::{
    core::Core,
    error::AgentError,
    tasks::{
        autodrain::Cause,
        orphans::{self, OrphansError},
        told::{
            self, Answer, Freshness,
            bmc::{self, Bmc},
        },
    },
    words,
};
use lattice_quorum_types::{
    NodeId,
    wire::{AttemptKey, CheckHealth, Unavailable},
};
use std::{
    mem::{Discriminant, discriminant},
    time::Duration,
};
use tokio::time::Instant;

/// A site's gate may take a while; agents bound it.
const GATE_TIMEOUT: Duration = Duration::from_secs(35);

/// The words of a failure that goes on are written down again after this long.
const SAY_AGAIN: Duration = Duration::from_secs(600);

/// Why a node may not go back into service.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum GateError {
    /// Its agent was not reached.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The site's health gate says no.
    #[error("node {node}: the health gate failed: {reason}")]
    Failed {
        /// The node.
        node: NodeId,
        /// As the gate told.
        reason: String,
    },
    /// Something runs there that the quorum does not know there.
    #[error(
        "node {node}: {} still run there though nothing holds the node for them; they are being \
         ended", orphans::names(.attempts)
    )]
    StillRuns {
        /// The node.
        node: NodeId,
        /// What runs.
        attempts: Vec<AttemptKey>,
    },
    /// Its own health checks name what needs it empty.
    #[error("node {node}: its health checks name {what}")]
    Faulty {
        /// The node.
        node: NodeId,
        /// The worst reason: code, part, what was seen, what helps.
        what: String,
    },
    /// Its BMC names what needs it empty.
    #[error("node {node}: {what}")]
    FaultyByBmc {
        /// The node.
        node: NodeId,
        /// That its BMC names it, and the worst reason as of its own checks.
        what: String,
    },
    /// It differs from a baseline that says to drain it.
    #[error("node {node} {what}")]
    Differs {
        /// The node.
        node: NodeId,
        /// From which, in what.
        what: String,
    },
    /// Something of that is not known, and unknown is not sound.
    #[error("node {node}: whether it is sound is not known: {why}")]
    Unverified {
        /// The node.
        node: NodeId,
        /// What is not known.
        why: String,
    },
    /// The quorum did not say what should run there.
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
    /// Whether it says something of the node, and not that nobody could be asked.
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

/// Everything that must hold before a node goes (back) into service. The site's gate comes first: it
/// may be a program that changes what is then looked at.
pub(crate) async fn check(
    core: &Core,
    node: &NodeId,
    freshness: &Freshness,
) -> Result<(), GateError> {
    check_site(core, node).await?;
    verify(core, node, freshness).await
}

/// Nothing runs on the node that is not its own, and the site's gate lets it. That is all for a
/// reason that rests on no more, while another one keeps the node out.
pub(crate) async fn check_site(core: &Core, node: &NodeId) -> Result<(), GateError> {
    let attempts = orphans::of(core, node).await?;
    if !attempts.is_empty() {
        let node = node.clone();
        return Err(GateError::StillRuns { node, attempts });
    }
    let view = core.view();
    let asked = core.agents.call(&view, node, &CheckHealth, GATE_TIMEOUT);
    asked.await?.map_err(|failed| GateError::Failed {
        node: node.clone(),
        reason: words::shortened(failed.reason),
    })
}

/// How the node is, and what it is, in its own words and its BMC's.
async fn verify(core: &Core, node: &NodeId, freshness: &Freshness) -> Result<(), GateError> {
    let view = core.view();
    let entry = view
        .node(node)
        .ok_or_else(|| AgentError::UnknownNode { node: node.clone() })?;
    let name = || node.clone();
    // One look at its BMC serves both.
    let bmc = Bmc::new(core, node, freshness, Cause::Health.owner());
    let health = told::health::ask(core, &view, node, freshness, &bmc).await;
    is_fine(health, node, |what| match bmc::is_bmcs(&what) {
        true => GateError::FaultyByBmc { node: name(), what },
        false => GateError::Faulty { node: name(), what },
    })?;
    let conformance = told::conformance::ask(core, &view, entry, freshness, &bmc).await;
    is_fine(conformance, node, |what| GateError::Differs {
        node: name(),
        what,
    })
}

/// An agent that answers that it cannot look has answered.
fn is_fine(
    answer: Result<Answer, AgentError>,
    node: &NodeId,
    drains: impl FnOnce(String) -> GateError,
) -> Result<(), GateError> {
    let why = match answer {
        Ok(Answer::Fine) => return Ok(()),
        Ok(Answer::Drains(what)) => return Err(drains(words::shortened(what))),
        Ok(Answer::Unknown(why)) => why,
        Err(AgentError::Refused { reason, .. }) => reason,
        Err(error) => return Err(error.into()),
    };
    Err(GateError::Unverified {
        node: node.clone(),
        why: words::shortened(why),
    })
}

/// What was last written down of a node that does not pass. A gate that says it in other words each
/// time must not write each time: the words of the same failure are renewed now and then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    kind: Discriminant<GateError>,
    at: Instant,
}

impl Said {
    pub(crate) fn now(error: &GateError) -> Self {
        Self {
            kind: discriminant(error),
            at: Instant::now(),
        }
    }

    /// Whether this one goes without saying.
    pub(crate) fn covers(&self, error: &GateError) -> bool {
        self.kind == discriminant(error) && self.at.elapsed() < SAY_AGAIN
    }
}

#[cfg(test)]
mod tests;
