//! Preview of a baseline: the nodes it would apply to and their conformance, returned to the caller that sets it.

use crate::state::Api;
use lattice_api::baseline::BaselineComparisonView;
use lattice_conformance::{ClassRecord, Digest, baseline::Expectation};
use lattice_quorum_types::{
    NodeId, UnixMillis,
    baseline::{Baseline, BaselineDefinition, CohortSelector, DriftPolicy},
    hostlist,
    id::BaselineName,
};
use lattice_view::{View, baselines::ParsedBaseline};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Maximum number of known values listed for a cohort part without a match.
const MAX_LISTED_VALUES: usize = 8;

/// Evaluates the definition on current data as if it were in force. Returns the version that the baseline would get,
/// and the conformance of the nodes.
pub(super) fn preview(
    api: &Api,
    name: &BaselineName,
    definition: BaselineDefinition,
) -> (u32, BaselineComparisonView) {
    let core = api.core();
    let mut view = View::clone(&core.view());
    let present = view.baselines.get(name);
    let version = match present.map(|kept| &kept.record) {
        None => 1,
        Some(record) if record.definition == definition => record.version,
        Some(record) => record.version + 1,
    };
    let revision = view.revision;
    Arc::make_mut(&mut view.baselines).set(Baseline {
        name: name.clone(),
        version,
        definition,
        by: String::new(),
        at: UnixMillis(0),
        revision,
        bytes: 0,
    });
    let record = |digest: &Digest| -> Option<ClassRecord> {
        let record = api.stores().preimages.record(digest);
        record.map(|record| ClassRecord::clone(&record))
    };
    let report = lattice_view::compare(&view, &record).report;
    let judged = report.judged.get(name).cloned().unwrap_or_default();
    let mut differ: BTreeMap<&NodeId, DriftPolicy> = BTreeMap::new();
    for drifted in &report.drifted {
        match &drifted.by {
            lattice_view::drift::DriftReference::Baseline {
                name: by, policy, ..
            } if by == name => {
                let worst = differ.entry(&drifted.node).or_insert(*policy);
                *worst = (*worst).max(*policy);
            }
            _ => {}
        }
    }
    let unknown = report.unknown.iter();
    let unknown = unknown.filter(|u| u.baseline.as_ref() == Some(name));
    let unknown: BTreeSet<&NodeId> = unknown
        .map(|u| &u.node)
        .filter(|node| !differ.contains_key(node))
        .collect();
    let conforms = |node: &&NodeId| !differ.contains_key(node) && !unknown.contains(node);
    let conform: Vec<&NodeId> = judged.iter().filter(conforms).collect();
    let follows = |policy: DriftPolicy| {
        let nodes = differ.iter().filter(|(_, worst)| **worst == policy);
        hostlist::fold(nodes.map(|(node, _)| *node))
    };
    let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
    let standing = BaselineComparisonView {
        compared_count: count(judged.len()),
        conform_count: count(conform.len()),
        differ_count: count(differ.len()),
        unknown_count: count(unknown.len()),
        compared: hostlist::fold(&judged),
        conform: hostlist::fold(conform),
        drain: follows(DriftPolicy::Drain),
        deprioritise: follows(DriftPolicy::Deprioritise),
        differ: hostlist::fold(differ.keys().copied()),
        unknown: hostlist::fold(unknown),
        warnings: view
            .baselines
            .get(name)
            .map(|kept| warnings(api, &view, kept, &judged))
            .unwrap_or_default(),
    };
    (version, standing)
}

/// Warnings about node names, cohort values and keys that match nothing at present: they may match later, or may be
/// misspelt.
fn warnings(
    api: &Api,
    view: &View,
    kept: &ParsedBaseline,
    judged: &BTreeSet<NodeId>,
) -> Vec<String> {
    let definition = &kept.record.definition;
    let named = hostlist::expand(&definition.nodes).unwrap_or_default();
    let missing: Vec<_> = named.iter().filter(|n| view.node(n).is_none()).collect();
    let mut warnings = Vec::new();
    if !missing.is_empty() {
        let missing = hostlist::fold(missing);
        warnings.push(format!("no node has this name now: {missing}"));
    }
    if let Some(cohort) = &definition.cohort {
        warnings.extend(cohort_warnings(view, cohort));
    }
    for (class, rule) in kept.classes() {
        let Ok(Expectation::Partial(constraints)) = &rule.expectation else {
            continue;
        };
        let of_class = |node: &NodeId| {
            let digest = view.node(node)?.marks().get(class)?.digest()?;
            api.stores().preimages.record(&digest)
        };
        let records: Vec<_> = judged.iter().filter_map(of_class).collect();
        for constraint in constraints {
            // A key that may or must be absent need not exist anywhere.
            let is_asked = !constraint.any_of.is_empty() && !constraint.or_absent;
            let is_there = |record: &Arc<ClassRecord>| {
                let mut keys = record.entries.keys();
                keys.any(|key| constraint.key.matches(key))
            };
            if is_asked && !records.is_empty() && !records.iter().any(is_there) {
                let key = &constraint.key;
                warnings.push(format!(
                    "no node it applies to has the key {key} (`lattice node show NODE --inventory \
                     --class {class}` lists the keys)"
                ));
            }
        }
    }
    warnings
}

/// Warnings for cohort parts with a value that no node has, with the existing values.
fn cohort_warnings(view: &View, cohort: &CohortSelector) -> Vec<String> {
    let keys: Vec<_> = view.nodes.values().filter_map(|e| e.cohort()).collect();
    let count = cohort.gpu_count.map(|count| count.to_string());
    let parts = [
        ("vendor", &cohort.vendor),
        ("product", &cohort.product),
        ("gpu_model", &cohort.gpu_model),
        ("gpu_count", &count),
    ];
    let mut warnings = Vec::new();
    for (part, asked) in parts {
        let Some(asked) = asked else {
            continue;
        };
        let values = keys.iter().filter_map(|key| match part {
            "vendor" => key.vendor.clone(),
            "product" => key.product.clone(),
            "gpu_model" => key.gpu_model.clone(),
            _ => key.gpu_count.map(|count| count.to_string()),
        });
        let values: BTreeSet<String> = values.collect();
        if !values.contains(asked) {
            let values: Vec<_> = values.into_iter().take(MAX_LISTED_VALUES).collect();
            warnings.push(format!(
                "no node has {part} {asked}; existing values: {}",
                values.join(", ")
            ));
        }
    }
    warnings
}
