//! Baselines: request and view. A baseline file has the shape of [`BaselineRequest`].

use lattice_quorum_types::{
    Revision,
    baseline::{CohortSelector as Kept, VersionView as KeptVersion},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use crate::notation::text;

/// Cohort selector: every field that is given must equal that of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CohortSelectorBody {
    /// System vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// GPU model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Number of GPUs; 0 for nodes without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
}

impl From<&Kept> for CohortSelectorBody {
    fn from(kept: &Kept) -> Self {
        Self {
            vendor: kept.vendor.clone(),
            product: kept.product.clone(),
            gpu_model: kept.gpu_model.clone(),
            gpu_count: kept.gpu_count,
        }
    }
}

impl From<CohortSelectorBody> for Kept {
    fn from(form: CohortSelectorBody) -> Self {
        Self {
            vendor: form.vendor,
            product: form.product,
            gpu_model: form.gpu_model,
            gpu_count: form.gpu_count,
        }
    }
}

/// Expected state of one conformance class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassExpectationBody {
    /// `warn`, `deprioritise` or `drain`; the baseline's policy when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `strict` or `ignore`; the baseline's value when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<String>,
    /// Expected values by key; other keys of the class are not checked. An expectation is a value, `{value: a}` or
    /// `{any_of: [a, b]}`, both also with `or_absent: true`, or `{absent: true}`. `nic.*.firmware` matches every slot.
    /// Without keys the class must equal that of `from_node` or `from_group` exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub keys: Option<BTreeMap<String, serde_json::Value>>,
}

/// New version of a baseline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BaselineRequest {
    /// Baseline name, as a check; the name in the request path counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Free-text description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Nodes that the baseline applies to, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Nodes that the baseline applies to, by cohort. A baseline that names a node takes precedence over one by cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<CohortSelectorBody>,
    /// Reference node; control requests the node's last reading during this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_node: Option<String>,
    /// Digest of the reference conformance group, or a prefix of at least 8 digits. Control reads the records of the
    /// group's members during this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_group: Option<String>,
    /// Default policy for nodes that drift, for classes without their own: `warn` (when left out), `deprioritise`,
    /// `drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Default effect of drift on sensitive allocations, for classes without their own: `strict` (when left out) or
    /// `ignore`. `strict`: from the first drift on, the node gets no new sensitive allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<String>,
    /// Rules by class. Left empty with `from_node` or `from_group`: every class that is complete in the reference.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, ClassExpectationBody>,
    /// Version that this change is based on, 0 for none; the change is rejected if another version exists by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u32>,
}

/// Version in force after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaselineResult {
    /// Baseline name.
    pub name: String,
    /// Baseline version.
    pub version: u32,
    /// Classes that the baseline covers.
    pub classes: Vec<String>,
    /// Revision that set the version, or the present revision if it was in force already.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Whether the request was a dry run, which changes nothing.
    pub dry_run: bool,
    /// Nodes that the baseline applies to, and whether they conform, at this moment.
    pub comparison: BaselineComparisonView,
}

/// Nodes that a baseline applies to, by conformance. Nodes are hostlists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaselineComparisonView {
    /// Nodes that the baseline applies to.
    pub compared: String,
    /// Number of nodes that the baseline applies to.
    pub compared_count: u32,
    /// Nodes that conform.
    pub conform: String,
    /// Number of nodes that conform.
    pub conform_count: u32,
    /// Nodes that drift.
    pub differ: String,
    /// Number of nodes that drift.
    pub differ_count: u32,
    /// Nodes without known drift for which a required value is unknown.
    pub unknown: String,
    /// Number of nodes with an unknown value and no known drift.
    pub unknown_count: u32,
    /// Drifting nodes that the policy drains.
    pub drain: String,
    /// Drifting nodes that the policy deprioritises, so that they get new allocations last.
    pub deprioritise: String,
    /// Node names, cohort parts and keys that match no node: of nodes not registered yet, or misspelt.
    pub warnings: Vec<String>,
}

/// Rule of a baseline for one conformance class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassRuleView {
    /// `exact` or `partial`.
    pub kind: String,
    /// `warn`, `deprioritise` or `drain`.
    pub policy: String,
    /// `strict` or `ignore`.
    pub sensitive: String,
    /// Expected digest of an exact rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Schema version of the keys in that digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<u16>,
    /// Expected value of each key, as shown. Left out of lists for exact rules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// Why this control cannot read the rule, and so applies it to no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Stored version of a baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionView {
    /// Baseline version.
    pub version: u32,
    /// Principal that set the version.
    pub by: String,
    /// Time at which the version was set.
    pub at: String,
}

impl From<&KeptVersion> for VersionView {
    fn from(kept: &KeptVersion) -> Self {
        Self {
            version: kept.version,
            by: kept.by.clone(),
            at: text::time(kept.at),
        }
    }
}

/// Baseline as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaselineView {
    /// Baseline name.
    pub name: String,
    /// Version shown.
    pub version: u32,
    /// Free-text description.
    pub description: String,
    /// Nodes that the baseline names, as a hostlist.
    pub nodes: String,
    /// Cohort that the baseline applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<CohortSelectorBody>,
    /// Rules by class.
    pub classes: BTreeMap<String, ClassRuleView>,
    /// Principal that set this version.
    pub by: String,
    /// Time at which this version was set.
    pub at: String,
    /// Size, bytes; one baseline may have 256 KiB.
    pub bytes: u64,
    /// Nodes that this version applies to now, as a hostlist. This and the next three fields are left out if the
    /// version is not in force: not yet, or no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<String>,
    /// Number of nodes that this version applies to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_count: Option<u32>,
    /// Nodes that drift, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differ: Option<String>,
    /// Nodes with an unknown value, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Stored versions, oldest first; only in the answer for a single baseline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionView>,
}

/// Stop of automatic draining, because too many nodes would have been drained in a short time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrakeView {
    /// Drains that the brake prevented.
    pub reason: String,
    /// Time at which automatic draining stopped.
    pub since: String,
    /// Control that stopped automatic draining.
    pub by: String,
}

/// Brake on automatic draining.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrakeState {
    /// Present while automatic draining is stopped; otherwise left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<BrakeView>,
}

/// Request to release the brake after an operator has checked the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BrakeReleaseRequest)]
pub struct ReleaseRequest {
    /// Finding of the operator, for the audit.
    #[schema(min_length = 1, pattern = "[^ ]")]
    pub reason: String,
}
