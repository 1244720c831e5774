//! Conformance groups and drift.

use super::{brake, time};
use crate::state::Api;
use lattice_api::{
    conformance::{
        DriftReportView, DriftView, GroupView, GroupsView, NoMajorityView, NotReadView,
        UnknownView, ValueWithNodes,
    },
    problem::Problem,
};
use lattice_conformance::{
    Class, ClassMark, ClassState, CohortKey, Group, NoMajority, Reading, Scope, Value,
};
use lattice_quorum_types::{NodeId, UnixMillis, hostlist};
use lattice_view::{
    NodeEntry, View,
    drift::{ClusterDrift, DriftReference, DriftedNode, UnknownClass},
};
use std::collections::{BTreeMap, BTreeSet};

/// Folds node names to a hostlist. The names come from the view and are valid; an invalid name would be left out.
fn fold<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let nodes: Vec<NodeId> = names
        .into_iter()
        .filter_map(|n| NodeId::new(n).ok())
        .collect();
    hostlist::fold(&nodes)
}

pub(crate) async fn groups(api: &Api, class: Option<&str>) -> Result<GroupsView, Problem> {
    let core = api.core();
    let class = class.filter(|c| !c.is_empty()).unwrap_or("all");
    let scope: Scope = class
        .parse()
        .map_err(|e| Problem::field("class", format!("{e}, or several with commas, or all")))?;
    let view = core.view();
    let found = core.conformance_groups(scope.clone());
    let classes = match &scope {
        Scope::All => Class::ALL.to_vec(),
        some => some.classes(),
    };
    let kept = unchanged_since(api, &found.groups, &classes).await;
    let groups = found.groups.iter().map(|group| GroupView {
        class: scope.to_string(),
        digest: group.digest.to_string(),
        nodes: fold(&group.nodes),
        count: u32::try_from(group.nodes.len()).unwrap_or(u32::MAX),
        first_seen: first_seen(&view, group, &classes, &kept).map(time),
    });
    let mut not_read: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for name in found.unknown {
        match why_not_read(api, &view, &name, &scope) {
            Some(why) => not_read.entry(why).or_default().push(name),
            None => unknown.push(name),
        }
    }
    // Nodes that do not gossip belong to no group either.
    let without_gossip = view.nodes.values().filter(|entry| entry.gossip.is_none());
    unknown.extend(without_gossip.map(|entry| entry.id.to_string()));
    let not_read = not_read.into_iter().map(|(why, nodes)| NotReadView {
        nodes: fold(&nodes),
        why: why.to_owned(),
    });
    Ok(GroupsView {
        groups: groups.collect(),
        unknown: fold(&unknown),
        not_read: not_read.collect(),
    })
}

/// Maximum number of nodes, drifted keys or unknown classes looked up in the history for one part of an answer; for the
/// others, this control's own observation is used.
const MAX_HISTORY_LOOKUPS: usize = 500;

/// Times since which group members have their present state, according to the history, Unix milliseconds. The members
/// of the largest group come last, because each member of a small group matters more.
async fn unchanged_since(api: &Api, groups: &[Group], classes: &[Class]) -> BTreeMap<String, u64> {
    let members = groups.iter().rev().flat_map(|group| &group.nodes);
    let members = members.take(MAX_HISTORY_LOOKUPS).cloned().collect();
    let kept = api
        .stores()
        .history
        .unchanged_since(members, classes.to_vec());
    kept.await.unwrap_or_default()
}

/// Earliest time at which a member of the group was seen in its present state. The present state of a member begins
/// with the last change of the requested classes.
fn first_seen(
    view: &View,
    group: &Group,
    classes: &[Class],
    kept: &BTreeMap<String, u64>,
) -> Option<UnixMillis> {
    let of_member = |name: &String| {
        let entry = view.node(&NodeId::new(name).ok()?)?;
        let seen = classes.iter().filter_map(|class| entry.since(*class)).max();
        // A state first seen by this control may be older than the start of this control.
        let kept = kept.get(name).map(|at| UnixMillis(*at));
        seen.map(|seen| kept.map_or(seen, |kept| kept.min(seen)))
    };
    group.nodes.iter().filter_map(of_member).min()
}

