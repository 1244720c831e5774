//! Cohorts, and the nodes that differ from the majority of their cohort.

use crate::keys::{name_space, split_slot};
use crate::{
    Class, ClassMark, ClassRecord, Digest, EarlierDigest, Identity, Inventory, Levels, Reading,
    Schemas, Value,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of nodes in a cohort; in a smaller group a majority has no meaning.
pub const COHORT_MIN: usize = 4;

/// The properties shared by nodes of one design.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CohortKey {
    /// System vendor; none if the firmware gives none.
    pub vendor: Option<String>,
    /// Product name; none if the firmware gives none.
    pub product: Option<String>,
    /// GPU model; none on a node without GPUs, and if the site disabled the GPU probe.
    pub gpu_model: Option<String>,
    /// Number of GPUs. None if the site disabled the GPU probe, which differs from zero GPUs.
    pub gpu_count: Option<u32>,
}

impl CohortKey {
    /// The cohort of a node. None while one of the four properties is unknown: a node with a hung GPU driver must not
    /// join the cohort of nodes without GPUs.
    #[must_use]
    pub fn of(identity: &Identity) -> Option<Self> {
        let text =
            |reading: &Reading<String>| reading.is_known().then(|| reading.present().cloned());
        let (gpu_model, gpu_count) = match &identity.gpu_count {
            Reading::Present(count) => (text(&identity.gpu_model)?, Some(*count)),
            Reading::Absent => (None, Some(0)),
            Reading::Disabled { .. } => (None, None),
            _ => return None,
        };
        Some(Self {
            vendor: text(&identity.vendor)?,
            product: text(&identity.product)?,
            gpu_model,
            gpu_count,
        })
    }
}

/// One node, as input for drift and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Name of the node.
    pub node: String,
    /// Cohort of the node, if known.
    pub cohort: Option<CohortKey>,
    /// Class marks of the node; a class missing from the map is unknown.
    pub classes: BTreeMap<Class, ClassMark>,
    /// Digests in earlier schemas, for comparison with nodes that are not upgraded yet.
    #[serde(default)]
    pub earlier: BTreeMap<Class, EarlierDigest>,
}

impl NodeView {
    /// The class marks and the digests in earlier schemas.
    #[must_use]
    pub const fn published_digests(
        &self,
    ) -> (&BTreeMap<Class, ClassMark>, &BTreeMap<Class, EarlierDigest>) {
        (&self.classes, &self.earlier)
    }
}

impl Inventory {
    /// This node as input for drift and groups.
    #[must_use]
    pub fn view(&self, node: impl Into<String>) -> NodeView {
        NodeView {
            node: node.into(),
            cohort: CohortKey::of(&self.identity),
            classes: self.marks(),
            earlier: self.earlier(&Schemas::SHIPPED),
        }
    }
}

/// Source of the records behind digests.
pub trait Preimages {
    /// The verified record of a digest, if available.
    fn record(&self, digest: &Digest) -> Option<ClassRecord>;

    /// The record expressed in an earlier schema, if possible: see [`ClassRecord::in_schema`].
    fn under(&self, record: &ClassRecord, schema: u16) -> Option<ClassRecord> {
        record.in_schema(schema).ok()
    }
}

impl<F: Fn(&Digest) -> Option<ClassRecord>> Preimages for F {
    fn record(&self, digest: &Digest) -> Option<ClassRecord> {
        self(digest)
    }
}

/// A key in which a node differs from the strict majority of its cohort.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Drift {
    /// Name of the node.
    pub node: String,
    /// Conformance class of the key.
    pub class: Class,
    /// Key in which the node differs.
    pub key: String,
    /// Value of the majority, as displayed.
    pub expected: String,
    /// Value of the node, as displayed.
    pub found: String,
    /// Number of nodes in the cohort with a known value of this key, including this node.
    pub of: usize,
    /// Number of nodes among `of` with the majority's value: `of - like` differ.
    pub like: usize,
}

/// A key on which a cohort disagrees without a majority, so no node drifts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoMajority {
    /// The cohort that disagrees.
    pub cohort: CohortKey,
    /// Conformance class of the key.
    pub class: Class,
    /// Key without a majority.
    pub key: String,
    /// Each value as displayed, with the nodes that have it.
    pub values: BTreeMap<String, Vec<String>>,
}

