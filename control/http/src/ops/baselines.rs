//! Baselines: the required state of nodes. [`comparison`] compares a baseline with a node or another baseline,
//! [`model`] builds a baseline from a node or a group, and [`preview`] shows the effect of a baseline on the nodes. The
//! brake is in `ops/brake`.

mod comparison;
mod model;
mod preview;

pub(crate) use comparison::diff;

use super::{propose_and_judge, read, time, unexpected};
use crate::caller::{Caller, Role};
use crate::state::Api;
use lattice_api::{
    baseline::{BaselineRequest, BaselineResult, BaselineView, ClassRuleView, VersionView},
    problem::{Kind, Problem},
    project::ChangeResult,
};
use lattice_conformance::{Class, baseline::Expectation};
use lattice_engine::{Core, baseline_form};
use lattice_quorum_types::{
    Command, NodeId, Outcome, Refusal,
    baseline::{BaselineDefinition, ClassRule, Rule},
    hostlist,
    id::BaselineName,
    view::{Answer, Query},
};
use lattice_view::{
    View,
    baselines::{ParsedBaseline, expectation},
};
use std::collections::{BTreeMap, BTreeSet};

fn name(text: &str) -> Result<BaselineName, Problem> {
    BaselineName::new(text).map_err(|error| Problem::field("name", error.to_string()))
}

fn unknown(name: &BaselineName) -> Problem {
    Problem::from(&Refusal::UnknownBaseline { name: name.clone() })
}

/// Parses `h100`, or `h100@3` for an earlier version.
fn versioned(text: &str) -> Result<(BaselineName, Option<u32>), Problem> {
    let Some((text, version)) = text.split_once('@') else {
        return Ok((name(text)?, None));
    };
    let version = version.trim_start_matches('v').parse();
    let version =
        version.map_err(|_| Problem::field("version", "the version is a number, as in h100@3"))?;
    Ok((name(text)?, Some(version)))
}

/// Baselines in force, by name.
pub(crate) fn list(core: &Core) -> Vec<BaselineView> {
    let view = core.view();
    let all = view.baselines.all();
    all.map(|kept| baseline_view(&view, kept, Keys::PartialOnly))
        .collect()
}

/// One baseline with all its keys and stored versions.
pub(crate) async fn get(core: &Core, text: &str) -> Result<BaselineView, Problem> {
    let kept = find(core, text).await?;
    let mut found = baseline_view(&core.view(), &kept, Keys::All);
    let query = Query::BaselineVersions {
        name: kept.record.name.clone(),
    };
    let Answer::BaselineVersions(versions) = read(core, query).await? else {
        return Err(unexpected());
    };
    found.versions = versions.iter().map(VersionView::from).collect();
    Ok(found)
}

async fn find(core: &Core, text: &str) -> Result<ParsedBaseline, Problem> {
    let (name, version) = versioned(text)?;
    let query = Query::Baseline {
        name: name.clone(),
        version,
    };
    match read(core, query).await? {
        Answer::Baseline(Some(found)) => Ok(ParsedBaseline::new(*found)),
        Answer::Baseline(None) => match version {
            None => Err(unknown(&name)),
            Some(version) => {
                let detail = format!(
                    "version {version} of baseline \"{name}\" is not stored; `lattice conformance \
                     baseline show {name}` lists the stored versions"
                );
                Err(Problem::new(Kind::NotFound, "unknown_baseline", detail))
            }
        },
        _ => Err(unexpected()),
    }
}

/// Selection of rules that are shown with their keys: all rules, or partial rules only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    All,
    PartialOnly,
}