/// Reason why a requested class is deliberately not read on a node.
fn why_not_read(api: &Api, view: &View, name: &str, scope: &Scope) -> Option<&'static str> {
    let id = NodeId::new(name).ok()?;
    let entry = view.node(&id)?;
    let is_off = |class: &Class| entry.marks().get(class) == Some(&ClassMark::Disabled);
    match scope.classes().into_iter().find(is_off)? {
        Class::Bmc if api.stores().readings.parts(&id).is_none() => Some("no BMC configured"),
        _ => Some("disabled on the node"),
    }
}

pub(crate) async fn drift(api: &Api) -> DriftReportView {
    let core = api.core();
    let view = core.view();
    let report: &ClusterDrift = &view.cluster_drift;
    let drifted = report.drifted.iter();
    let mut shown: Vec<DriftView> = drifted.map(|d| self::drift_view(&view, d)).collect();
    let asked = report.drifted.iter().take(MAX_HISTORY_LOOKUPS);
    let asked = asked.map(|d| (d.node.to_string(), d.class, d.key.clone()));
    let kept = api
        .stores()
        .history
        .unchanged_since_each(asked.collect())
        .await;
    for (since, shown) in kept.into_iter().zip(&mut shown) {
        // Without a readable history entry, this control's own observation is shown.
        if let Some(since) = since {
            shown.since = Some(time(UnixMillis(since.at)));
            shown.since_or_before = since.at_least;
        }
    }
    let silent = last_present_times(
        api,
        &view,
        report.drifted.iter().map(|drifted| &drifted.node),
    )
    .await;
    for (drifted, shown) in report.drifted.iter().zip(&mut shown) {
        shown.as_of = silent.get(&drifted.node).copied().map(time);
    }
    let (mut not_known, mut left) = (Vec::new(), MAX_HISTORY_LOOKUPS);
    for unknown in &report.unknown {
        not_known.push(self::unknown_view(api, &view, unknown, &mut left).await);
    }
    DriftReportView {
        drifted: shown,
        no_majority: report.no_majority.iter().map(no_majority).collect(),
        unknown: not_known,
        without_reference: fold(&report.alone),
        pending: pending(&view),
        brake: view.brake.as_deref().map(brake::view),
    }
}

/// Nodes that are neither compared nor known to have nothing to compare with. Before the first comparison these are all
/// nodes.
fn pending(view: &View) -> String {
    let report = &view.cluster_drift;
    let alone: BTreeSet<&str> = report.alone.iter().map(String::as_str).collect();
    let is_judged = |id: &NodeId| {
        let is_compared = report.compared.contains(id) || alone.contains(id.as_str());
        is_compared && !report.pending.contains(id)
    };
    let waits = view.nodes.keys().filter(|id| !is_judged(id));
    hostlist::fold(&waits.cloned().collect::<Vec<_>>())
}

/// Times at which the silent nodes among these were last present.
async fn last_present_times<'n>(
    api: &Api,
    view: &View,
    nodes: impl Iterator<Item = &'n NodeId>,
) -> BTreeMap<&'n NodeId, UnixMillis> {
    let core = api.core();
    let (mut found, mut left) = (BTreeMap::new(), MAX_HISTORY_LOOKUPS);
    for id in nodes.collect::<BTreeSet<_>>() {
        let entry = view.node(id).filter(|entry| entry.is_silent());
        if entry.is_some() && core.reply_times.of(id).is_none() {
            if left == 0 {
                continue;
            }
            left -= 1;
        }
        if let Some(at) = last_present_at(api, view, id).await {
            found.insert(id, at);
        }
    }
    found
}

/// Time at which a silent node was last present; `None` if the node is not silent or the time is unknown.
pub(super) async fn last_present_at(api: &Api, view: &View, node: &NodeId) -> Option<UnixMillis> {
    let core = api.core();
    view.node(node).filter(|entry| entry.is_silent())?;
    if let Some(at) = core.reply_times.of(node) {
        return Some(at);
    }
    let kept = api.stores().history.last_contact(node.to_string()).await;
    kept.ok().flatten().map(UnixMillis)
}

