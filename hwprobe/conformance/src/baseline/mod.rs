//! Baselines: the expected configuration of a node, and the deviations from it.
//!
//! A class either matches *exactly* one record, or matches in the listed keys only. Rules of the comparison:
//!
//! - An unknown value never counts as a difference: an unreadable key, an unrecorded key, a class without a digest, a
//!   record of another schema.
//! - A value that the hardware reports as absent is known. A constraint on an absent key is a difference, unless the
//!   constraint allows absence.
//! - `nic.*.firmware` covers every slot, by the recorded count. A count of zero is a difference: a required firmware
//!   must exist. Without a known count the result is unknown.
//! - Versions are opaque: equal or not, never older or newer.
//! - A record and its exact baseline are compared in the newest schema that can express both. Keys that only a later
//!   schema has are ignored. Without such a schema, the comparison is key by key: a key that only the node's schema has
//!   is ignored, and a key that only the baseline's schema has is unknown.
//! - Settings are not comparable between two records that name different attribute registries. The result is one
//!   difference, the registry, instead of one for each setting.

mod pattern;
#[cfg(test)]
mod tests;

use crate::keys::split_slot;
use crate::{
    Class, ClassMark, ClassRecord, Difference, Digest, EarlierDigest, KeyVerdict, Preimages,
    Reading, Schemas, Value, diff,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use pattern::{InvalidPattern, Pattern};

/// The expected configuration of nodes, class by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Name of the baseline.
    pub name: String,
    /// Version of the baseline.
    pub version: u32,
    /// Expectation for each class. Classes not listed are not checked.
    pub classes: BTreeMap<Class, Expectation>,
}

/// The expectation for one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The class equals this record.
    Exact {
        /// Content address of the record: a node with the same digest needs no comparison.
        digest: Digest,
        /// The expected record.
        record: Box<ClassRecord>,
    },
    /// These keys match; all other keys are ignored.
    Partial(Vec<Constraint>),
}

/// The allowed values of one key, or of one key in every slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// The keys that the constraint covers.
    pub key: Pattern,
    /// Allowed values; one must match.
    pub any_of: Vec<Value>,
    /// Whether an absent value is allowed too.
    pub or_absent: bool,
}

/// One key in which a node deviates from its baseline, or may deviate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// Conformance class of the key.
    pub class: Class,
    /// The key; a pattern if no slot is known.
    pub key: String,
    /// Expected value, as displayed.
    pub expected: String,
    /// The node's reading.
    pub found: Reading<Value>,
    /// Whether the deviation is a difference or unknown.
    pub verdict: KeyVerdict,
}

/// The result of comparing one class of a node with its baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineVerdict {
    /// Every expected value is known and matches.
    Conforms,
    /// At least one of these deviations is a difference; the others are unknown.
    Differs(Vec<Deviation>),
    /// No key differs, but not every key is known.
    Unknown {
        /// The reason.
        why: String,
    },
}

impl Constraint {
    /// Whether a present value is one of those allowed. A number equals its digits as text, so the author of a baseline
    /// need not consider how the probe reads a version.
    fn allows(&self, found: &Value) -> bool {
        let is_same = |allowed: &Value| {
            allowed == found
                || (!matches!(found, Value::List(_)) && allowed.to_string() == found.to_string())
        };
        self.any_of.iter().any(is_same)
    }

    fn verdict(&self, found: &Reading<Value>) -> Option<KeyVerdict> {
        match found {
            Reading::Present(value) if self.allows(value) => None,
            Reading::Absent if self.or_absent => None,
            known if known.is_known() => Some(KeyVerdict::Differs),
            _ => Some(KeyVerdict::Unknown),
        }
    }

    /// The allowed values, as displayed.
    #[must_use]
    pub fn expected(&self) -> String {
        let mut allowed: Vec<String> = self.any_of.iter().map(ToString::to_string).collect();
        if self.or_absent {
            allowed.push("<absent>".to_owned());
        }
        allowed.join(" or ")
    }

    fn check(&self, record: &ClassRecord) -> Vec<Deviation> {
        let deviation = |key: String, found: Reading<Value>, verdict| Deviation {
            class: record.class,
            key,
            expected: self.expected(),
            found,
            verdict,
        };
        let keys = self.key.keys_in(record);
        if keys.is_empty() {
            let found = self.key.reading_without_slots(record);
            let verdict = self.verdict(&found);
            let deviations = verdict.map(|verdict| deviation(self.key.to_string(), found, verdict));
            return deviations.into_iter().collect();
        }
        let checked = keys.into_iter().filter_map(|key| {
            let found = record.get(&key);
            let verdict = self.verdict(&found)?;
            Some(deviation(key, found, verdict))
        });
        checked.collect()
    }
}

impl Expectation {
    /// Whether the expectation covers this key. An exact record covers the whole class.
    #[must_use]
    pub fn covers(&self, key: &str) -> bool {
        match self {
            Self::Exact { .. } => true,
            Self::Partial(constraints) => constraints.iter().any(|c| c.key.matches(key)),
        }
    }

    /// Every key in which `record` deviates, or may deviate: in key order for an exact record, else in the order of the
    /// constraints.
    #[must_use]
    pub fn check(&self, record: &ClassRecord) -> Vec<Deviation> {
        match self {
            Self::Exact {
                record: expected, ..
            } => check_exact(expected, record),
            Self::Partial(constraints) => {
                constraints.iter().flat_map(|c| c.check(record)).collect()
            }
        }
    }

