//! Baselines as they are asked for and shown. The file that people write has the shape of
//! [`BaselineRequest`].

use lattice_quorum_types::{
    Revision,
    baseline::{CohortSelector as Kept, VersionView as KeptVersion},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use crate::text;

/// Which cohort is meant: every part that is given must be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CohortForm {
    /// System vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// GPU model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Number of GPUs; 0 for nodes without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
}

impl From<&Kept> for CohortForm {
    fn from(kept: &Kept) -> Self {
        Self {
            vendor: kept.vendor.clone(),
            product: kept.product.clone(),
            gpu_model: kept.gpu_model.clone(),
            gpu_count: kept.gpu_count,
        }
    }
}

impl From<CohortForm> for Kept {
    fn from(form: CohortForm) -> Self {
        Self {
            vendor: form.vendor,
            product: form.product,
            gpu_model: form.gpu_model,
            gpu_count: form.gpu_count,
        }
    }
}

/// What one class is meant to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassForm {
    /// `warn`, `deprioritise` or `drain`; the baseline's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `strict` or `ignore`; the baseline's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<String>,
    /// Keys and what they must be, whatever the rest: a value, a list `{any_of: [a, b]}`, either
    /// with `or_absent: true`, or `{absent: true}`. `nic.*.firmware` speaks of every slot. Without
    /// keys the class must be exactly what `from_node` or `from_group` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub keys: Option<BTreeMap<String, serde_json::Value>>,
}

/// A new version of a baseline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BaselineRequest {
    /// Its name, as a check: the one of the path counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The nodes it is for, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// The nodes it is for, by what they are. Named nodes go before a cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<CohortForm>,
    /// The node that others should be like. It is asked now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_node: Option<String>,
    /// The conformance group that others should be like: its digest, or its first 8 digits or more.
    /// One of its members is asked now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_group: Option<String>,
    /// What follows where a node differs, for classes that do not say: `warn` (when left out),
    /// `deprioritise`, `drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What that means to sensitive work, for classes that do not say: `strict` (when left out: no
    /// new sensitive work at once) or `ignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<String>,
    /// Rules by class. With `from_node` or `from_group` and none here: every class that is complete
    /// there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, ClassForm>,
    /// The version this rests on, 0 for none; refused when there is another by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u32>,
}

/// The version that is in force after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaselineSet {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// The classes it speaks of.
    pub classes: Vec<String>,
    /// The revision that made it, or the present one when it was so already.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Nothing was set: it would be so.
    pub dry_run: bool,
    /// Whom it speaks for, at this moment.
    pub standing: BaselineStanding,
}

/// For whom a baseline speaks, and how they stand. Nodes are hostlists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaselineStanding {
    /// Those it speaks for.
    pub judged: String,
    /// How many.
    pub judged_count: u32,
    /// Those that are what it asks.
    pub conform: String,
    /// How many.
    pub conform_count: u32,
    /// Those that differ.
    pub differ: String,
    /// How many.
    pub differ_count: u32,
    /// Those where nothing is found to differ, and something is not known.
    pub unknown: String,
    /// How many.
    pub unknown_count: u32,
    /// Of those that differ: what is drained by its policy.
    pub drain: String,
    /// Of those that differ: what gets new work last.
    pub deprioritise: String,
    /// Names, parts of the cohort, and keys that no node has: they may come, or be misspelt.
    pub warnings: Vec<String>,
}

/// What a baseline says of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassRuleView {
    /// `exact` or `partial`.
    pub kind: String,
    /// `warn`, `deprioritise` or `drain`.
    pub policy: String,
    /// `strict` or `ignore`.
    pub sensitive: String,
    /// The digest that is met exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The schema of that digest's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<u16>,
    /// Each key with what it is meant to be, as shown. Left out of lists where the rule is exact.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// Why nobody is judged by it here: it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A version that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionView {
    /// Its number.
    pub version: u32,
    /// Who made it.
    pub by: String,
    /// When.
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

/// One baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaselineView {
    /// Its name.
    pub name: String,
    /// The version shown.
    pub version: u32,
    /// For people.
    pub description: String,
    /// The nodes it names, as a hostlist.
    pub nodes: String,
    /// The cohort it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<CohortForm>,
    /// What it says of each class.
    pub classes: BTreeMap<String, ClassRuleView>,
    /// Who decided it.
    pub by: String,
    /// When.
    pub at: String,
    /// What it takes of the 256 KiB that one baseline may have.
    pub bytes: u64,
    /// Nodes it speaks for now, as a hostlist. Like the next three left out where nobody is judged by
    /// this version: not yet, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<String>,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_count: Option<u32>,
    /// Those of them that differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differ: Option<String>,
    /// Those of them of which something is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The versions that are kept, oldest first; only where one baseline is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionView>,
}

/// Automatic draining stands still since too many nodes would have been drained in a short time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrakeView {
    /// What was about to happen.
    pub reason: String,
    /// Since when.
    pub since: String,
    /// Who noticed.
    pub by: String,
}

/// The brake on automatic draining.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrakeState {
    /// Left out while nothing stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<BrakeView>,
}

/// A person has looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BrakeReleaseRequest)]
pub struct ReleaseRequest {
    /// What was found, for the audit.
    #[schema(min_length = 1, pattern = "[^ ]")]
    pub reason: String,
}
