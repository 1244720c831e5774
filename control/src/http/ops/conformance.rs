//! Conformance groups and drift.

use super::{brake, time};
use crate::{By, Core, Drifted, Report, Unknown, View};
use lattice_api::{
    conformance::{
        DriftReportView, DriftView, GroupView, GroupsView, HeldValue, NoMajorityView, UnknownView,
    },
    problem::Problem,
};
use lattice_hwprobe::{Class, CohortKey, Group, NoMajority, Scope};
use lattice_quorum_types::{NodeId, UnixMillis, hostlist};

/// Node names come from the view, so each is one; what were none would be left out.
fn fold<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let nodes: Vec<NodeId> = names
        .into_iter()
        .filter_map(|n| NodeId::new(n).ok())
        .collect();
    hostlist::fold(&nodes)
}

pub(crate) fn groups(core: &Core, class: Option<&str>) -> Result<GroupsView, Problem> {
    let class = class.filter(|c| !c.is_empty()).unwrap_or("all");
    let scope: Scope = class
        .parse()
        .map_err(|e| Problem::field("class", format!("{e}, or several with commas, or all")))?;
    let view = core.view();
    let found = core.conformance_groups(scope.clone());
    let groups = found.groups.iter().map(|group| GroupView {
        class: scope.to_string(),
        digest: group.digest.to_string(),
        nodes: fold(&group.nodes),
        count: u32::try_from(group.nodes.len()).unwrap_or(u32::MAX),
        first_seen: first_seen(&view, group, &scope).map(time),
    });
    Ok(GroupsView {
        groups: groups.collect(),
        unknown: fold(&found.unknown),
    })
}

/// When the first of its members was seen to be so: of a member, since the last of its classes is.
fn first_seen(view: &View, group: &Group, scope: &Scope) -> Option<UnixMillis> {
    let classes = match scope {
        Scope::All => Class::ALL.to_vec(),
        some => some.classes(),
    };
    let of_member = |name: &String| {
        let entry = view.node(&NodeId::new(name).ok()?)?;
        classes.iter().filter_map(|class| entry.since(*class)).max()
    };
    group.nodes.iter().filter_map(of_member).min()
}

/// Entries of which the nodes' history is asked; of those behind, what this control saw is told.
const ASKED_OF_HISTORY: usize = 500;

pub(crate) async fn drift(core: &Core) -> DriftReportView {
    let view = core.view();
    let report: &Report = &view.judged;
    let mut shown: Vec<DriftView> = report.drifted.iter().map(drifted).collect();
    for (drifted, shown) in report.drifted.iter().zip(&mut shown).take(ASKED_OF_HISTORY) {
        let (node, key) = (drifted.node.to_string(), drifted.key.clone());
        // Where it cannot be read, what this control saw itself stands.
        if let Ok(Some(since)) = core.history.since(node, drifted.class, key).await {
            shown.since = Some(time(UnixMillis(since.at)));
            shown.since_or_before = since.at_least;
        }
    }
    DriftReportView {
        drifted: shown,
        no_majority: report.no_majority.iter().map(no_majority).collect(),
        unknown: report.unknown.iter().map(unknown).collect(),
        alone: fold(&report.alone),
        brake: view.brake.as_deref().map(brake::view),
    }
}

fn drifted(d: &Drifted) -> DriftView {
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
        By::Cohort { of, like } => DriftView {
            by: "cohort".to_owned(),
            policy: "warn".to_owned(),
            of: count(*of),
            like: count(*like),
            ..shown
        },
        By::Baseline {
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

fn unknown(u: &Unknown) -> UnknownView {
    UnknownView {
        node: u.node.to_string(),
        class: u.class.to_string(),
        why: u.why.clone(),
        baseline: u.baseline.as_ref().map(ToString::to_string),
    }
}

fn no_majority(n: &NoMajority) -> NoMajorityView {
    let values = n.values.iter().map(|(value, nodes)| HeldValue {
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
