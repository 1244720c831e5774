//! Conformance: groups, drift, differences.

use crate::baseline::BrakeView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Nodes that share a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// The class, several with commas between them, or `all` for the node fingerprint.
    pub class: String,
    /// The shared digest, 64 hex digits.
    pub digest: String,
    /// Its members as a hostlist.
    pub nodes: String,
    /// How many.
    pub count: u32,
    /// Since when the first of its members is so, by the nodes' histories; of members whose history
    /// says nothing, and of those beyond the first five hundred of all groups, when the control that
    /// answers first saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<String>,
}

/// The groups of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupsView {
    /// Largest first.
    pub groups: Vec<GroupView>,
    /// Nodes whose digest is unknown, as a hostlist: equal to nobody.
    pub unknown: String,
    /// Nodes where what is asked for is not read at all.
    #[serde(default)]
    pub not_read: Vec<NotReadView>,
}

/// Nodes where a class is not read, by intention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotReadView {
    /// A hostlist.
    pub nodes: String,
    /// Why not: `no BMC configured`.
    pub why: String,
}

/// A node that is not what it is meant to be in one key.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
pub struct DriftView {
    /// The node.
    pub node: String,
    /// The class.
    pub class: String,
    /// The key, e.g. `nic.0.firmware`.
    pub key: String,
    /// What it is meant to be, or the majority's value.
    pub expected: String,
    /// The node's value.
    pub found: String,
    /// What it was judged by: `baseline h100 v3`, or `cohort` where no baseline speaks for it.
    #[serde(default)]
    pub by: String,
    /// That baseline's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// What follows: `warn`, `deprioritise` or `drain`.
    #[serde(default)]
    pub policy: String,
    /// `strict`: it gets no new sensitive work. Left out where no baseline speaks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<String>,
    /// Since when it reads so, by the node's history; where that says nothing, since when the
    /// control that answers has seen the node's present record of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// It was so when it was first seen: it may be older.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub since_or_before: bool,
    /// By its cohort: which one that is: vendor, product, GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// By its cohort: like nodes whose value is known, this one too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
    /// By its cohort: those of them that have the majority's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<u32>,
    /// Set where the node does not answer: it is shown as it was then, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
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
    /// The baseline it would be judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

/// Who is not what it is meant to be: judged by its baseline where one speaks for it, else by the
/// majority of its cohort.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriftReportView {
    /// By node, class, key.
    pub drifted: Vec<DriftView>,
    /// Keys without a majority.
    pub no_majority: Vec<NoMajorityView>,
    /// What is not known.
    pub unknown: Vec<UnknownView>,
    /// Nodes judged by nothing (no baseline; cohort unknown, or fewer than four), as a hostlist.
    pub alone: String,
    /// Nodes of which what it takes to judge them is not known, or not yet, as a hostlist: they are
    /// not known to be as they are meant to be.
    #[serde(default)]
    pub pending: String,
    /// Set while automatic draining stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<BrakeView>,
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
    /// `differs`, or `unknown` when a side is not known; `moved` says of a class, by the key `parts`,
    /// that both sides have the same parts in other places.
    pub verdict: String,
}

/// Two nodes or groups, or a node and its cohort's majority, key by key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffView {
    /// The left side: a node; of a group its digest, how many nodes it has, and which was compared.
    pub left: String,
    /// The right side: the same, or `majority of` and the cohort.
    pub right: String,
    /// Keys on which they differ, or of which one side is unknown.
    pub differences: Vec<DifferenceView>,
}
