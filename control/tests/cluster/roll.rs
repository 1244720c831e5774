//! Rolling upgrade of agents to a build that writes another schema: for an administrator and for the scheduler, nothing
//! changes but the upgrade.
//!
//! The schemas are simulated. The later build is this one, with two kernel keys that came with its schema. The earlier
//! build writes the schema before it and reports only one. Control has neither schema built in: it compares data
//! received from the nodes.

use crate::{
    fixture::{ClusterFixture, PATIENCE, TOKEN, node, shows, submit},
    scenario_groups::Group,
};
use lattice_client::{
    HistoryQuery,
    api::{
        baseline::{BaselineRequest, ClassExpectationBody},
        conformance::DifferenceView,
    },
};
use lattice_conformance::{Class, ClassMark, Digest, Schemas, WrittenSchemas, keys::ROWS};
use lattice_engine::Core;
use lattice_placement::{ConformanceKey, Liveness};
use lattice_quorum_types::{AllocationState, Command, NodeId, Outcome, node::Lifecycle};
use lattice_view::View;
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::time::timeout;

const NODES: [&str; 4] = ["gpu001", "gpu002", "gpu003", "gpu004"];
const ALL: &str = "gpu[001-004]";
/// Keys that only the later build reads.
const LATER: [&str; 2] = ["kernel.smt", "kernel.clocksource"];

static LATER_BUILD: LazyLock<Schemas> = LazyLock::new(|| {
    let rows = ROWS.iter().map(|row| match LATER.contains(&row.pattern) {
        true => row.since_schema(2),
        false => *row,
    });
    Schemas {
        written: |class| match class {
            Class::Kernel => WrittenSchemas {
                current: 2,
                earlier: Some(1),
                oldest: 1,
            },
            other => other.written_schemas(),
        },
        rows: Box::leak(rows.collect()),
    }
});

fn earlier_build() -> Schemas {
    Schemas {
        written: |class| match class {
            Class::Kernel => WrittenSchemas::only(1),
            other => other.written_schemas(),
        },
        ..*LATER_BUILD
    }
}

pub fn group() -> Group {
    Group::new("roll", || Box::pin(ClusterFixture::found())).scenario(
        "a_cluster_is_upgraded_node_by_node_and_stays_one_group",
        |cluster| Box::pin(rolls(cluster)),
    )
}

async fn start(cluster: &mut ClusterFixture, name: &str, schemas: Schemas) {
    let soon = |settings: &mut lattice_agent::Settings| {
        settings.probe.confirm_after = Duration::from_millis(100);
    };
    cluster
        .start_agent_with(name, soon, |edges| edges.schemas = schemas)
        .await;
}

/// Schema and digest of a node's kernel class, as control sees them.
fn kernel(view: &View, name: &str) -> Option<(u16, Digest)> {
    match view.node(&node(name))?.marks().get(&Class::Kernel)? {
        ClassMark::Complete { schema, digest } => Some((*schema, *digest)),
        _ => None,
    }
}

/// Waits until these nodes write these schemas and all four are ready again.
async fn are(core: &Arc<Core>, what: &str, schemas: [u16; 4]) {
    shows(core, what, |view| {
        let is = |(name, schema): (&&str, u16)| {
            let entry = view.node(&node(name))?;
            let record = entry.record.as_ref()?;
            let settled = record.lifecycle == Lifecycle::Ready
                && entry.liveness == Liveness::Alive
                && entry.cohort().is_some()
                && entry.boot.is_some();
            (kernel(view, name)?.0 == schema && settled).then_some(())
        };
        NODES
            .iter()
            .zip(schemas)
            .all(|n| is(n).is_some())
            .then_some(())
    })
    .await;
}

async fn rolls(cluster: &mut ClusterFixture) {
    for name in NODES {
        start(cluster, name, earlier_build()).await;
    }
    let core = cluster.core();
    are(&core, "four nodes of the earlier build", [1; 4]).await;
    let before = kernel(&core.view(), "gpu001").unwrap();
    let fingerprint = core
        .view()
        .node(&node("gpu001"))
        .unwrap()
        .conformance()
        .fingerprint;
    let root = cluster.client(TOKEN);
    let baseline = BaselineRequest {
        from_node: Some("gpu001".to_owned()),
        nodes: Some(ALL.to_owned()),
        policy: Some("drain".to_owned()),
        classes: [("kernel".to_owned(), ClassExpectationBody::default())].into(),
        ..BaselineRequest::default()
    };
    root.set_baseline("kernel", &baseline, None).await.unwrap();
    is_one_group(cluster, &core, before.1).await;

    for name in &NODES[2..] {
        cluster.stop_agent(name).await;
        start(cluster, name, *LATER_BUILD).await;
    }
    are(&core, "half of them upgraded", [1, 1, 2, 2]).await;
    let upgraded = core.view().node(&node("gpu003")).unwrap().clone();
    assert_ne!(kernel(&core.view(), "gpu003"), Some(before));
    assert_eq!(
        upgraded.conformance().fingerprint,
        fingerprint,
        "by the same name"
    );
    is_one_group(cluster, &core, before.1).await;
    nodes_compare_in_what_both_have(cluster).await;
    the_upgrade_alone_is_history(cluster).await;
    sensitive_work_spans_both_halves(cluster).await;

    for name in &NODES[..2] {
        cluster.stop_agent(name).await;
        start(cluster, name, *LATER_BUILD).await;
    }
    are(&core, "all of them upgraded", [2; 4]).await;
    let after = kernel(&core.view(), "gpu001").unwrap();
    is_one_group(cluster, &core, after.1).await;
    let entry = core.view().node(&node("gpu001")).unwrap().clone();
    assert_ne!(
        entry.conformance().fingerprint,
        fingerprint,
        "all can say the later one"
    );
    assert_eq!(kernel_diff(cluster, "gpu001", "gpu003").await, []);
}

