//! Wipes of released nodes.

use lattice_quorum_types::{
    UnixMillis,
    node_claim::WipeOutcome,
    rpc::{Role, Rpc},
};
use serde::{Deserialize, Serialize};

/// Wipes the node with the site's hook, once for each number. A repeat returns the status of that wipe, also after a
/// restart of the agent or a reboot of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wipe {
    /// Number of the wipe. The agent refuses a lower number than the highest it has received.
    pub number: u64,
    /// User that released the node.
    pub user: String,
    /// Project of the former claim, for the environment.
    pub project: String,
}
impl Rpc for Wipe {
    const METHOD: &'static str = "agent.wipe";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The status, or the reason why the wipe cannot begin at present.
    type Reply = Result<WipeStatus, String>;
}

/// Status of a wipe on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WipeStatus {
    /// The hook is running.
    Running {
        /// Start time, by the node's clock.
        since: UnixMillis,
    },
    /// The wipe has ended, and its result is on the node's disk.
    Ended(WipeOutcome),
}
