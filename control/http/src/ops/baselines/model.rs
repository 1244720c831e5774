//! Baseline models: the rules of a baseline that is modelled on a node or a group.

use crate::ops::{groups, node_id, nodes::agent_problem};
use crate::state::Api;
use lattice_api::problem::{Kind, Problem};
use lattice_conformance::{Class, ClassMark, ClassRecord, ClassState, Group, Scope};
use lattice_engine::{
    Core, ReadingKind,
    baseline_form::{CheckedBaseline, ExpectedClass, Model},
    compare::unsettled_if_incomplete,
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    baseline::{ClassRule, Rule},
};
use lattice_view::NodeEntry;
use std::{cmp::Reverse, collections::BTreeMap};

/// Maximum number of distinct mark sets of a group for which records are requested.
const MAX_MARK_SETS: usize = 4;

/// Rules for each requested class, or without any requested class for each complete class of the model.
pub(super) fn rules(
    wanted: &CheckedBaseline,
    model: &BTreeMap<Class, ClassRecord>,
) -> Result<BTreeMap<String, ClassRule>, Problem> {
    let mut rules = BTreeMap::new();
    for (class, want) in &wanted.classes {
        let rule = match &want.expected {
            ExpectedClass::Keys(constraints) => Rule::Partial {
                constraints: constraints.clone(),
            },
            ExpectedClass::Model => exact(*class, model.get(class))?,
        };
        let rule = ClassRule {
            policy: want.policy,
            sensitive: want.sensitive,
            rule,
        };
        rules.insert(class.to_string(), rule);
    }
    if wanted.classes.is_empty() {
        for (class, record) in model {
            if record.state().digest().is_some() {
                let rule = ClassRule {
                    policy: wanted.policy,
                    sensitive: wanted.sensitive,
                    rule: exact(*class, Some(record))?,
                };
                rules.insert(class.to_string(), rule);
            }
        }
    }
    Ok(rules)
}

fn exact(class: Class, record: Option<&ClassRecord>) -> Result<Rule, Problem> {
    let why = match record.map(ClassRecord::state) {
        Some(ClassState::Complete { schema, digest }) => {
            let preimage = record.map(ClassRecord::encode).unwrap_or_default();
            return Ok(Rule::Exact {
                schema,
                digest: digest.0,
                preimage: preimage.into(),
            });
        }
        Some(ClassState::Incomplete { missing }) => {
            let missing: Vec<String> = missing
                .iter()
                .map(|(key, reading)| format!("{key}: {reading}"))
                .collect();
            format!(
                "the class is incomplete on the model node: {}",
                missing.join(", ")
            )
        }
        Some(ClassState::Disabled { why }) => {
            format!("the class is disabled on the model node: {why}")
        }
        None => "the model node does not read the class".to_owned(),
    };
    let reason = format!("{why}; an unknown value cannot be a reference");
    Err(Problem::field(format!("classes.{class}"), reason))
}

/// Records of the model: the last reading that a node returns when queried now, or the records that the members of a
/// group share.
pub(super) async fn records(
    api: &Api,
    model: &Model,
    wanted: &CheckedBaseline,
) -> Result<BTreeMap<Class, ClassRecord>, Problem> {
    let core = api.core();
    match model {
        Model::Node(text) => {
            let node = node_id(text)?;
            let inventory = core
                .agents
                .inventory(&core.view(), &node, ReadingKind::Last)
                .await;
            let mut records = inventory.map_err(|error| agent_problem(&error))?.records;
            if !wanted.classes.is_empty() {
                records.retain(|class, _| wanted.classes.contains_key(class));
            }
            complete_with_bmc(api, &node, records).await
        }
        Model::Group(digest) => {
            let (group, scope) = group(core, digest, wanted)?;
            group_records(api, &group, &scope).await
        }
    }
}

/// Records of a group, fetched by digest; the digest verifies a record from any source. During a cluster upgrade
/// members may write different schemas, so the most common marks are tried first.
async fn group_records(
    api: &Api,
    group: &Group,
    scope: &Scope,
) -> Result<BTreeMap<Class, ClassRecord>, Problem> {
    let core = api.core();
    let view = core.view();
    let of_scope = scope.classes();
    let mut alike: BTreeMap<Vec<(Class, ClassMark)>, Vec<&NodeEntry>> = BTreeMap::new();
    for name in &group.nodes {
        let entry = NodeId::new(name).ok().and_then(|id| view.node(&id));
        if let Some(entry) = entry.filter(|entry| entry.liveness == Liveness::Alive) {
            let marks = entry.marks().iter().map(|(class, mark)| (*class, *mark));
            let is_asked =
                |(class, _): &(Class, _)| of_scope.is_empty() || of_scope.contains(class);
            let marks = marks.filter(is_asked).collect();
            alike.entry(marks).or_default().push(entry);
        }
    }
    let mut alike: Vec<_> = alike.into_iter().collect();
    alike.sort_by_key(|(_, members)| Reverse(members.len()));
    let mut why = "no member of the group answers".to_owned();
    for (marks, members) in alike.into_iter().take(MAX_MARK_SETS) {
        let Some(member) = members.first() else {
            continue;
        };
        let classes: Vec<Class> = marks.iter().map(|(class, _)| *class).collect();
        let records = api.records().records(&member.id, &classes).await;
        let records = records.map_err(|error| agent_problem(&error))?;
        match records
            .iter()
            .find_map(|(class, r)| mismatch_reason(member, *class, r))
        {
            None => return Ok(records.into_iter().collect()),
            Some(reason) => why = reason,
        }
    }
    let detail = format!("{why}; try again, or take one of its nodes");
    Err(Problem::new(Kind::Unavailable, "node_unavailable", detail))
}

