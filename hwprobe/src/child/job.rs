//! Messages between the parent and the probing process.

use crate::Host;
use crate::root::AccessedPaths;
use lattice_conformance::ProbeResult;
use serde::{Deserialize, Serialize};

/// The request, on the child's standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The host to probe.
    pub host: Host,
    /// Names of the probes to run.
    pub probes: Vec<String>,
    /// Whether to record what the probes read, for a capture.
    pub is_traced: bool,
}

/// One line on the child's standard output for each finished probe.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProbeLine {
    /// Name of the probe.
    pub probe: String,
    /// Elapsed wall-clock time, in microseconds.
    pub took_us: u64,
    /// Result of the probe, or the reason for its failure.
    pub result: Result<ProbeResult, String>,
    /// Paths that the probe touched, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<AccessedPaths>,
}