/// A node with an unknown state in one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnknownClassState {
    /// Name of the node.
    pub node: String,
    /// The unknown class.
    pub class: Class,
    /// Reason: incomplete, never seen, no preimage available yet, or another schema.
    pub why: String,
}

/// Result of one comparison over all cohorts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftReport {
    /// Drifts, sorted by node, class, key.
    pub drifts: Vec<Drift>,
    /// Keys on which a cohort has no majority.
    pub no_majority: Vec<NoMajority>,
    /// Unknown classes, sorted by node and class.
    pub unknown: Vec<UnknownClassState>,
    /// Nodes without a comparison: the cohort is unknown or smaller than [`COHORT_MIN`].
    pub alone: Vec<String>,
}

/// One cohort of at least [`COHORT_MIN`] nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohort<'a> {
    /// The properties that the members share.
    pub key: &'a CohortKey,
    /// Members of the cohort, in input order.
    pub members: Vec<&'a NodeView>,
}

/// Splits nodes into cohorts and nodes without a cohort.
#[must_use]
pub fn cohorts(nodes: &[NodeView]) -> (Vec<Cohort<'_>>, Vec<&NodeView>) {
    let mut by_key: BTreeMap<&CohortKey, Vec<&NodeView>> = BTreeMap::new();
    let mut alone = Vec::new();
    for node in nodes {
        match &node.cohort {
            Some(key) => by_key.entry(key).or_default().push(node),
            None => alone.push(node),
        }
    }
    let mut large = Vec::new();
    for (key, members) in by_key {
        if members.len() < COHORT_MIN {
            alone.extend(members);
        } else {
            large.push(Cohort { key, members });
        }
    }
    (large, alone)
}

/// Finds every node that differs from the strict majority of its cohort.
///
/// Digests are compared first, each class of a cohort in the schema that [`Levels`] selects for its members. Records
/// are opened only for classes with more than one digest in a cohort, each digest once.
#[must_use]
pub fn drift(nodes: &[NodeView], preimages: &impl Preimages) -> DriftReport {
    let mut report = DriftReport::default();
    let (cohorts, alone) = cohorts(nodes);
    for cohort in &cohorts {
        let classes: BTreeSet<Class> = cohort
            .members
            .iter()
            .flat_map(|node| node.classes.keys().copied())
            .collect();
        let levels = Levels::of(cohort.members.iter().map(|node| node.published_digests()));
        for class in classes {
            compare_class(cohort, class, &levels, preimages, &mut report);
        }
    }
    report.alone = alone.iter().map(|node| node.node.clone()).collect();
    report.alone.sort();
    report.drifts.sort();
    report.unknown.sort();
    report
}

/// The members with one digest, and the record of that digest.
struct Variant<'a> {
    record: ClassRecord,
    nodes: Vec<&'a str>,
}

fn compare_class(
    cohort: &Cohort<'_>,
    class: Class,
    levels: &Levels,
    preimages: &impl Preimages,
    report: &mut DriftReport,
) {
    let mut by_digest: BTreeMap<Digest, Vec<&str>> = BTreeMap::new();
    let mut unknown = |node: &str, why: &str| {
        report.unknown.push(UnknownClassState {
            node: node.to_owned(),
            class,
            why: why.to_owned(),
        });
    };
    for member in &cohort.members {
        let mark = member.classes.get(&class);
        match mark.map(|mark| levels.mark(class, *mark, member.earlier.get(&class))) {
            Some(ClassMark::Complete { digest, .. }) => {
                by_digest.entry(digest).or_default().push(&member.node);
            }
            Some(ClassMark::Incomplete) => unknown(&member.node, "incomplete"),
            // A class that the site disabled, or never requested, is a decision and not a gap to report.
            Some(ClassMark::Disabled) => {}
            None if class.is_optional() => {}
            None => unknown(&member.node, "never seen"),
        }
    }
    if by_digest.len() < 2 {
        return;
    }
    let mut variants = Vec::with_capacity(by_digest.len());
    for (digest, nodes) in by_digest {
        match preimages.record(&digest) {
            Some(record) => variants.push(Variant { record, nodes }),
            None => nodes
                .iter()
                .for_each(|node| unknown(node, "preimage not at hand")),
        }
    }
    // Values of different schemas are never compared; the most common schema is used.
    let schema = majority_schema(&variants);
    variants.retain(|variant| {
        let comparable = Some(variant.record.schema) == schema;
        if !comparable {
            variant
                .nodes
                .iter()
                .for_each(|node| unknown(node, "another schema"));
        }
        comparable
    });
    compare_keys(cohort.key, class, &variants, report);
}