fn baseline_view(view: &View, kept: &ParsedBaseline, keys: Keys) -> BaselineView {
    let record = &kept.record;
    let definition = &record.definition;
    let report = &view.cluster_drift;
    // For another version, or before the nodes are compared after the last change, the conformance of the nodes is
    // unknown.
    let in_force = view.baselines.get(&record.name).map(|kept| &kept.record);
    let is_judged = in_force.is_some_and(|is| is.version == record.version)
        && report.number == view.baselines.generation;
    let judged = report.judged.get(&record.name);
    let count = judged.map_or(0, BTreeSet::len);
    let of_this = |by: &lattice_view::drift::DriftReference| {
        matches!(by, lattice_view::drift::DriftReference::Baseline { name, version, .. }
            if *name == record.name && *version == record.version)
    };
    let differ: BTreeSet<&NodeId> = report
        .drifted
        .iter()
        .filter(|drifted| of_this(&drifted.by))
        .map(|drifted| &drifted.node)
        .collect();
    let unknown: BTreeSet<&NodeId> = report
        .unknown
        .iter()
        .filter(|unknown| unknown.baseline.as_ref() == Some(&record.name))
        .map(|unknown| &unknown.node)
        .collect();
    let mut classes: BTreeMap<String, ClassRuleView> = kept
        .classes()
        .keys()
        .filter_map(|class| {
            let rule = definition.classes.get(class.name())?;
            Some((class.to_string(), rule_view(*class, rule, keys)))
        })
        .collect();
    for class in &kept.unknown_classes {
        if let Some(rule) = definition.classes.get(class) {
            let mut rule_shown = rule_view(Class::Gpu, rule, Keys::PartialOnly);
            rule_shown.unreadable =
                Some("this control does not support the conformance class".to_owned());
            classes.insert(class.clone(), rule_shown);
        }
    }
    BaselineView {
        name: record.name.to_string(),
        version: record.version,
        description: definition.description.clone(),
        nodes: definition.nodes.clone(),
        cohort: definition.cohort.as_ref().map(Into::into),
        classes,
        by: record.by.clone(),
        at: time(record.at),
        bytes: record.bytes,
        compared: is_judged.then(|| judged.map_or_else(String::new, hostlist::fold)),
        compared_count: is_judged.then(|| u32::try_from(count).unwrap_or(u32::MAX)),
        differ: is_judged.then(|| hostlist::fold(differ)),
        unknown: is_judged.then(|| hostlist::fold(unknown)),
        versions: Vec::new(),
    }
}

fn rule_view(class: Class, rule: &ClassRule, keys: Keys) -> ClassRuleView {
    let read = expectation(class, &rule.rule);
    let mut shown = ClassRuleView {
        kind: "partial".to_owned(),
        policy: rule.policy.to_string(),
        sensitive: rule.sensitive.to_string(),
        digest: None,
        schema: None,
        keys: BTreeMap::new(),
        unreadable: read.as_ref().err().cloned(),
    };
    if let Rule::Exact { schema, digest, .. } = &rule.rule {
        "exact".clone_into(&mut shown.kind);
        shown.digest = Some(lattice_conformance::Digest(*digest).to_string());
        shown.schema = Some(*schema);
    }
    match read {
        Ok(Expectation::Exact { record, .. }) if keys == Keys::All => {
            let entries = record.entries.iter();
            let key_values = entries.map(|(key, reading)| (key.clone(), reading.to_string()));
            shown.keys = key_values.collect();
        }
        Ok(Expectation::Partial(constraints)) => {
            let key_values = constraints
                .iter()
                .map(|constraint| (constraint.key.to_string(), constraint.expected()));
            shown.keys = key_values.collect();
        }
        _ => {}
    }
    shown
}

/// Sets a baseline as a new version. With `dry_run`, changes nothing. Returns in both cases the version and the
/// comparison with the nodes that the baseline concerns. A model node is queried directly.
pub(crate) async fn set(
    api: &Api,
    caller: &Caller,
    text: &str,
    request: BaselineRequest,
    key: Option<String>,
    dry_run: bool,
) -> Result<BaselineResult, Problem> {
    let core = api.core();
    caller.check_cluster_role(Role::Operator, "setting a baseline")?;
    let name = name(text)?;
    let wanted = baseline_form::parse_request(name.as_str(), &request)?;
    let model = match &wanted.model {
        None => BTreeMap::new(),
        Some(model) => model::records(api, model, &wanted).await?,
    };
    let definition = BaselineDefinition {
        description: request.description,
        nodes: request.nodes.unwrap_or_default(),
        cohort: request.cohort.map(Into::into),
        classes: model::rules(&wanted, &model)?,
    };
    let classes = definition.classes.keys().cloned().collect();
    let (next, standing) = preview::preview(api, &name, definition.clone());
    let command = Command::SetBaseline {
        name: name.clone(),
        definition: Box::new(definition),
        expected_version: request.expected_version,
    };
    let (version, revision) = if dry_run {
        (next, super::check_command(core, caller, command).await?)
    } else {
        let applied = propose_and_judge(core, caller, key, command).await?;
        let Outcome::BaselineSet { version } = applied.outcome else {
            return Err(unexpected());
        };
        (version, applied.revision)
    };
    Ok(BaselineResult {
        name: name.to_string(),
        version,
        classes,
        revision,
        dry_run,
        comparison: standing,
    })
}

/// Deletes a baseline; no node is compared with it afterwards.
pub(crate) async fn delete(
    core: &Core,
    caller: &Caller,
    text: &str,
    expected_version: Option<u32>,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Operator, "deleting a baseline")?;
    let command = Command::DeleteBaseline {
        name: name(text)?,
        expected_version,
    };
    let applied = propose_and_judge(core, caller, key, command).await?;
    Ok(ChangeResult {
        revision: applied.revision,
    })
}
