//! Consequences of baselines for one node.

use crate::{
    baselines::{Baselines, ClassBaseline, ParsedBaseline},
    node::NodeEntry,
};
use lattice_conformance::{
    Class, ClassMark, EarlierDigest, KeyVerdict,
    baseline::{BaselineVerdict, Deviation},
};
use lattice_quorum_types::baseline::{DriftPolicy, SensitivePolicy};
use std::collections::BTreeMap;

/// Consequences for one node of the baselines that apply to it, and the marks they were computed from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaselineEffect {
    /// Reason why the node receives no sensitive allocations.
    pub no_sensitive: Option<String>,
    /// The node receives new allocations only if no other node fits.
    pub deprioritised: bool,
    /// Differences from baselines with policy drain.
    pub drain: Option<String>,
    /// A class under a baseline with policy drain is unknown, or such a baseline might apply.
    pub drain_unknown: bool,
    pub(crate) marks: BTreeMap<Class, ClassMark>,
    pub(crate) earlier: BTreeMap<Class, EarlierDigest>,
    pub(crate) has_cohort: bool,
    pub(crate) number: u64,
}

impl BaselineEffect {
    /// Whether the effect is current: it was computed from the present marks of the node and the present baselines, and
    /// the cohort of the node was known, or not, as it is now.
    pub fn is_of(&self, entry: &NodeEntry, baselines: &Baselines) -> bool {
        self.number == baselines.generation
            && self.marks == *entry.marks()
            && self.earlier == *entry.earlier()
            && self.has_cohort == entry.cohort().is_some()
    }

    /// Adds the consequence of one class that was checked against its baseline.
    pub(crate) fn note(
        &mut self,
        kept: &ParsedBaseline,
        class: Class,
        rule: &ClassBaseline,
        standing: &BaselineVerdict,
    ) {
        let label = kept.label();
        let no_sensitive = match standing {
            BaselineVerdict::Conforms => return,
            BaselineVerdict::Differs(found) => {
                let words = differs(found);
                if rule.policy >= DriftPolicy::Deprioritise {
                    self.deprioritised = true;
                }
                if rule.policy == DriftPolicy::Drain {
                    let words = format!("differs from baseline {label}: {words}");
                    self.drain = Some(match self.drain.take() {
                        Some(before) => format!("{before}; {words}"),
                        None => words.clone(),
                    });
                }
                format!("it differs from baseline {label}: {words}")
            }
            BaselineVerdict::Unknown { why } => {
                self.drain_unknown |= rule.policy == DriftPolicy::Drain;
                format!("baseline {label} cannot be checked in class {class}: {why}")
            }
        };
        if rule.sensitive == SensitivePolicy::Strict {
            self.no_sensitive.get_or_insert(no_sensitive);
        }
    }
}

/// Text for deviations, such as `nic.0.firmware is 28.39, not 28.41, and 2 keys more`.
pub fn differs(found: &[Deviation]) -> String {
    let mut differ = found.iter().filter(|d| d.verdict == KeyVerdict::Differs);
    let Some(first) = differ.next() else {
        return "no known value".to_owned();
    };
    let words = format!("{} is {}, not {}", first.key, first.found, first.expected);
    match differ.count() {
        0 => words,
        1 => format!("{words}, and 1 key more"),
        more => format!("{words}, and {more} keys more"),
    }
}
