//! What a node is meant to be, and where it is not.
//!
//! A class is meant to be *exactly* one record, or to agree in some keys, whatever the rest. The
//! rules of the comparison:
//!
//! - What is not known never differs: an unreadable key, an unrecorded one, a class without a
//!   digest, a record of another schema.
//! - What the hardware says it has not is known. A constraint on a key that is absent is a
//!   difference, unless it allows that.
//! - `nic.*.firmware` speaks of every slot there is, by the recorded count. Where the count says
//!   that there is none at all it is a difference: what must have a firmware must be there. Where
//!   no count is known it is unknown.
//! - Versions are opaque: equal or not, never older or newer.
//! - A record and its exact baseline are compared in the newest schema that both can be told under;
//!   what only a later schema has is not asked for. Where there is none, key by key what both have.
//! - Where two records name different attribute registries their settings have nothing to compare:
//!   that is one difference, the registry, and not one for each setting.

mod pattern;
#[cfg(test)]
mod tests;

use crate::record::split_slot;
use crate::{
    Class, ClassMark, ClassRecord, Difference, Digest, Earlier, Preimages, Reading, Schemas, Value,
    Verdict, diff,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use pattern::{BadPattern, Pattern};

/// What nodes are meant to be, class by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// What each class is meant to be. Others are not judged.
    pub classes: BTreeMap<Class, Expectation>,
}

/// What one class is meant to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// This record.
    Exact {
        /// Its content address: a node with the same needs no comparison.
        digest: Digest,
        /// The record.
        record: Box<ClassRecord>,
    },
    /// These keys, whatever the rest.
    Partial(Vec<Constraint>),
}

/// What one key, or one key of every slot, is meant to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// Which keys.
    pub key: Pattern,
    /// One of these.
    pub any_of: Vec<Value>,
    /// Or nothing.
    pub or_absent: bool,
}

/// One key in which a node is not what it is meant to be, or may not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// The class.
    pub class: Class,
    /// The key; a pattern where no slot is known.
    pub key: String,
    /// What it is meant to be, as shown.
    pub expected: String,
    /// What it is.
    pub found: Reading<Value>,
    /// Whether that is a difference.
    pub verdict: Verdict,
}

/// How one class of a node stands to its baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Everything that is asked for is known and so.
    Conforms,
    /// At least one of these differs; the others are unknown.
    Differs(Vec<Deviation>),
    /// Nothing differs, and not everything is known.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Constraint {
    /// Whether a present value is one of those allowed. A number and its digits are the same: who
    /// writes a version into a file need not know how the probe reads it.
    fn allows(&self, found: &Value) -> bool {
        let is_same = |allowed: &Value| {
            allowed == found
                || (!matches!(found, Value::List(_)) && allowed.to_string() == found.to_string())
        };
        self.any_of.iter().any(is_same)
    }

    fn verdict(&self, found: &Reading<Value>) -> Option<Verdict> {
        match found {
            Reading::Present(value) if self.allows(value) => None,
            Reading::Absent if self.or_absent => None,
            known if known.is_known() => Some(Verdict::Differs),
            _ => Some(Verdict::Unknown),
        }
    }

    /// The values that are allowed, as shown.
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
            let found = self.key.nothing_in(record);
            let verdict = self.verdict(&found);
            let told = verdict.map(|verdict| deviation(self.key.to_string(), found, verdict));
            return told.into_iter().collect();
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
    /// Whether it speaks of this key. An exact record speaks of the whole class.
    #[must_use]
    pub fn covers(&self, key: &str) -> bool {
        match self {
            Self::Exact { .. } => true,
            Self::Partial(constraints) => constraints.iter().any(|c| c.key.matches(key)),
        }
    }

    /// Every key in which `record` is not as expected, or may not be; differences before unknowns
    /// of the same key order.
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

    /// How a node with this mark, and this said beside it, stands, by the records at hand.
    #[must_use]
    pub fn judge(
        &self,
        mark: Option<&ClassMark>,
        earlier: Option<&Earlier>,
        preimages: &impl Preimages,
    ) -> Standing {
        let unknown = |why: &str| Standing::Unknown {
            why: why.to_owned(),
        };
        // What cannot stand beside the mark was not said.
        let earlier = earlier.filter(|earlier| mark.is_some_and(|mark| earlier.is_beside(mark)));
        let (schema, found) = match mark {
            None => return unknown("never seen"),
            Some(ClassMark::Incomplete) => return unknown("incomplete"),
            Some(ClassMark::Disabled) => return unknown("switched off at the node"),
            Some(ClassMark::Complete { schema, digest }) => (*schema, digest),
        };
        let asked = match self {
            Self::Exact { digest, record } => {
                let said = [Some(*found), earlier.map(|earlier| earlier.digest)];
                if said.contains(&Some(*digest)) {
                    return Standing::Conforms;
                }
                Some(record)
            }
            Self::Partial(_) => None,
        };
        // In the baseline's own schema, where the node says it.
        let found = match (asked, earlier) {
            (Some(asked), Some(earlier)) if asked.schema == earlier.schema => &earlier.digest,
            _ => found,
        };
        // A baseline that was set from an upgraded node, as it was before.
        if let Some(asked) = asked
            && asked.schema > schema
            && let Some(asked) = preimages.under(asked, schema)
        {
            if asked.state().digest() == Some(*found) {
                return Standing::Conforms;
            }
            let record = preimages.record(found);
            return record.map_or_else(
                || unknown("preimage not at hand"),
                |record| standing_of(check_exact(&asked, &record)),
            );
        }
        let Some(record) = preimages.record(found) else {
            return unknown("preimage not at hand");
        };
        match asked {
            Some(asked) if asked.schema < record.schema => {
                let record = preimages.under(&record, asked.schema).unwrap_or(record);
                self.standing(&record)
            }
            _ => self.standing(&record),
        }
    }

    /// How this record stands. Who has the whole record, its unreadable keys too, need not go by a
    /// digest.
    #[must_use]
    pub fn standing(&self, record: &ClassRecord) -> Standing {
        if let Some(why) = &record.disabled {
            return Standing::Unknown {
                why: format!("switched off at the node: {why}"),
            };
        }
        if let Some(why) = record.why_unsettled() {
            return Standing::Unknown { why };
        }
        standing_of(self.check(record))
    }
}

