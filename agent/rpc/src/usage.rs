//! Processor and GPU usage of a node.

use lattice_quorum_types::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Requests the recent usage of a node. The answer is the busy part of the time in millionths, or the reason why it is
/// not known.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetUsage {
    /// Part of the node.
    pub of: Part,
}
impl Rpc for GetUsage {
    const METHOD: &'static str = "agent.usage";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<u32, String>;
}

/// Part of a node to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// All processors of the node: since the last request, or over half a second if that request was long ago.
    Processors,
    /// Mean of all GPUs of the node, each over the driver's latest sampling period.
    Gpus,
}
