//! Baselines from the request to the drain, on captured hosts: gpu005 has another NIC firmware than its peers, gpu108
//! another kernel argument.

use crate::{
    fixture::{ClusterFixture, TOKEN, node, shows, submit},
    scenario_groups::Group,
};
use lattice_client::api::baseline::{BaselineRequest, ClassExpectationBody};
use lattice_engine::Core;
use lattice_placement::{ConformanceKey, Liveness};
use lattice_quorum_types::{Command, Outcome, baseline::DriftPolicy, node::Lifecycle};
use lattice_view::{NodeEntry, View, drift::DriftReference};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

const H100: [&str; 5] = ["gpu001", "gpu002", "gpu003", "gpu004", "gpu005"];
const OTHERS: [&str; 5] = ["gpu101", "gpu102", "gpu103", "gpu104", "gpu108"];
/// Owner of drains of nodes that differ from their baseline.
const OWNER: &str = "service:conformance";

pub fn group() -> Group {
    Group::new("baselines", || Box::pin(ClusterFixture::found())).scenario(
        "nodes_are_held_to_their_baselines_and_drained_within_the_brake",
        |cluster| Box::pin(held_to_baselines(cluster)),
    )
}

/// Request for a baseline modelled on a node, in these classes.
fn like(model: &str, classes: &[&str], nodes: &str, policy: &str) -> BaselineRequest {
    let classes = classes
        .iter()
        .map(|class| ((*class).to_owned(), ClassExpectationBody::default()));
    BaselineRequest {
        from_node: Some(model.to_owned()),
        nodes: Some(nodes.to_owned()),
        policy: Some(policy.to_owned()),
        classes: classes.collect(),
        ..BaselineRequest::default()
    }
}

/// Drift from baselines: node, key and baseline version.
fn deviations(view: &View) -> Vec<(String, String, String)> {
    let drifted = view.cluster_drift.drifted.iter();
    drifted
        .filter_map(|d| match &d.by {
            DriftReference::Baseline { name, version, .. } => Some((
                d.node.to_string(),
                d.key.clone(),
                format!("{name} v{version}"),
            )),
            DriftReference::Cohort { .. } => None,
        })
        .collect()
}

fn row(node: &str, key: &str, by: &str) -> (String, String, String) {
    (node.to_owned(), key.to_owned(), by.to_owned())
}

fn entry(core: &Arc<Core>, name: &str) -> Arc<NodeEntry> {
    core.view().node(&node(name)).unwrap().clone()
}

fn reason(view: &View, name: &str) -> Option<String> {
    let record = view.node(&node(name))?.record.as_ref()?;
    let own = record.drain.iter().find(|drain| drain.owner == OWNER)?;
    Some(own.reason.clone())
}

async fn held_to_baselines(cluster: &mut ClusterFixture) {
    for name in H100.into_iter().chain(OTHERS) {
        cluster.start_agent(name, |_| {}).await;
    }
    let core = cluster.core();
    shows(
        &core,
        "ten ready, alive nodes whose cohort is known",
        |view| {
            let ready = view.nodes.values().filter(|node| {
                let record = node.record.as_ref();
                record.is_some_and(|r| r.lifecycle == Lifecycle::Ready)
                    && node.liveness == Liveness::Alive
                    && node.cohort().is_some()
            });
            (ready.count() == 10).then_some(())
        },
    )
    .await;
    exactly_the_odd_ones_differ(cluster, &core).await;
    sensitive_work_keeps_off(cluster, &core).await;
    one_is_drained_and_the_brake_holds_the_next(cluster, &core).await;
}

async fn exactly_the_odd_ones_differ(cluster: &ClusterFixture, core: &Arc<Core>) {
    let root = cluster.client(TOKEN);
    let h100 = like("gpu001", &["nic", "bios", "gpu"], "gpu[001-005]", "warn");
    let set = root.set_baseline("h100", &h100, None).await.unwrap();
    assert_eq!(
        (set.version, set.classes),
        (1, vec!["bios".into(), "gpu".into(), "nic".into()])
    );
    let kernel = like("gpu101", &["kernel"], "gpu[101-104,108]", "warn");
    root.set_baseline("kernel", &kernel, None).await.unwrap();
    let expected = [
        row("gpu005", "nic.0.firmware", "h100 v1"),
        row("gpu108", "kernel.cmdline", "kernel v1"),
    ];
    shows(core, "the odd ones", |view| {
        (deviations(view) == expected).then_some(())
    })
    .await;
    let report = root.drift().await.unwrap();
    let odd = &report.drifted[0];
    assert_eq!(
        (odd.node.as_str(), odd.by.as_str()),
        ("gpu005", "baseline h100 v1")
    );
    assert_eq!(odd.policy, "warn");
    assert!(odd.since.is_some() && odd.expected != odd.found);
    let shown = root.baseline("h100").await.unwrap();
    assert_eq!(shown.compared_count, Some(5));
    assert_eq!(shown.differ.as_deref(), Some("gpu005"));
    // Comparison with a node to which the baseline need not apply.
    let diff = root.baseline_diff("h100", "gpu005").await.unwrap();
    let keys: Vec<_> = diff.differences.iter().map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["nic.0.firmware"]);
    let same = root.baseline_diff("h100", "gpu002").await.unwrap();
    assert!(same.differences.is_empty(), "{same:?}");
    // One key, whatever the others: the value of gpu005 is now the required one.
    let keys = BTreeMap::from([("nic.0.firmware".to_owned(), json!(odd.found))]);
    let mut partial = like("gpu001", &["bios", "gpu"], "gpu[001-005]", "warn");
    let form = ClassExpectationBody {
        keys: Some(keys),
        ..ClassExpectationBody::default()
    };
    partial.classes.insert("nic".to_owned(), form);
    root.set_baseline("h100", &partial, None).await.unwrap();
    shows(core, "all but gpu005", |view| {
        let deviations = deviations(view);
        let of_nic = deviations
            .iter()
            .filter(|(_, key, _)| key == "nic.0.firmware");
        let nodes: Vec<_> = of_nic.map(|(node, ..)| node.as_str()).collect();
        (nodes == ["gpu001", "gpu002", "gpu003", "gpu004"]).then_some(())
    })
    .await;
    root.set_baseline("h100", &h100, None).await.unwrap();
    let expected = [
        row("gpu005", "nic.0.firmware", "h100 v3"),
        expected[1].clone(),
    ];
    shows(core, "gpu005 again", |view| {
        (deviations(view) == expected).then_some(())
    })
    .await;
}

