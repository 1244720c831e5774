//! Direct evidence about a node: conformance ([`conformance`]), health ([`health`]) and BMC readings ([`bmc`]).
//!
//! Conformance and health are queried over a connection authenticated by the node's certificate; control itself reads
//! the BMC for both. Every automatic drain for health or conformance, and every readmission, rests on this evidence,
//! never on gossip. This module does not depend on what follows from an answer.

pub mod bmc;
pub(crate) mod conformance;
pub(crate) mod health;

use crate::{bmc::Readings, core::Core};
use std::sync::Arc;

/// Access to nodes for direct queries: to their agents and to their BMCs.
#[derive(Debug, Clone)]
pub struct NodeAccess {
    pub(crate) core: Arc<Core>,
    pub(crate) readings: Readings,
}

impl NodeAccess {
    /// Access by this control's mesh endpoint and its BMC readers.
    pub const fn new(core: Arc<Core>, readings: Readings) -> Self {
        Self { core, readings }
    }
}

/// Answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The node must leave service, for this reason.
    Drains(String),
    /// Everything requested is known, and nothing requires a drain.
    Healthy,
    /// Some of the requested state is unknown.
    Unknown(String),
}

/// Required freshness of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freshness {
    /// A reading of the last seconds, from the same run of the agent, is sufficient. Used for joining nodes: the agent
    /// of such a node has just started and read its hardware; ten thousand joining nodes may be queried together.
    Recent,
    /// The reading must begin after this call. If no operator requests it, a full reading of the last two seconds is
    /// accepted: an automatic check was itself triggered by recent gossip.
    Now {
        /// Operator that requests the check, having just changed something.
        by: Option<String>,
    },
}

impl Freshness {
    /// Freshness for automatic checks.
    pub(crate) const NOW: Self = Self::Now { by: None };

    fn by(&self) -> Option<String> {
        match self {
            Self::Recent => None,
            Self::Now { by } => by.clone(),
        }
    }
}
