//! Result of one probe: record, identity, resources, topology, live values, power and findings.

use super::{Finding, FindingCode, Identity, NodeResources, Power, Topology, Vitals};
use crate::{Class, ClassRecord};
use serde::{Deserialize, Serialize};

/// Values and findings of one probe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Conformance record.
    pub record: ClassRecord,
    /// Identity values found by the probe.
    pub identity: Identity,
    /// Node resources found by the probe.
    pub resources: NodeResources,
    /// Topology found by the probe.
    pub topology: Topology,
    /// Live values found by the probe.
    pub vitals: Vitals,
    /// Power of the node, if this probe reads it.
    pub power: Option<Power>,
    /// Contradictions found by the probe.
    pub findings: Vec<Finding>,
}

impl ProbeResult {
    /// An empty result for a class.
    #[must_use]
    pub fn new(class: Class) -> Self {
        Self {
            record: ClassRecord::new(class),
            identity: Identity::default(),
            resources: NodeResources::default(),
            topology: Topology::default(),
            vitals: Vitals::default(),
            power: None,
            findings: Vec::new(),
        }
    }

    /// Adds a finding.
    pub fn add_finding(&mut self, code: FindingCode, detail: impl Into<String>) {
        self.findings.push(Finding::new(code, detail));
    }
}