async fn sensitive_work_keeps_off(cluster: &ClusterFixture, core: &Arc<Core>) {
    shows(core, "only gpu001 gets sensitive work", |view| {
        let key = |name| Some(view.node(&node(name))?.facts().conformance);
        let keys = [key("gpu001")?, key("gpu005")?].map(|key| key == ConformanceKey::Unknown);
        (keys == [false, true]).then_some(())
    })
    .await;
    cluster.create_project("atlas", 120).await;
    cluster.create_project("atlas/web", 50).await;
    let Command::Submit { mut spec } = submit(1, "true") else {
        panic!("another command")
    };
    spec.sensitive = true;
    spec.constraints.nodelist = vec![node("gpu005")];
    let Outcome::Submitted { id } = cluster.admin(Command::Submit { spec }).await else {
        panic!("not submitted")
    };
    shows(core, "why it waits", |view| {
        let why = view.plan.explanation(view.allocation(id)?)?.to_string();
        why.contains("conform").then_some(())
    })
    .await;
    cluster.admin(Command::Cancel { id }).await;
}

async fn one_is_drained_and_the_brake_holds_the_next(cluster: &ClusterFixture, core: &Arc<Core>) {
    let root = cluster.client(TOKEN);
    let drains = like("gpu001", &["nic", "bios", "gpu"], "gpu[001-005]", "drain");
    root.set_baseline("h100", &drains, None).await.unwrap();
    let why = shows(core, "gpu005 drained", |view| reason(view, "gpu005")).await;
    assert!(why.contains("baseline h100 v4: nic.0.firmware is"), "{why}");
    let record = entry(core, "gpu005").record.clone().unwrap();
    assert_eq!(record.lifecycle, Lifecycle::Drained);
    let kernel = like("gpu101", &["kernel"], "gpu[101-104,108]", "drain");
    root.set_baseline("kernel", &kernel, None).await.unwrap();
    shows(core, "the brake", |view| view.brake.clone()).await;
    let held = root.brake().await.unwrap().held.unwrap();
    assert!(
        held.reason.contains("of 10 nodes differ"),
        "{}",
        held.reason
    );
    assert_eq!(
        reason(&core.view(), "gpu108"),
        None,
        "one of ten is what may be drained"
    );
    root.release_brake("both are known").await.unwrap();
    shows(core, "gpu108 drained", |view| reason(view, "gpu108")).await;
    // A baseline without its drain rule clears its drain reason on the node, and no other reason.
    root.drain("gpu005", "a fan is loud").await.unwrap();
    let warns = like("gpu001", &["nic", "bios", "gpu"], "gpu[001-005]", "warn");
    root.set_baseline("h100", &warns, None).await.unwrap();
    shows(core, "gpu005 without that reason", |view| {
        reason(view, "gpu005").is_none().then_some(())
    })
    .await;
    let record = entry(core, "gpu005").record.clone().unwrap();
    let owners: Vec<_> = record.drain.iter().map(|d| d.owner.as_str()).collect();
    assert_eq!(
        (owners, record.lifecycle),
        (vec!["root"], Lifecycle::Drained)
    );
    root.delete_baseline("kernel", None, None).await.unwrap();
    shows(core, "gpu108 in service", |view| {
        let record = view.node(&node("gpu108"))?.record.as_ref()?;
        (record.lifecycle == Lifecycle::Ready).then_some(())
    })
    .await;
    let policies: Vec<_> = core
        .view()
        .cluster_drift
        .drifted
        .iter()
        .filter_map(|d| match &d.by {
            DriftReference::Baseline { policy, .. } => Some(*policy),
            DriftReference::Cohort { .. } => None,
        })
        .collect();
    assert_eq!(policies, [DriftPolicy::Warn]);
}