/// Kernel keys in which two nodes differ or may differ; checks that nothing else differs. The class `bmc` is unknown
/// because no node has a BMC to read.
async fn kernel_diff(cluster: &ClusterFixture, left: &str, right: &str) -> Vec<DifferenceView> {
    let diff = cluster.client(TOKEN).diff(left, right).await.unwrap();
    let (kernel, others): (Vec<_>, Vec<_>) = diff
        .differences
        .into_iter()
        .partition(|difference| difference.class == "kernel");
    assert!(others.iter().all(|d| d.class == "bmc"), "{others:?}");
    kernel
}

/// Checks that there is one group for the kernel and one for whole nodes, that no node drifts, and that all match the
/// baseline.
async fn is_one_group(cluster: &ClusterFixture, core: &Arc<Core>, digest: Digest) {
    let root = cluster.client(TOKEN);
    let kernel = root.conformance_groups(Some("kernel")).await.unwrap();
    assert_eq!(kernel.groups.len(), 1, "{kernel:?}");
    assert_eq!(kernel.groups[0].digest, digest.to_string());
    let whole = root.conformance_groups(None).await.unwrap();
    assert_eq!((whole.groups.len(), whole.unknown.as_str()), (1, ""));
    assert_eq!(whole.groups[0].nodes, ALL);
    // A node that was just read again is judged a little later, and receives no sensitive jobs until then.
    shows(core, "all are judged, and of one key", |view| {
        let judged = view.cluster_drift.judged.values().map(|nodes| nodes.len());
        let keys = NODES.map(|name| view.node(&node(name)).map(|n| n.facts().conformance));
        let known = keys[0].filter(|key| *key != ConformanceKey::Unknown)?;
        let alike = keys.iter().all(|key| *key == Some(known));
        (alike && judged.collect::<Vec<_>>() == [4]).then_some(())
    })
    .await;
    let drift = root.drift().await.unwrap();
    assert!(drift.drifted.is_empty(), "{drift:?}");
    assert!(
        drift.no_majority.is_empty() && drift.unknown.is_empty(),
        "{drift:?}"
    );
    let shown = root.baseline("kernel").await.unwrap();
    assert_eq!(shown.compared_count, Some(4));
    assert_eq!(shown.differ.as_deref(), Some(""));
}

async fn nodes_compare_in_what_both_have(cluster: &ClusterFixture) {
    let diff = kernel_diff(cluster, "gpu001", "gpu003").await;
    let mut keys: Vec<_> = diff
        .iter()
        .map(|d| (d.key.as_str(), d.left.as_str(), d.verdict.as_str()))
        .collect();
    keys.sort_unstable();
    let not = "<disabled: not in schema 1>";
    let later = ["kernel.clocksource", "kernel.smt"];
    assert_eq!(keys, later.map(|key| (key, not, "unknown")));
    assert!(diff.iter().all(|d| d.right != not), "{diff:?}");
    assert_eq!(kernel_diff(cluster, "gpu003", "gpu004").await, []);
}

async fn the_upgrade_alone_is_history(cluster: &ClusterFixture) {
    let root = cluster.client(TOKEN);
    let of = |class: &str| HistoryQuery {
        class: Some(class.to_owned()),
        kind: Some("change".to_owned()),
        ..HistoryQuery::default()
    };
    let kernel = of("kernel");
    // Control reads the journals a little later.
    let written_entries = async {
        loop {
            let page = root.history("gpu003", &kernel).await.unwrap();
            if page.items.len() > 1 {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let page = timeout(PATIENCE, written_entries).await.unwrap();
    assert_eq!(page.items.len(), 2);
    let newest = &page.items[0];
    assert_eq!(newest.cause, "agent_start", "{page:?}");
    let changes = newest.changes.iter();
    let changes: Vec<_> = changes.map(|c| (&*c.key, &*c.from, &*c.to)).collect();
    assert_eq!(changes, [("schema", "1", "2")]);
    let nic = root.history("gpu003", &of("nic")).await.unwrap();
    assert_eq!(nic.items.len(), 1, "the first read, and nothing since");
}

/// Each node attests its state, and the baseline has the schema that two of the nodes no longer write.
async fn sensitive_work_spans_both_halves(cluster: &ClusterFixture) {
    cluster.create_project("atlas", 120).await;
    cluster.create_project("atlas/web", 50).await;
    let Command::Submit { mut spec } = submit(4, "exit 0") else {
        panic!("another command")
    };
    spec.sensitive = true;
    let Outcome::Submitted { id } = cluster.admin(Command::Submit { spec }).await else {
        panic!("not submitted")
    };
    let ended = cluster.reaches(id, &[AllocationState::Completed]).await;
    let mut on: Vec<&NodeId> = ended.nodes().collect();
    on.sort_unstable();
    assert_eq!(on, NODES.map(node).iter().collect::<Vec<_>>());
    let view = cluster.core().view();
    assert!(view.nodes.values().all(|n| n.attestation_fault.is_none()));
}
