//! What a user asks for.

use crate::{NodeId, ProjectPath, VclusterName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest script plus environment plus arguments accepted with a submit, in bytes.
pub const MAX_WORKLOAD_BYTES: usize = 64 * 1024;

/// What runs on each node of the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Program and arguments. Empty only when `script` is given.
    pub argv: Vec<String>,
    /// A script, written to a private file and run by its own `#!` line (default `/bin/sh`).
    pub script: Option<String>,
    /// Environment added to a minimal one. Never logged; shown redacted.
    pub env: BTreeMap<String, String>,
    /// Working directory; the user's home, else `/`, when absent.
    pub working_dir: Option<String>,
    /// Files of the user's own for the output. What has none is captured by the agent.
    #[serde(default)]
    pub output: OutputFiles,
}

/// Where a rank's output goes; relative paths are below the working directory. `%j` stands for the
/// allocation's number, `%r` for the rank, `%n` for the node, `%%` for a percent sign.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputFiles {
    /// Standard output; opened as the user, made when missing, appended to.
    pub stdout: Option<String>,
    /// Standard error.
    pub stderr: Option<String>,
}

impl Workload {
    /// Bytes counted against [`MAX_WORKLOAD_BYTES`].
    pub fn bytes(&self) -> usize {
        self.argv.iter().map(String::len).sum::<usize>()
            + self.script.as_ref().map_or(0, String::len)
            + self
                .env
                .iter()
                .map(|(k, v)| k.len() + v.len())
                .sum::<usize>()
            + self.output.stdout.as_ref().map_or(0, String::len)
            + self.output.stderr.as_ref().map_or(0, String::len)
    }
}

/// How to lay the nodes over dragonfly groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Fewest groups.
    #[default]
    Tight,
    /// As many groups as possible.
    Spread,
    /// Whatever is free first.
    Any,
}

/// What the nodes must be like. Every field absent or empty means "any".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Constraints {
    /// Acceptable GPU models, any one of them; matched case-insensitively as a substring.
    pub gpu_models: Vec<String>,
    /// GPUs each node must have at least.
    pub gpus_per_node: Option<u32>,
    /// Memory each node must have at least, bytes.
    pub memory_bytes: Option<u64>,
    /// Features every node must carry.
    pub features: Vec<String>,
    /// Only these nodes, when not empty.
    pub nodelist: Vec<NodeId>,
    /// None of these.
    pub exclude: Vec<NodeId>,
    /// Layout over groups.
    pub spread: Spread,
}

/// What happens to an allocation whose node is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// It fails.
    #[default]
    Never,
    /// It is queued again at most once.
    Once,
    /// It is queued again each time.
    Always,
}

/// A request for nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSpec {
    /// A name for people.
    pub name: Option<String>,
    /// The project that pays and whose limits apply.
    pub project: ProjectPath,
    /// The vCluster whose scheduler places it.
    pub vcluster: VclusterName,
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// What runs.
    pub workload: Workload,
    /// Longest run time, milliseconds; `None` is unbounded (never backfilled).
    pub walltime_ms: Option<u64>,
    /// Priority class 0-10.
    pub class: u8,
    /// Conformance becomes a hard filter.
    pub sensitive: bool,
    /// What the nodes must be like.
    pub constraints: Constraints,
    /// What happens on node loss.
    pub requeue: Requeue,
    /// Submit on hold.
    pub hold: bool,
}