/// Reason why a record is not the one that the node shares with its group.
fn mismatch_reason(member: &NodeEntry, class: Class, record: &ClassRecord) -> Option<String> {
    let state = record.state();
    if let ClassState::Incomplete { missing } = &state {
        let texts = missing
            .iter()
            .map(|(key, reading)| format!("{key}: {reading}"));
        return Some(format!("{class}: {}", texts.collect::<Vec<_>>().join(", ")));
    }
    let own = member.marks().get(&class).copied();
    let common = member.conformance().common_marks().get(&class).copied();
    let is_common = || match common {
        Some(ClassMark::Complete { schema, .. }) => {
            let converted = record.in_schema(schema).ok();
            converted.map(|record| record.state().mark()) == common
        }
        _ => false,
    };
    let is_it = own == Some(state.mark()) && (own == common || is_common());
    (!is_it).then(|| {
        format!(
            "{class}: the value of {} differs from that of its group",
            member.id
        )
    })
}

/// Completes each record with the data of the BMC for the same class, because other nodes must match that part as well.
///
/// # Errors
/// Rejects a node with a record that differs from the mark that the node publishes, and a class without the BMC's part.
async fn complete_with_bmc(
    api: &Api,
    node: &NodeId,
    records: BTreeMap<Class, ClassRecord>,
) -> Result<BTreeMap<Class, ClassRecord>, Problem> {
    let core = api.core();
    let view = core.view();
    let entry = view.node(node);
    let entry = entry.ok_or_else(|| Problem::unknown_node(node.as_str()))?;
    let records = records.into_iter();
    let mut records: BTreeMap<Class, ClassRecord> = records
        .map(|(class, record)| (class, unsettled_if_incomplete(entry, record)))
        .collect();
    let changing = records
        .iter()
        .filter(|(class, record)| entry.published(**class) != Some(record.state().mark()));
    let changing: Vec<Class> = changing.map(|(class, _)| *class).collect();
    if !changing.is_empty() {
        let why = "the node is changing: the last reading differs from the published digest";
        return Err(model_unavailable(node, &changing, why));
    }
    let is_part = |(class, record): &(&Class, &ClassRecord)| {
        entry.marks().get(class) != Some(&record.state().mark())
    };
    let parts: Vec<Class> = records.iter().filter(is_part).map(|(c, _)| *c).collect();
    if parts.is_empty() {
        return Ok(records);
    }
    let known = api.records().records(node, &parts).await;
    for (class, record) in known.map_err(|error| agent_problem(&error))? {
        if entry.marks().get(&class) != Some(&record.state().mark()) {
            let why = "the BMC's part of it is not available now";
            return Err(model_unavailable(node, &[class], why));
        }
        records.insert(class, record);
    }
    Ok(records)
}

/// Error for a node that cannot be a model at present; a retry may succeed.
fn model_unavailable(node: &NodeId, classes: &[Class], why: &str) -> Problem {
    let classes: Vec<String> = classes.iter().map(Class::to_string).collect();
    let detail = format!("{} of {node}: {why}; try again", classes.join(", "));
    Problem::new(Kind::Unavailable, "node_changing", detail)
}

/// Finds the only group with a digest that starts with this text: a group by the requested classes together, by one
/// class, or by fingerprint.
fn group(
    core: &Core,
    beginning: &str,
    wanted: &CheckedBaseline,
) -> Result<(Group, Scope), Problem> {
    let mut scopes = groups::basic_scopes();
    if wanted.classes.len() > 1 {
        scopes.push(Scope::Union(wanted.classes.keys().copied().collect()));
    }
    let mut fitting = groups::groups_by_prefix(&core.view(), beginning, scopes);
    if fitting.len() > 1 {
        let reason = format!(
            "{} groups begin with these digits; give more digits",
            fitting.len()
        );
        return Err(Problem::field("from_group", reason));
    }
    fitting.pop().ok_or_else(|| {
        let reason = "no such group; `lattice conformance groups` lists the groups. To combine \
            several classes, name them";
        Problem::field("from_group", reason)
    })
}
