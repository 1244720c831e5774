//! How busy a node is.

use crate::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Asks an agent how busy its node was of late. Answered in millionths: the part of the time in which it worked; or
/// why that is not known.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetUsage {
    /// Of what.
    pub of: Part,
}
impl Rpc for GetUsage {
    const METHOD: &'static str = "agent.usage";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<u32, String>;
}

/// What of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// All its processors: since it was last asked, or over half a second where that is long ago.
    Processors,
    /// The mean of all its GPUs, each over the last moments, as its driver says it.
    Gpus,
}
