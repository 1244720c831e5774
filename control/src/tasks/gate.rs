//! What must hold before a node goes (back) into service, asked of its agent directly: the site's
//! health gate lets it, and nothing runs there that is not its own any more.

use crate::{
    core::Core,
    error::AgentError,
    tasks::orphans::{self, OrphansError},
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

/// Asks the node's agent, now.
pub(crate) async fn check(core: &Core, node: &NodeId) -> Result<(), GateError> {
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
