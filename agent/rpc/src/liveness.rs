//! Liveness of nodes, directly and as seen by other agents.

use lattice_quorum_types::{
    NodeId, UnixMillis,
    rpc::{Role, Rpc},
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Liveness check by control, or by another agent on behalf of control ([`PingPeer`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ping;
impl Rpc for Ping {
    const METHOD: &'static str = "agent.ping";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Agent];
    type Reply = PingReply;
}

/// Requests an agent to ping another agent, as independent evidence of whether a node answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PingPeer {
    /// Node expected at the address.
    pub node: NodeId,
    /// Mesh address of that node.
    pub addr: SocketAddr,
    /// Timeout, milliseconds; at most 5000.
    pub timeout_ms: u64,
}
impl Rpc for PingPeer {
    const METHOD: &'static str = "agent.ping_peer";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The reply to the ping, or a description of the failure.
    type Reply = Result<PingReply, String>;
}

/// Answer to [`Ping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingReply {
    /// Name of the node.
    pub node: NodeId,
    /// Boot id of the host; changes with every reboot.
    pub boot_id: String,
    /// Time of the agent's clock.
    pub at: UnixMillis,
}
