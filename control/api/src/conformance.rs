//! Conformance: groups, drift, differences.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Nodes that share a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// The class, or `all` for the node fingerprint.
    pub class: String,
    /// The shared digest, 64 hex digits.
    pub digest: String,
    /// Its members as a hostlist.
    pub nodes: String,
    /// How many.
    pub count: u32,
}

/// The groups of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupsView {
    /// Largest first.
    pub groups: Vec<GroupView>,
    /// Nodes whose digest is unknown, as a hostlist: equal to nobody.
    pub unknown: String,
}

/// A node that differs from the majority of its cohort in one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct DriftView {
    /// The node.
    pub node: String,
    /// The class.
    pub class: String,
    /// The key, e.g. `nic.0.firmware`.
    pub key: String,
    /// The majority's value.
    pub expected: String,
    /// The node's value.
    pub found: String,
}

/// One value of a key without a majority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldValue {
    /// The value as shown.
    pub value: String,
    /// Who holds it, as a hostlist.
    pub nodes: String,
}

/// A key on which a cohort disagrees without a majority: nobody drifts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoMajorityView {
    /// The cohort: vendor, product, GPUs.
    pub cohort: String,
    /// The class.
    pub class: String,
    /// The key.
    pub key: String,
    /// Each value with its holders.
    pub values: Vec<HeldValue>,
}

/// A node about which nothing can be said in one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownView {
    /// The node.
    pub node: String,
    /// The class.
    pub class: String,
    /// Why.
    pub why: String,
}

/// Who differs from the majority of its cohort.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriftReportView {
    /// By node, class, key.
    pub drifted: Vec<DriftView>,
    /// Keys without a majority.
    pub no_majority: Vec<NoMajorityView>,
    /// What is not known.
    pub unknown: Vec<UnknownView>,
    /// Nodes compared with nobody (cohort unknown, or fewer than four), as a hostlist.
    pub alone: String,
}

/// One key on which two sides do not agree, or may not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DifferenceView {
    /// The class.
    pub class: String,
    /// The key.
    pub key: String,
    /// The left side's value as shown; other states stand in angle brackets.
    pub left: String,
    /// The right side's.
    pub right: String,
    /// `differs`, or `unknown` when a side is not known.
    pub verdict: String,
}

/// Two nodes, or a node and its cohort's majority, key by key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffView {
    /// The left side.
    pub left: String,
    /// The right side: a node, or `majority of` and the cohort.
    pub right: String,
    /// Keys on which they differ, or of which one side is unknown.
    pub differences: Vec<DifferenceView>,
}
