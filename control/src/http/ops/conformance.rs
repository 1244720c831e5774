//! Conformance groups and drift.

use crate::Core;
use lattice_api::{
    conformance::{
        DriftReportView, DriftView, GroupView, GroupsView, HeldValue, NoMajorityView, UnknownView,
    },
    problem::Problem,
};
use lattice_hwprobe::{CohortKey, DriftReport, NoMajority, Scope};
use lattice_quorum_types::{NodeId, hostlist};

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
        .map_err(|e| Problem::field("class", format!("{e}, or all")))?;
    let found = core.conformance_groups(scope);
    let groups = found.groups.iter().map(|group| GroupView {
        class: group.class.map_or("all", |c| c.name()).to_owned(),
        digest: group.digest.to_string(),
        nodes: fold(&group.nodes),
        count: u32::try_from(group.nodes.len()).unwrap_or(u32::MAX),
    });
    Ok(GroupsView {
        groups: groups.collect(),
        unknown: fold(&found.unknown),
    })
}

pub(crate) fn drift(core: &Core) -> DriftReportView {
    let report: &DriftReport = &core.drift();
    let drifted = report.drifts.iter().map(|d| DriftView {
        node: d.node.clone(),
        class: d.class.to_string(),
        key: d.key.clone(),
        expected: d.expected.clone(),
        found: d.found.clone(),
    });
    let unknown = report.unknown.iter().map(|u| UnknownView {
        node: u.node.clone(),
        class: u.class.to_string(),
        why: u.why.clone(),
    });
    DriftReportView {
        drifted: drifted.collect(),
        no_majority: report.no_majority.iter().map(no_majority).collect(),
        unknown: unknown.collect(),
        alone: fold(&report.alone),
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
