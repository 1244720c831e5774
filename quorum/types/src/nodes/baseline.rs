//! Baselines: the intended state of nodes, as stored in the quorum.
//!
//! The quorum does not interpret class records and does not decide whether a node conforms. A class rule is data for
//! `lattice-conformance`.

mod choice;

use crate::{Revision, UnixMillis, id::BaselineName};
use bytes::Bytes;
pub use choice::{Cohort, Specificity, most_specific};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// Longest baseline definition, bytes. The records of a whole node have 10 to 40 KiB.
pub const MAX_BYTES: u64 = 256 << 10;
/// Largest total of all baselines with all their retained versions, bytes. Every snapshot contains all these versions.
pub const MAX_TOTAL_BYTES: u64 = 64 << 20;
/// Retained versions of one baseline. Older versions are deleted.
pub const MAX_VERSIONS: usize = 16;
/// Largest number of baselines.
pub const MAX_BASELINES: usize = 256;
/// Largest number of nodes that one baseline may name. To cover more nodes, select a cohort.
pub const MAX_NODES: usize = 20_000;
/// Largest number of nodes that all baselines together may name. Each new baseline is compared with all others.
pub const MAX_TOTAL_NODES: usize = 200_000;
/// Largest number of constraints of one conformance class.
pub const MAX_CONSTRAINTS: usize = 1_024;

/// Consequence of drift: the action when a node differs from its baseline. Ordered by severity.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum DriftPolicy {
    /// Report the difference.
    #[default]
    Warn,
    /// Place new allocations on the node only if no other node is suitable.
    Deprioritise,
    /// Drain the node after the node itself has confirmed the difference.
    Drain,
}

/// Effect of drift from a baseline on sensitive allocations.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SensitivePolicy {
    /// A node that differs gets no new sensitive allocation.
    #[default]
    Strict,
    /// Sensitive allocations ignore this class.
    Ignore,
}

macro_rules! words {
    ($name:ident { $($variant:ident => $word:literal),* }) => {
        impl $name {
            /// Stable name of the value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!("{text:?} is not one of {}", [$($word),*].join(", "))),
                }
            }
        }
    };
}
words!(DriftPolicy { Warn => "warn", Deprioritise => "deprioritise", Drain => "drain" });
words!(SensitivePolicy { Strict => "strict", Ignore => "ignore" });

/// Cohort that a baseline selects. Every given part must be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CohortSelector {
    /// System vendor.
    pub vendor: Option<String>,
    /// Product name.
    pub product: Option<String>,
    /// GPU model.
    pub gpu_model: Option<String>,
    /// Number of GPUs; 0 for nodes without GPUs.
    pub gpu_count: Option<u32>,
}

impl CohortSelector {
    /// Number of given parts. A selector with more parts is more specific.
    pub fn parts(&self) -> usize {
        let texts = [&self.vendor, &self.product, &self.gpu_model];
        texts.iter().filter(|part| part.is_some()).count() + usize::from(self.gpu_count.is_some())
    }
}

impl fmt::Display for CohortSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = [
            ("vendor", &self.vendor),
            ("product", &self.product),
            ("gpu_model", &self.gpu_model),
        ];
        let mut parts: Vec<String> = texts
            .into_iter()
            .filter_map(|(name, text)| Some(format!("{name}={}", text.as_ref()?)))
            .collect();
        parts.extend(self.gpu_count.map(|count| format!("gpu_count={count}")));
        f.pad(&parts.join(" "))
    }
}

/// A permitted value of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scalar {
    /// Boolean.
    Flag(bool),
    /// Integer.
    Number(i64),
    /// Text, compared exactly. A version is compared as text too.
    Text(String),
    /// Ordered list of texts.
    List(Vec<String>),
}

/// Constraint on one key, or on one key of every slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// Key: `bios.version`, or `nic.*.firmware` for every slot.
    pub key: String,
    /// Permitted values.
    pub any_of: Vec<Scalar>,
    /// Whether the value may also be absent: the hardware reports that the value does not exist.
    pub or_absent: bool,
}

/// Rule for one conformance class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The record must be exactly this one.
    Exact {
        /// Schema of the record's keys.
        schema: u16,
        /// Content address of the preimage.
        digest: [u8; 32],
        /// The record itself, for a comparison key by key when no node has this record any more.
        preimage: Bytes,
    },
    /// Only these keys are constrained.
    Partial {
        /// Constraints; at least one.
        constraints: Vec<Constraint>,
    },
}

/// Rule for one conformance class, and the consequences of drift.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRule {
    /// Consequence when a node differs.
    pub policy: DriftPolicy,
    /// Effect on sensitive allocations.
    pub sensitive: SensitivePolicy,
    /// The rule.
    pub rule: Rule,
}

/// Definition of a baseline, as an operator writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineDefinition {
    /// Free-text description.
    pub description: String,
    /// Hostlist of the nodes that the baseline names; empty for none. For a named node this baseline takes precedence
    /// over the baselines of its cohort.
    pub nodes: String,
    /// Cohort that the baseline selects.
    pub cohort: Option<CohortSelector>,
    /// Rules by name of the conformance class; at least one.
    pub classes: BTreeMap<String, ClassRule>,
}

/// One version of a baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// Name of the baseline.
    pub name: BaselineName,
    /// Version number, starting at 1. A version never changes, and its number is never reused.
    pub version: u32,
    /// Definition of this version.
    pub definition: BaselineDefinition,
    /// Principal that set this version.
    pub by: String,
    /// State time at which the version was set.
    pub at: UnixMillis,
    /// Revision that created the version.
    pub revision: Revision,
    /// Size of the definition, bytes, which counts against [`MAX_TOTAL_BYTES`].
    pub bytes: u64,
}

/// Metadata of a retained version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionView {
    /// Version number.
    pub version: u32,
    /// Principal that set the version.
    pub by: String,
    /// State time at which the version was set.
    pub at: UnixMillis,
    /// Size of the definition, bytes.
    pub bytes: u64,
}

/// Brake on automatic draining: too many nodes would have been drained in a short time. No node is drained
/// automatically until an operator releases the brake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brake {
    /// Drains that were about to happen, with the numbers.
    pub reason: String,
    /// State time at which the brake was set.
    pub since: UnixMillis,
    /// Service that set the brake.
    pub by: String,
}

/// All baselines in force, and the brake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselinesView {
    /// The newest version of each baseline, sorted by name.
    pub baselines: Vec<Baseline>,
    /// The brake, while automatic draining is stopped.
    pub brake: Option<Brake>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for policy in [
            DriftPolicy::Warn,
            DriftPolicy::Deprioritise,
            DriftPolicy::Drain,
        ] {
            assert_eq!(policy.as_str().parse(), Ok(policy));
        }
        let error = "drian".parse::<DriftPolicy>().err();
        let error = error.unwrap_or_default();
        assert_eq!(error, "\"drian\" is not one of warn, deprioritise, drain");
    }

    #[test]
    fn selector_prints_its_selection() {
        let selector = CohortSelector {
            product: Some("XE9680".to_owned()),
            gpu_count: Some(8),
            ..CohortSelector::default()
        };
        assert_eq!(selector.parts(), 2);
        assert_eq!(selector.to_string(), "product=XE9680 gpu_count=8");
    }
}