fn majority_schema(variants: &[Variant<'_>]) -> Option<u16> {
    let mut sizes: BTreeMap<u16, usize> = BTreeMap::new();
    for variant in variants {
        *sizes.entry(variant.record.schema).or_default() += variant.nodes.len();
    }
    sizes
        .into_iter()
        .max_by_key(|(_, size)| *size)
        .map(|(s, _)| s)
}

fn compare_keys(
    cohort: &CohortKey,
    class: Class,
    variants: &[Variant<'_>],
    report: &mut DriftReport,
) {
    let keys: BTreeSet<&String> = variants
        .iter()
        .flat_map(|variant| variant.record.entries.keys())
        .collect();
    // A missing device shifts the slot ranks of a node; the count alone reports that.
    let mut miscounted: BTreeSet<(&str, &str)> = BTreeSet::new();
    let (counts, rest): (Vec<&String>, Vec<&String>) =
        keys.into_iter().partition(|key| key.ends_with(".count"));
    for key in counts.into_iter().chain(rest) {
        let prefix = split_slot(key).map(|(prefix, _)| prefix);
        let mut by_value: BTreeMap<Reading<Value>, Vec<&str>> = BTreeMap::new();
        let space = name_space(key).and_then(|space| Some((space, majority(variants, space)?)));
        for variant in variants {
            // In another name space the key has another meaning, and the name space itself is reported as drift.
            if let Some((space, common)) = &space
                && variant.record.get(space) != *common
            {
                continue;
            }
            let reading = variant.record.get(key);
            let shifted = |node: &str| prefix.is_some_and(|p| miscounted.contains(&(node, p)));
            if reading.is_known() {
                let nodes = variant.nodes.iter().filter(|node| !shifted(node));
                by_value.entry(reading).or_default().extend(nodes);
            }
        }
        by_value.retain(|_, nodes| !nodes.is_empty());
        if by_value.len() < 2 {
            continue;
        }
        let known: usize = by_value.values().map(Vec::len).sum();
        let majority = by_value.iter().find(|(_, nodes)| nodes.len() * 2 > known);
        let Some((expected, alike)) = majority else {
            report
                .no_majority
                .push(no_majority(cohort, class, key, &by_value));
            continue;
        };
        for (found, nodes) in by_value.iter().filter(|(value, _)| *value != expected) {
            for node in nodes {
                if let Some(prefix) = key.strip_suffix(".count") {
                    miscounted.insert((node, prefix));
                }
                report.drifts.push(Drift {
                    node: (*node).to_owned(),
                    class,
                    key: key.clone(),
                    expected: expected.to_string(),
                    found: found.to_string(),
                    of: known,
                    like: alike.len(),
                });
            }
        }
    }
}

/// The value that most nodes have for a key.
fn majority(variants: &[Variant<'_>], key: &str) -> Option<Reading<Value>> {
    let mut sizes: BTreeMap<Reading<Value>, usize> = BTreeMap::new();
    for variant in variants {
        *sizes.entry(variant.record.get(key)).or_default() += variant.nodes.len();
    }
    let largest = sizes.into_iter().max_by_key(|(_, size)| *size);
    largest.map(|(reading, _)| reading)
}

fn no_majority(
    cohort: &CohortKey,
    class: Class,
    key: &str,
    by_value: &BTreeMap<Reading<Value>, Vec<&str>>,
) -> NoMajority {
    let named = |nodes: &Vec<&str>| nodes.iter().map(|&node| node.to_owned()).collect();
    NoMajority {
        cohort: cohort.clone(),
        class,
        key: key.to_owned(),
        values: by_value
            .iter()
            .map(|(value, nodes)| (value.to_string(), named(nodes)))
            .collect(),
    }
}
