//! Captured output of ranks.

use crate::AttemptKey;
use bytes::Bytes;
use lattice_quorum_types::rpc::{Role, StreamRpc};
use serde::{Deserialize, Serialize};

/// Output stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Streams the captured output of a rank from an offset on; with `follow`, until the rank ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadLog {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Output stream.
    pub stream: LogStream,
    /// Offset of the first byte.
    pub offset: u64,
    /// Whether to wait for further output.
    pub follow: bool,
}
impl StreamRpc for ReadLog {
    const METHOD: &'static str = "agent.log";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Item = Result<Bytes, String>;
}
