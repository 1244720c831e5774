//! Host data that is compared with the data of the host's BMC.

use lattice_conformance::{ClassRecord, Identity};
use lattice_quorum_types::NodeId;
use std::sync::Arc;

/// Identity of a host as its agent reports it, and class records of the host.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Identity that the agent reports, such as serial numbers, UUID, vendor and product.
    pub identity: Identity,
    /// Record of class `bios`, merged from agent and BMC, once it is available.
    pub bios: Option<Arc<ClassRecord>>,
    /// Record of class `bmc`, merged from agent and BMC, once it is available.
    pub bmc: Option<Arc<ClassRecord>>,
}

impl From<Identity> for Host {
    fn from(identity: Identity) -> Self {
        Self {
            identity,
            ..Self::default()
        }
    }
}

/// Looks up the host data of a node.
pub(crate) type Hosts = Arc<dyn Fn(&NodeId) -> Option<Host> + Send + Sync>;