/// What these deviations come to.
fn standing_of(found: Vec<Deviation>) -> Standing {
    let Some(first) = found.first() else {
        return Standing::Conforms;
    };
    if found.iter().any(|d| d.verdict == Verdict::Differs) {
        return Standing::Differs(found);
    }
    let why = match found.len() {
        1 => format!("{}: {}", first.key, first.found),
        more => format!("{} keys, the first {}: {}", more, first.key, first.found),
    };
    Standing::Unknown { why }
}

/// Every key in which a class record is not as its baseline says, or may not be. A class of which
/// the baseline does not speak has none.
#[must_use]
pub fn check(baseline: &Baseline, record: &ClassRecord) -> Vec<Deviation> {
    let expected = baseline.classes.get(&record.class);
    expected.map_or_else(Vec::new, |expected| expected.check(record))
}

/// Ends of the key that names the registry by which settings are read.
const REGISTRY: &str = ".registry";
/// What such settings begin with, behind the registry's prefix.
const SETTINGS: [&str; 4] = [".setting.", ".settings.", ".attribute.", ".attributes."];

fn check_exact(expected: &ClassRecord, record: &ClassRecord) -> Vec<Deviation> {
    let differences = differences(expected, record);
    // A slot that one side lacks shifts the ranks of all behind it: the count says it all.
    let mut miscounted: BTreeSet<&str> = BTreeSet::new();
    let mut other_registry: BTreeSet<&str> = BTreeSet::new();
    for difference in differences.iter().filter(|d| d.verdict == Verdict::Differs) {
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
    let told = differences
        .iter()
        .filter(|d| !is_shifted(&d.key) && !is_of_other_registry(&d.key));
    told.map(|difference| Deviation {
        class: difference.class,
        key: difference.key.clone(),
        expected: difference.left.to_string(),
        found: difference.right.clone(),
        verdict: difference.verdict,
    })
    .collect()
}

/// In the newest schema that both can be told under; else key by key, without what only the node's
/// schema has.
fn differences(expected: &ClassRecord, record: &ClassRecord) -> Vec<Difference> {
    let schema = expected.schema.min(record.schema);
    if expected.schema == record.schema {
        return diff(expected, record);
    }
    if let (Ok(expected), Ok(record)) = (expected.under(schema), record.under(schema)) {
        return diff(&expected, &record);
    }
    let mut found = diff(expected, record);
    found.retain(|difference| !Schemas::SHIPPED.lacks(expected, &difference.key));
    found
}
