//! Places of an allocation's output, as shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Places of both output streams of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputView {
    /// Place of the standard output.
    pub stdout: OutputPlaceView,
    /// Place of the standard error.
    pub stderr: OutputPlaceView,
}

/// Place of one output stream: a file of the user, or the nodes of the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputPlaceView {
    /// File of the user; relative paths are below the working directory. Allocation, array and index are filled in;
    /// `%r` and `%n` remain if the allocation has several ranks. Absent: the nodes keep the stream, readable as logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Nodes of the current or last attempt, as a hostlist; absent before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Time for which the nodes keep the stream after the end of the allocation. Absent for a file, and while a node
    /// does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<String>,
    /// Time until which every node keeps the stream; present with `kept_for` once the allocation has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<String>,
}