/// Reason why a class of a node is unknown, from its BMC, or else from the stored history of the node.
pub(super) async fn why_incomplete(api: &Api, node: &NodeId, class: Class) -> Option<String> {
    match missing_by_bmc(api, node, class) {
        Some(missing) => missing_keys_text(&missing),
        None => missing_by_history(api, node, class).await,
    }
}

fn missing_by_bmc(api: &Api, node: &NodeId, class: Class) -> Option<Vec<(String, Reading<Value>)>> {
    let parts = api.stores().readings.parts(node)?;
    match parts.records.get(&class)?.state() {
        ClassState::Incomplete { missing } => Some(missing.into_iter().collect()),
        _ => None,
    }
}

async fn missing_by_history(api: &Api, node: &NodeId, class: Class) -> Option<String> {
    let missing = api
        .stores()
        .history
        .unknown_keys(node.to_string())
        .await
        .ok()?;
    missing_keys_text(missing.get(&class)?)
}

/// Text with the first missing key and the number of further keys. A failed reading is described by its reason alone,
/// because a BMC may have one reason for all keys.
fn missing_keys_text(missing: &[(String, Reading<Value>)]) -> Option<String> {
    let (key, reading) = missing.first()?;
    let first = match reading {
        Reading::Failed { why } => why.clone(),
        other => format!("{key}: {other}"),
    };
    Some(match missing.len() {
        1 => first,
        more => format!("{first}, and {} more keys", more - 1),
    })
}

fn drift_view(view: &View, d: &DriftedNode) -> DriftView {
    let shown = DriftView {
        node: d.node.to_string(),
        class: d.class.to_string(),
        key: d.key.clone(),
        expected: d.expected.clone(),
        found: d.found.clone(),
        since: d.since.map(time),
        since_or_before: d.since.is_some(),
        ..DriftView::default()
    };
    let count = |n: usize| Some(u32::try_from(n).unwrap_or(u32::MAX));
    match &d.by {
        DriftReference::Cohort { of, like } => DriftView {
            by: "cohort".to_owned(),
            cohort: view
                .as_known(&d.node)
                .and_then(|entry| Some(cohort(&entry.cohort()?))),
            policy: "warn".to_owned(),
            cohort_nodes: count(*of),
            majority_nodes: count(*like),
            ..shown
        },
        DriftReference::Baseline {
            name,
            version,
            policy,
            sensitive,
        } => DriftView {
            by: format!("baseline {name} v{version}"),
            baseline: Some(name.to_string()),
            policy: policy.to_string(),
            sensitive: Some(sensitive.to_string()),
            ..shown
        },
    }
}

/// View of an unknown class; `left` is the number of history lookups still allowed.
async fn unknown_view(api: &Api, view: &View, u: &UnknownClass, left: &mut usize) -> UnknownView {
    let mark = view.as_known(&u.node).map(NodeEntry::marks);
    let mark = mark.and_then(|marks| marks.get(&u.class));
    let why = match mark {
        Some(ClassMark::Incomplete) => match missing_by_bmc(api, &u.node, u.class) {
            Some(missing) => missing_keys_text(&missing),
            None if *left == 0 => None,
            None => {
                *left -= 1;
                missing_by_history(api, &u.node, u.class).await
            }
        },
        _ => None,
    };
    UnknownView {
        node: u.node.to_string(),
        class: u.class.to_string(),
        why: why.unwrap_or_else(|| u.why.clone()),
        baseline: u.baseline.as_ref().map(ToString::to_string),
    }
}

fn no_majority(n: &NoMajority) -> NoMajorityView {
    let values = n.values.iter().map(|(value, nodes)| ValueWithNodes {
        value: value.clone(),
        nodes: fold(nodes),
    });
    NoMajorityView {
        cohort: cohort(&n.cohort),
        class: n.class.to_string(),
        key: n.key.clone(),
        values: values.collect(),
    }
}

fn cohort(key: &CohortKey) -> String {
    let name = |text: &Option<String>| text.clone().unwrap_or_else(|| "unnamed".to_owned());
    let gpus = match (key.gpu_count, &key.gpu_model) {
        (None, _) => "GPUs not probed".to_owned(),
        (Some(0), _) => "no GPU".to_owned(),
        (Some(count), model) => format!("{count} × {}", name(model)),
    };
    format!("{} {}, {gpus}", name(&key.vendor), name(&key.product))
}
