//! Drift of all nodes, as found by one comparison.

use super::BaselineEffect;
use lattice_conformance::{Class, DriftReport, NoMajority};
use lattice_quorum_types::{
    NodeId, UnixMillis,
    baseline::{DriftPolicy, SensitivePolicy},
    id::BaselineName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Reference that a node is compared with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftReference {
    /// A baseline.
    Baseline {
        /// Baseline name.
        name: BaselineName,
        /// Baseline version.
        version: u32,
        /// Policy applied on drift.
        policy: DriftPolicy,
        /// Effect of drift on sensitive allocations.
        sensitive: SensitivePolicy,
    },
    /// The majority of the node's cohort.
    Cohort {
        /// Number of comparable nodes with a known value, including this node.
        of: usize,
        /// Number of nodes that have the majority's value.
        like: usize,
    },
}

/// A node that differs from its reference in one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriftedNode {
    /// Node that drifted.
    pub node: NodeId,
    /// Conformance class of the key.
    pub class: Class,
    /// Key that differs.
    pub key: String,
    /// Expected value.
    pub expected: String,
    /// Value found on the node.
    pub found: String,
    /// Reference of the comparison.
    pub by: DriftReference,
    /// Time since which the node is known to have this record of the class.
    pub since: Option<UnixMillis>,
}

/// A class of a node that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnknownClass {
    /// Node with the unknown class.
    pub node: NodeId,
    /// Class that is unknown.
    pub class: Class,
    /// Reason why the class is unknown.
    pub why: String,
    /// Baseline that applies to the class; `None` if none applies or several conflict.
    pub baseline: Option<BaselineName>,
}

/// Drift of all nodes, from baselines and cohorts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterDrift {
    /// Drift, ordered by node, class and key.
    pub drifted: Vec<DriftedNode>,
    /// Keys on which a cohort has no majority.
    pub no_majority: Vec<NoMajority>,
    /// Unknown classes, ordered by node.
    pub unknown: Vec<UnknownClass>,
    /// Nodes without a reference: no baseline applies, and the cohort is unknown or too small. Pending nodes are left
    /// out.
    pub alone: Vec<String>,
    /// Nodes that were compared with a reference.
    pub compared: BTreeSet<NodeId>,
    /// Nodes with an announced document or record that is not fetched yet, and nodes that were never seen.
    pub pending: BTreeSet<NodeId>,
    /// Nodes to which each baseline applies, in one class at least.
    pub judged: BTreeMap<BaselineName, BTreeSet<NodeId>>,
    /// Revision of the baselines used for this report.
    pub number: u64,
}

/// Result of one comparison of all nodes.
#[derive(Debug, Clone, Default)]
pub struct ComparisonResult {
    /// Drift by baseline and cohort.
    pub report: ClusterDrift,
    /// Cohort drift, without baselines.
    pub cohorts: DriftReport,
    /// Effects for every node that gossips, while there are baselines.
    pub effects: BTreeMap<NodeId, Arc<BaselineEffect>>,
}
