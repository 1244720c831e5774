//! Sources of the records of nodes: the cache of preimages, this control's history, the agents and the BMCs.

use crate::{bmc::Readings, core::Core, history::History, preimages::Preimages};
use std::sync::Arc;

/// Sources of the records of nodes; see the module. Clones share them.
#[derive(Debug, Clone)]
pub struct NodeRecords {
    /// Core, with the calls to agents.
    pub core: Arc<Core>,
    /// Node history.
    pub history: History,
    /// Records and documents by digest.
    pub preimages: Preimages,
    /// Latest readings of the BMCs.
    pub readings: Readings,
}
