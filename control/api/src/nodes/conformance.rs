//! Conformance: groups, drift, differences.

use super::baseline::BrakeView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Conformance group: nodes that share a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Conformance class, several classes separated by commas, or `all` for the node fingerprint.
    pub class: String,
    /// Shared digest, 64 hex digits.
    pub digest: String,
    /// Members of the group, as a hostlist.
    pub nodes: String,
    /// Number of members.
    pub count: u32,
    /// Time at which the first member got this digest, from the nodes' histories. The histories of at most 500 members
    /// are searched, those of the smallest groups first. For the other members, and without a history line: the time at
    /// which the answering control first received the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<String>,
}

/// Conformance groups of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupsView {
    /// Groups, largest first.
    pub groups: Vec<GroupView>,
    /// Nodes with an unknown digest, as a hostlist. An unknown digest is equal to no other.
    pub unknown: String,
    /// Nodes that, by configuration, do not read one of the requested classes.
    #[serde(default)]
    pub not_read: Vec<NotReadView>,
}

/// Nodes that do not read a class, by configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotReadView {
    /// Nodes, as a hostlist.
    pub nodes: String,
    /// Why the class is not read: `no BMC configured` or `disabled on the node`.
    pub why: String,
}

/// Drift of a node in one key.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
pub struct DriftView {
    /// Node name.
    pub node: String,
    /// Conformance class.
    pub class: String,
    /// Key, e.g. `nic.0.firmware`.
    pub key: String,
    /// Expected value: of the baseline, or of the cohort's majority.
    pub expected: String,
    /// Value of the node.
    pub found: String,
    /// Reference: `baseline h100 v3`, or `cohort` if no baseline of the node covers the key.
    #[serde(default)]
    pub by: String,
    /// Name of the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Policy: `warn`, `deprioritise` or `drain`.
    #[serde(default)]
    pub policy: String,
    /// `strict`: the node gets no new sensitive allocation. `ignore`: the drift has no effect on sensitive allocations.
    /// Left out for drift from a cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<String>,
    /// Time at which the key got this value, from the node's history. Without a history line, and after the first 500
    /// keys of the report: the time at which the answering control first received the node's present record of the
    /// class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Whether the value was already present at the first reading, so that the drift may be older.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub since_or_before: bool,
    /// For drift from a cohort: the cohort (vendor, product, GPUs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// For drift from a cohort: number of nodes with a known value, this node included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort_nodes: Option<u32>,
    /// For drift from a cohort: number of those nodes with the majority's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub majority_nodes: Option<u32>,
    /// Set if the node does not answer: the time of the state shown, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

/// Value of a key without a majority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValueWithNodes {
    /// Value as shown.
    pub value: String,
    /// Nodes with this value, as a hostlist.
    pub nodes: String,
}

/// Key on which a cohort has no majority, so that no node counts as drifted from the cohort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoMajorityView {
    /// Cohort: vendor, product, GPUs.
    pub cohort: String,
    /// Conformance class.
    pub class: String,
    /// Key.
    pub key: String,
    /// Each value with its nodes.
    pub values: Vec<ValueWithNodes>,
}

/// Conformance class of a node for which the comparison has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownView {
    /// Node name.
    pub node: String,
    /// Conformance class.
    pub class: String,
    /// Why the conformance is unknown.
    pub why: String,
    /// Baseline that applies to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

/// Drift report. Each key of a node is compared with the node's baseline if the baseline covers the key, otherwise with
/// the majority of the node's cohort.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriftReportView {
    /// Drift by node, class and key.
    pub drifted: Vec<DriftView>,
    /// Keys without a majority.
    pub no_majority: Vec<NoMajorityView>,
    /// Classes with unknown conformance.
    pub unknown: Vec<UnknownView>,
    /// Nodes without a reference (no baseline; cohort unknown or smaller than four), as a hostlist.
    pub without_reference: String,
    /// Nodes for which the data needed for a comparison is missing or pending, as a hostlist. These nodes are not known
    /// to conform.
    #[serde(default)]
    pub pending: String,
    /// Set while automatic draining is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<BrakeView>,
}

/// Key on which two sides differ, or may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DifferenceView {
    /// Conformance class.
    pub class: String,
    /// Key.
    pub key: String,
    /// Value of the left side as shown; states other than a value are in angle brackets.
    pub left: String,
    /// Value of the right side as shown.
    pub right: String,
    /// `differs`, or `unknown` if a side is unknown. `moved`, on the key `parts` of a class: both sides have the same
    /// parts in different places.
    pub verdict: String,
}

/// Key-by-key comparison: of two nodes or groups, of a node with its cohort's majority or with its earlier state, or of
/// a baseline with a node or another baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffView {
    /// Left side: a node, a node with the time of its earlier state, or a baseline. For a group: its digest, its
    /// classes, its number of nodes and the node compared.
    pub left: String,
    /// Right side: a node, group or baseline, `majority of the cohort of` and the node, or the node with `now`.
    pub right: String,
    /// Keys that differ, or are unknown on one side.
    pub differences: Vec<DifferenceView>,
}
