//! Comparison of a baseline with a node or another baseline.

use super::find;
use crate::ops::nodes::{agent_problem, difference};
use crate::state::Api;
use lattice_api::{
    conformance::{DiffView, DifferenceView},
    problem::{Kind, Problem},
};
use lattice_conformance::{
    Class, ClassRecord, KeyVerdict, Reading,
    baseline::{Constraint, Deviation, Expectation},
    diff as compare,
};
use lattice_engine::Core;
use lattice_quorum_types::NodeId;
use lattice_view::baselines::ParsedBaseline;
use std::collections::{BTreeMap, BTreeSet};

/// Compares a baseline with a node or another baseline.
pub(crate) async fn diff(api: &Api, text: &str, with: &str) -> Result<DiffView, Problem> {
    let core = api.core();
    let left = find(core, text).await?;
    let node = NodeId::new(with).ok();
    let view = core.view();
    let differences = match node.filter(|node| view.node(node).is_some()) {
        Some(node) => {
            let records = api.records().records(&node, &Class::ALL).await;
            let records = records.map_err(|error| agent_problem(&error))?;
            let found = deviations(&left, &records.into_iter().collect());
            found.into_iter().map(deviation).collect()
        }
        None => rule_differences(&left, &find_other(core, with).await?),
    };
    Ok(DiffView {
        left: format!("baseline {}", left.label()),
        right: with.to_owned(),
        differences,
    })
}

/// Finds the other baseline. The error for an unknown name also mentions nodes, because the caller may have meant one.
async fn find_other(core: &Core, text: &str) -> Result<ParsedBaseline, Problem> {
    let found = find(core, text).await;
    found.map_err(|problem| {
        let is_unknown = problem.status == 404 && !text.contains('@');
        match is_unknown {
            false => problem,
            true => {
                let detail = format!(
                    "{text:?} is not the name of a node or a baseline; `lattice node list` and \
                     `lattice conformance baseline list` list both"
                );
                Problem::new(Kind::NotFound, "unknown_baseline", detail)
            }
        }
    })
}

/// Deviations of these records from the baseline, even if the baseline does not apply to their node. A class without a
/// record, disabled on the node, or with a rule that this build cannot read, is unknown.
fn deviations(baseline: &ParsedBaseline, records: &BTreeMap<Class, ClassRecord>) -> Vec<Deviation> {
    let mut deviations = Vec::new();
    for (class, rule) in baseline.classes() {
        let unknown = |why: &str| Deviation {
            class: *class,
            key: "class".to_owned(),
            expected: "<as in the baseline>".to_owned(),
            found: Reading::failed(why),
            verdict: KeyVerdict::Unknown,
        };
        let record = records.get(class);
        match (
            &rule.expectation,
            record,
            record.and_then(|r| r.disabled.as_ref()),
        ) {
            (Err(why), ..) | (_, _, Some(why)) => deviations.push(unknown(why)),
            (_, None, _) => deviations.push(unknown("not read")),
            (Ok(expectation), Some(record), None) => deviations.extend(expectation.check(record)),
        }
    }
    deviations
}

fn deviation(d: Deviation) -> DifferenceView {
    row(d.class, d.key, d.expected, d.found.to_string(), d.verdict)
}

fn row(class: Class, key: String, left: String, right: String, v: KeyVerdict) -> DifferenceView {
    let verdict = match v {
        KeyVerdict::Differs => "differs",
        KeyVerdict::Unknown => "unknown",
        KeyVerdict::Moved => "moved",
    };
    DifferenceView {
        class: class.to_string(),
        key,
        left,
        right,
        verdict: verdict.to_owned(),
    }
}

/// Differences between the rules of two baselines.
fn rule_differences(left: &ParsedBaseline, right: &ParsedBaseline) -> Vec<DifferenceView> {
    let classes: BTreeSet<Class> = left
        .classes()
        .keys()
        .chain(right.classes().keys())
        .copied()
        .collect();
    let ask = |kept: &ParsedBaseline, class: Class| match kept.classes().get(&class) {
        None => Err("<no rule>".to_owned()),
        Some(rule) => rule.expectation.clone(),
    };
    let mut rows = Vec::new();
    for class in classes {
        match (ask(left, class), ask(right, class)) {
            (
                Ok(Expectation::Exact { record: a, .. }),
                Ok(Expectation::Exact { record: b, .. }),
            ) => rows.extend(compare(&a, &b).into_iter().map(difference)),
            (Ok(Expectation::Partial(a)), Ok(Expectation::Partial(b))) => {
                rows.extend(constraints(class, &a, &b));
            }
            (Ok(a @ Expectation::Partial(_)), Ok(Expectation::Exact { record, .. })) => {
                rows.extend(a.check(&record).into_iter().map(deviation));
            }
            (Ok(Expectation::Exact { record, .. }), Ok(b @ Expectation::Partial(_))) => {
                let swapped = b.check(&record).into_iter().map(|d| {
                    let mut row = deviation(d);
                    std::mem::swap(&mut row.left, &mut row.right);
                    row
                });
                rows.extend(swapped);
            }
            (a, b) => {
                let words = |side: Result<Expectation, String>| match side {
                    Ok(Expectation::Exact { digest, .. }) => format!("exactly {}", digest.short()),
                    Ok(Expectation::Partial(keys)) => format!("{} keys", keys.len()),
                    Err(why) => why,
                };
                let (a, b) = (words(a), words(b));
                if a != b {
                    rows.push(row(class, "class".to_owned(), a, b, KeyVerdict::Differs));
                }
            }
        }
    }
    rows
}

fn constraints(class: Class, a: &[Constraint], b: &[Constraint]) -> Vec<DifferenceView> {
    let by_key = |all: &[Constraint]| -> BTreeMap<String, String> {
        let expected_values = all.iter().map(|c| (c.key.to_string(), c.expected()));
        expected_values.collect()
    };
    let (a, b) = (by_key(a), by_key(b));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let none = || "<not required>".to_owned();
    let differ = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differ
        .map(|key| {
            let side = |all: &BTreeMap<String, String>| all.get(key).cloned().unwrap_or_else(none);
            row(class, key.clone(), side(&a), side(&b), KeyVerdict::Differs)
        })
        .collect()
}