    /// Compares a node's mark, and the digest published in an earlier schema, with the expectation, using the available
    /// records.
    #[must_use]
    pub fn verdict_for_mark(
        &self,
        mark: Option<&ClassMark>,
        earlier: Option<&EarlierDigest>,
        preimages: &impl Preimages,
    ) -> BaselineVerdict {
        let unknown = |why: &str| BaselineVerdict::Unknown {
            why: why.to_owned(),
        };
        // An `earlier` digest that contradicts the mark is ignored.
        let earlier =
            earlier.filter(|earlier| mark.is_some_and(|mark| earlier.is_consistent_with(mark)));
        let (schema, found) = match mark {
            None => return unknown("never seen"),
            Some(ClassMark::Incomplete) => return unknown("incomplete"),
            Some(ClassMark::Disabled) => return unknown("disabled on the node"),
            Some(ClassMark::Complete { schema, digest }) => (*schema, digest),
        };
        let asked = match self {
            Self::Exact { digest, record } => {
                let said = [Some(*found), earlier.map(|earlier| earlier.digest)];
                if said.contains(&Some(*digest)) {
                    return BaselineVerdict::Conforms;
                }
                Some(record)
            }
            Self::Partial(_) => None,
        };
        // Uses the baseline's own schema if the node publishes a digest in it.
        let found = match (asked, earlier) {
            (Some(asked), Some(earlier)) if asked.schema == earlier.schema => &earlier.digest,
            _ => found,
        };
        // The baseline was set from an upgraded node: compare it in the schema that this node still uses.
        if let Some(asked) = asked
            && asked.schema > schema
            && let Some(asked) = preimages.under(asked, schema)
        {
            if asked.state().digest() == Some(*found) {
                return BaselineVerdict::Conforms;
            }
            let record = preimages.record(found);
            return record.map_or_else(
                || unknown("preimage not at hand"),
                |record| verdict_of(check_exact(&asked, &record)),
            );
        }
        let Some(record) = preimages.record(found) else {
            return unknown("preimage not at hand");
        };
        match asked {
            Some(asked) if asked.schema < record.schema => {
                let record = preimages.under(&record, asked.schema).unwrap_or(record);
                self.verdict_for_record(&record)
            }
            _ => self.verdict_for_record(&record),
        }
    }

    /// Compares a node's record with the expectation. The record may be incomplete: it lists the unreadable keys, so no
    /// digest is needed.
    #[must_use]
    pub fn verdict_for_record(&self, record: &ClassRecord) -> BaselineVerdict {
        if let Some(why) = &record.disabled {
            return BaselineVerdict::Unknown {
                why: format!("disabled on the node: {why}"),
            };
        }
        if let Some(why) = record.why_unsettled() {
            return BaselineVerdict::Unknown { why };
        }
        verdict_of(self.check(record))
    }
}

/// The verdict for these deviations.
fn verdict_of(found: Vec<Deviation>) -> BaselineVerdict {
    let Some(first) = found.first() else {
        return BaselineVerdict::Conforms;
    };
    if found.iter().any(|d| d.verdict == KeyVerdict::Differs) {
        return BaselineVerdict::Differs(found);
    }
    let why = match found.len() {
        1 => format!("{}: {}", first.key, first.found),
        more => format!("{} keys, the first {}: {}", more, first.key, first.found),
    };
    BaselineVerdict::Unknown { why }
}

/// Every key in which a class record deviates from the baseline, or may deviate. Empty for a class that the baseline
/// does not cover.
#[must_use]
pub fn check(baseline: &Baseline, record: &ClassRecord) -> Vec<Deviation> {
    let expected = baseline.classes.get(&record.class);
    expected.map_or_else(Vec::new, |expected| expected.check(record))
}

/// Suffix of the key that names the attribute registry of some settings.
const REGISTRY: &str = ".registry";
/// Segments that follow the prefix of the registry key in the keys of its settings.
const SETTINGS: [&str; 4] = [".setting.", ".settings.", ".attribute.", ".attributes."];

fn check_exact(expected: &ClassRecord, record: &ClassRecord) -> Vec<Deviation> {
    let differences = differences(expected, record);
    // A slot that one side lacks shifts the ranks of all later slots; the count alone reports that.
    let mut miscounted: BTreeSet<&str> = BTreeSet::new();
    let mut other_registry: BTreeSet<&str> = BTreeSet::new();
    for difference in differences
        .iter()
        .filter(|d| d.verdict == KeyVerdict::Differs)
    {
        miscounted.extend(difference.key.strip_suffix(".count"));
        other_registry.extend(difference.key.strip_suffix(REGISTRY));
    }
    let is_shifted =
        |key: &str| split_slot(key).is_some_and(|(prefix, _)| miscounted.contains(prefix));
    let is_of_other_registry = |key: &str| {
        other_registry.iter().any(|prefix| {
            let rest = key.strip_prefix(prefix);
            rest.is_some_and(|rest| SETTINGS.iter().any(|s| rest.starts_with(s)))
        })
    };
    let deviations = differences
        .iter()
        .filter(|d| !is_shifted(&d.key) && !is_of_other_registry(&d.key));
    deviations
        .map(|difference| Deviation {
            class: difference.class,
            key: difference.key.clone(),
            expected: difference.left.to_string(),
            found: difference.right.clone(),
            verdict: difference.verdict,
        })
        .collect()
}

/// Compares the records in the newest schema that can express both. Without such a schema, compares key by key and
/// ignores keys that only the node's schema has.
fn differences(expected: &ClassRecord, record: &ClassRecord) -> Vec<Difference> {
    let schema = expected.schema.min(record.schema);
    if expected.schema == record.schema {
        return diff(expected, record);
    }
    if let (Ok(expected), Ok(record)) = (expected.in_schema(schema), record.in_schema(schema)) {
        return diff(&expected, &record);
    }
    let mut found = diff(expected, record);
    found.retain(|difference| !Schemas::SHIPPED.lacks(expected, &difference.key));
    found
}
