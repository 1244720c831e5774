//! Drift detection: each node is compared with its baseline, or without one with the majority of its cohort. A pure
//! function of the view and the available records.

#[cfg(test)]
mod tests;

use crate::{
    View,
    baselines::{BaselineChoice, ClassBaseline, ParsedBaseline},
    drift::{
        BaselineEffect, ClusterDrift, ComparisonResult, DriftReference, DriftedNode, UnknownClass,
    },
    node::NodeEntry,
};
use lattice_conformance::{
    Class, ClassMark, DriftReport, EarlierDigest, KeyVerdict, Preimages, baseline::BaselineVerdict,
    drift,
};
use lattice_quorum_types::{
    NodeId,
    baseline::{DriftPolicy, SensitivePolicy},
    id::BaselineName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Reason reported for a class while its record is not fetched yet.
const NOT_AT_HAND: &str = "preimage not at hand";

/// Compares every known node. A node that no longer gossips is compared by its last known state; it gets no effect.
pub fn compare(view: &View, preimages: &impl Preimages) -> ComparisonResult {
    let compared: Vec<_> = view.as_known_all().map(NodeEntry::compared).collect();
    let cohorts = drift(&compared, preimages);
    let mut judged = ComparisonResult::default();
    judged.report.number = view.baselines.generation;
    let mut applicable = ApplicableBaselines::default();
    if !view.baselines.is_empty() {
        let mut seen = BTreeMap::new();
        for entry in view.as_known_all() {
            let effect = compare_node(
                view,
                entry,
                preimages,
                &mut seen,
                &mut judged,
                &mut applicable,
            );
            let gossips = |entry: &Arc<NodeEntry>| entry.gossip.is_some();
            if view.node(&entry.id).is_some_and(gossips) {
                judged.effects.insert(entry.id.clone(), Arc::new(effect));
            }
        }
    }
    add_cohorts(view, &cohorts, &applicable, &mut judged.report);
    judged.report.drifted.sort();
    judged.report.unknown.sort();
    note_compared(view, &mut judged.report);
    judged.cohorts = cohorts;
    judged
}

/// Fills in the nodes that were compared, and the nodes with data still to be fetched.
fn note_compared(view: &View, report: &mut ClusterDrift) {
    let lacks_document = |entry: &NodeEntry| {
        let announced = entry.gossip.as_ref().and_then(|seen| seen.document);
        announced.is_some() && entry.document.is_none()
    };
    let known = || view.as_known_all();
    let waits = known().filter(|entry| lacks_document(entry));
    report.pending = waits.map(|entry| entry.id.clone()).collect();
    let not_at_hand = report.unknown.iter().filter(|u| u.why == NOT_AT_HAND);
    report.pending.extend(not_at_hand.map(|u| u.node.clone()));
    // A node that was never seen has no known data.
    let without_record = view.nodes.keys().filter(|id| view.as_known(id).is_none());
    report.pending.extend(without_record.cloned());
    let alone: BTreeSet<&str> = report.alone.iter().map(String::as_str).collect();
    let compared = known().filter(|entry| !alone.contains(entry.id.as_str()));
    report.compared = compared.map(|entry| entry.id.clone()).collect();
    let pending: BTreeSet<&str> = report.pending.iter().map(NodeId::as_str).collect();
    report.alone.retain(|name| !pending.contains(name.as_str()));
}

/// Baseline that applies to a class of a node; `None` where baselines conflict.
#[derive(Default)]
struct ApplicableBaselines(BTreeMap<(NodeId, Class), Option<Arc<ParsedBaseline>>>);

impl ApplicableBaselines {
    /// Whether a baseline covers this key, so that the cohort is not used for it.
    fn covers(&self, node: &NodeId, class: Class, key: &str) -> bool {
        match self.0.get(&(node.clone(), class)) {
            None => false,
            Some(None) => true,
            Some(Some(kept)) => match kept.classes().get(&class).map(|rule| &rule.expectation) {
                Some(Ok(expectation)) => expectation.covers(key),
                _ => true,
            },
        }
    }

    fn has(&self, node: &NodeId, class: Class) -> bool {
        self.0.contains_key(&(node.clone(), class))
    }
}

/// All inputs of a [`BaselineVerdict`]. Two nodes that differ in any of them are compared separately.
type StandingKey = (BaselineName, Class, ClassMark, Option<EarlierDigest>);

fn compare_node(
    view: &View,
    entry: &NodeEntry,
    preimages: &impl Preimages,
    seen: &mut BTreeMap<StandingKey, BaselineVerdict>,
    judged: &mut ComparisonResult,
    applicable: &mut ApplicableBaselines,
) -> BaselineEffect {
    let cohort = entry.cohort();
    let mut effect = BaselineEffect {
        marks: entry.marks().clone(),
        earlier: entry.earlier().clone(),
        // Without a cohort no cohort baseline matches below, although one might apply to the node.
        drain_unknown: cohort.is_none() && view.baselines.might_drain(),
        has_cohort: cohort.is_some(),
        number: view.baselines.generation,
        ..BaselineEffect::default()
    };
    let speaking = view.baselines.choose_for(&entry.id, cohort.as_ref());
    if cohort.is_none() && view.baselines.might_be_strict(&speaking) {
        let why = "the cohort of the node is unknown, so its baseline is unknown";
        effect.no_sensitive = Some(why.to_owned());
    }
    for (class, chosen) in speaking {
        let kept = match chosen {
            BaselineChoice::One(kept) => kept,
            BaselineChoice::Ambiguous(both) => {
                ambiguous(entry, class, &both, &mut effect, &mut judged.report);
                applicable.0.insert((entry.id.clone(), class), None);
                continue;
            }
        };
        let name = &kept.record.name;
        let nodes = judged.report.judged.entry(name.clone()).or_default();
        nodes.insert(entry.id.clone());
        applicable
            .0
            .insert((entry.id.clone(), class), Some(kept.clone()));
        let Some(rule) = kept.classes().get(&class) else {
            continue;
        };
        let mark = entry.marks().get(&class);
        let earlier = entry.earlier().get(&class);
        let standing = match (&rule.expectation, mark) {
            (Err(why), _) => BaselineVerdict::Unknown {
                why: format!("the baseline cannot be read: {why}"),
            },
            // Equal nodes, possibly ten thousand, are compared once.
            (Ok(expectation), Some(said)) => seen
                .entry((name.clone(), class, *said, earlier.copied()))
                .or_insert_with(|| expectation.verdict_for_mark(mark, earlier, preimages))
                .clone(),
            (Ok(expectation), None) => expectation.verdict_for_mark(None, earlier, preimages),
        };
        effect.note(&kept, class, rule, &standing);
        report_class(entry, &kept, class, rule, standing, &mut judged.report);
    }
    effect
}

fn ambiguous(
    entry: &NodeEntry,
    class: Class,
    both: &[Arc<ParsedBaseline>],
    effect: &mut BaselineEffect,
    report: &mut ClusterDrift,
) {
    let names: Vec<String> = both
        .iter()
        .map(|kept| kept.record.name.to_string())
        .collect();
    let why = format!(
        "baselines {} match it equally: name the node in one of them",
        names.join(" and ")
    );
    let rules = || both.iter().filter_map(|kept| kept.classes().get(&class));
    effect.drain_unknown |= rules().any(|rule| rule.policy == DriftPolicy::Drain);
    if rules().any(|rule| rule.sensitive == SensitivePolicy::Strict) {
        effect.no_sensitive.get_or_insert_with(|| why.clone());
    }
    report.unknown.push(UnknownClass {
        node: entry.id.clone(),
        class,
        why,
        baseline: None,
    });
}

fn report_class(
    entry: &NodeEntry,
    kept: &ParsedBaseline,
    class: Class,
    rule: &ClassBaseline,
    standing: BaselineVerdict,
    report: &mut ClusterDrift,
) {
    let node = &entry.id;
    match standing {
        BaselineVerdict::Conforms => {}
        BaselineVerdict::Unknown { why } => report.unknown.push(UnknownClass {
            node: node.clone(),
            class,
            why,
            baseline: Some(kept.record.name.clone()),
        }),
        BaselineVerdict::Differs(found) => {
            let by = DriftReference::Baseline {
                name: kept.record.name.clone(),
                version: kept.record.version,
                policy: rule.policy,
                sensitive: rule.sensitive,
            };
            let differs = found
                .into_iter()
                .filter(|d| d.verdict == KeyVerdict::Differs);
            report.drifted.extend(differs.map(|d| DriftedNode {
                node: node.clone(),
                class,
                key: d.key,
                expected: d.expected,
                found: d.found.to_string(),
                by: by.clone(),
                since: entry.since(class),
            }));
        }
    }
}

/// Adds cohort drift for the classes and keys that no baseline covers.
fn add_cohorts(
    view: &View,
    cohorts: &DriftReport,
    applicable: &ApplicableBaselines,
    report: &mut ClusterDrift,
) {
    let id = |name: &str| NodeId::new(name).ok();
    for drift in &cohorts.drifts {
        let Some(node) = id(&drift.node) else {
            continue;
        };
        if applicable.covers(&node, drift.class, &drift.key) {
            continue;
        }
        let since = view.as_known(&node);
        let since = since.and_then(|entry| entry.since(drift.class));
        report.drifted.push(DriftedNode {
            node,
            class: drift.class,
            key: drift.key.clone(),
            expected: drift.expected.clone(),
            found: drift.found.clone(),
            by: DriftReference::Cohort {
                of: drift.of,
                like: drift.like,
            },
            since,
        });
    }
    for unknown in &cohorts.unknown {
        let Some(node) = id(&unknown.node) else {
            continue;
        };
        if !applicable.has(&node, unknown.class) {
            report.unknown.push(UnknownClass {
                node,
                class: unknown.class,
                why: unknown.why.clone(),
                baseline: None,
            });
        }
    }
    report.no_majority.clone_from(&cohorts.no_majority);
    let has_baseline: BTreeSet<&NodeId> = report.judged.values().flatten().collect();
    let alone = cohorts.alone.iter();
    let alone = alone.filter(|name| id(name).is_none_or(|node| !has_baseline.contains(&node)));
    report.alone = alone.cloned().collect();
}
