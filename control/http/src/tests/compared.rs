//! Comparison of a node with another, with the majority of its cohort, and use as a model.

use super::{
    baselines::{asking, kernels},
    fixture::ApiFixture,
};
use lattice_client::{
    ClientError,
    api::{
        baseline::{BaselineRequest, ClassExpectationBody},
        conformance::{DiffView, DifferenceView},
    },
};
use lattice_conformance::{Class, ClassMark, ClassRecord, Identity, NodeDocument, Reading};
use lattice_engine::{observed_state, tasks::conformance::Conformance};
use lattice_quorum_types::NodeId;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

/// Makes these nodes announce another mark for a class.
fn announce(fixture: &ApiFixture, nodes: &[&str], class: Class, mark: ClassMark) {
    let view = fixture.core.view();
    let all = view.nodes.iter().filter_map(|(id, entry)| {
        let mut seen = entry.gossip.clone()?;
        if nodes.contains(&id.as_str()) {
            seen.marks.insert(class, mark);
        }
        Some((id.clone(), seen))
    });
    observed_state::cell(&fixture.core, "cell-0", all.collect());
}

fn of_class<'a>(diff: &'a DiffView, class: &str) -> Vec<&'a DifferenceView> {
    let differences = diff.differences.iter();
    differences.filter(|d| d.class == class).collect()
}

#[tokio::test]
async fn a_class_that_two_nodes_do_not_tell_is_unknown_and_not_equal() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    // Only gpu001's agent answers, and it reports nothing about its NICs.
    let silent = ["gpu001", "gpu004", "gpu005"];
    announce(&fixture, &silent, Class::Nic, ClassMark::Incomplete);
    for (left, right) in [("gpu004", "gpu005"), ("gpu001", "gpu001")] {
        let diff = eye.diff(left, right).await.unwrap();
        let nic = of_class(&diff, "nic");
        assert_eq!(nic.len(), 1, "{diff:?}");
        assert_eq!((&*nic[0].verdict, &*nic[0].key), ("unknown", "class"));
        assert!(nic[0].left.contains("the node"), "{nic:?}");
        assert!(of_class(&diff, "kernel").is_empty(), "{diff:?}");
    }
    // A class that is lost now is not shown as a present value.
    let diff = eye.diff("gpu004", "gpu005").await.unwrap();
    let present = |d: &&DifferenceView| !d.left.starts_with('<');
    assert_eq!(diff.differences.iter().find(present), None);
}

/// Documents of one model, so that these nodes form a cohort.
fn documents(fixture: &ApiFixture, nodes: impl Iterator<Item = u32>) {
    let document = |n: u32| {
        let node = format!("gpu{n:03}");
        let text = |text: &str| Reading::Present(text.to_owned());
        let document = NodeDocument {
            version: 1,
            node: node.clone(),
            topology_group: None,
            identity: Identity {
                vendor: text("Dell"),
                product: text("XE9680"),
                ..Identity::default()
            },
            resources: Default::default(),
        };
        let (digest, _) = document.encode().unwrap();
        (NodeId::new(node).unwrap(), (digest, Arc::new(document)))
    };
    observed_state::documents(&fixture.core, nodes.map(document).collect());
}

#[tokio::test]
async fn uncompared_node_is_not_equal() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    fixture.add_node("gpu900");
    fixture.settled().await;
    let code = async |node: &str| {
        let error = eye.diff(node, "majority").await.unwrap_err();
        let problem = error.problem().unwrap().clone();
        (problem.status, problem.code)
    };
    let not_compared = (503, "not_compared".to_owned());
    assert_eq!(code("gpu001").await, not_compared, "nothing was compared");
    kernels(&fixture);
    documents(&fixture, 1..=4);
    announce(&fixture, &["gpu002"], Class::Nic, ClassMark::Incomplete);
    Conformance::new(fixture.records()).reconcile().await;
    assert_eq!(code("gpu900").await, not_compared, "it was never heard of");
    assert_eq!(code("gpu010").await, (409, "no_cohort".to_owned()));

    let other = eye.diff("gpu003", "majority").await.unwrap();
    let kernel = of_class(&other, "kernel");
    assert_eq!(kernel.len(), 1);
    assert_eq!(
        (&*kernel[0].verdict, &*kernel[0].left),
        ("differs", "6.9.1")
    );
    let half = eye.diff("gpu002", "majority").await.unwrap();
    let nic = of_class(&half, "nic");
    assert_eq!(nic.len(), 1, "{half:?}");
    assert_eq!((&*nic[0].verdict, &*nic[0].key), ("unknown", "class"));
    assert!(of_class(&half, "kernel").is_empty());

    // Two nodes have one value and two another.
    let record = |firmware: &str| {
        let mut record = ClassRecord::new(Class::Nic);
        record.require("nic.0.firmware", Reading::Present(firmware.to_owned()));
        record
    };
    for (firmware, nodes) in [
        ("28.39", ["gpu001", "gpu002"]),
        ("28.41", ["gpu003", "gpu004"]),
    ] {
        let record = record(firmware);
        let mark = record.state().mark();
        let node = NodeId::new(nodes[0]).unwrap();
        let digest = mark.digest().unwrap();
        fixture
            .stores
            .preimages
            .put_record(&node, digest, Arc::new(record));
        announce(&fixture, &nodes, Class::Nic, mark);
    }
    Conformance::new(fixture.records()).reconcile().await;
    let even = eye.diff("gpu001", "majority").await.unwrap();
    let nic = of_class(&even, "nic");
    assert_eq!(nic.len(), 1, "{even:?}");
    assert_eq!(
        (
            &*nic[0].verdict,
            &*nic[0].key,
            &*nic[0].left,
            &*nic[0].right
        ),
        (
            "unknown",
            "nic.0.firmware",
            "28.39",
            "<no majority: 2 values>"
        )
    );
}

#[tokio::test]
async fn what_was_read_once_and_is_not_announced_is_no_model() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    kernels(&fixture);
    let record = |release: &str| {
        let mut record = ClassRecord::new(Class::Kernel);
        record.require("kernel.osrelease", Reading::Present(release));
        record
    };
    let reads = |release: &str| {
        let mut inventory = fixture.inventory.lock().unwrap();
        inventory.records.insert(Class::Kernel, record(release));
    };
    let like = |classes: &[&str]| BaselineRequest {
        nodes: Some("gpu[001-024]".to_owned()),
        from_node: Some("gpu001".to_owned()),
        classes: classes
            .iter()
            .map(|class| ((*class).to_owned(), ClassExpectationBody::default()))
            .collect::<BTreeMap<_, _>>(),
        ..BaselineRequest::default()
    };
    reads("6.9.9");
    for classes in [&["kernel"][..], &[]] {
        let refused = op.set_baseline("k", &like(classes), None).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
        let problem = error.problem().unwrap();
        assert_eq!(problem.code, "node_changing");
        assert!(
            problem
                .detail
                .starts_with("kernel of gpu001: the node is changing"),
            "{problem:?}"
        );
    }
    reads("6.8.0");
    op.set_baseline("k", &like(&["kernel"]), None)
        .await
        .unwrap();
    assert_eq!(
        op.baseline("k").await.unwrap().classes["kernel"].keys["kernel.osrelease"],
        "6.8.0"
    );
}

#[tokio::test]
async fn a_group_is_compared_by_its_digest_and_one_of_its_nodes_stands_for_it() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let usual = kernels(&fixture);
    // Other differences between gpu001 and gpu003 do not affect groups by kernel.
    let others = ["gpu001", "gpu003"];
    announce(&fixture, &others, Class::Cpu, ClassMark::Incomplete);
    let of_class = async |class: &str| {
        let found = eye.conformance_groups(Some(class)).await.unwrap();
        let groups = found.groups.into_iter();
        groups.map(|group| group.digest).collect::<Vec<_>>()
    };
    let kernel = of_class("kernel").await;
    assert_eq!(kernel.len(), 2);
    assert_eq!(kernel[0], usual.to_string());
    let diff = eye.diff(&kernel[0], &kernel[1][..8]).await.unwrap();
    let label = |digest: &str, nodes: &str, node: &str| {
        let digest = &digest[..12];
        format!("group {digest} of kernel ({nodes}, by {node})")
    };
    assert_eq!(diff.left, label(&kernel[0], "23 nodes", "gpu001"));
    assert_eq!(diff.right, label(&kernel[1], "1 node", "gpu003"));
    let keys: Vec<_> = diff
        .differences
        .iter()
        .map(|d| (&*d.key, &*d.left, &*d.right))
        .collect();
    assert_eq!(keys, [("kernel.osrelease", "6.8.0", "6.9.1")]);
    let node = eye.diff("gpu003", &kernel[0]).await.unwrap();
    assert_eq!((&*node.left, node.differences.len()), ("gpu003", 1));

    // Two classes together, as `conformance groups` shows them.
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present("8"));
    let mark = record.state().mark();
    let view = fixture.core.view();
    let all: Vec<&str> = view.nodes.keys().map(NodeId::as_str).collect();
    announce(&fixture, &all, Class::Nic, mark);
    let both = of_class("nic,kernel").await;
    let diff = eye.diff(&both[0], &both[1]).await.unwrap();
    assert!(
        diff.left.contains("of nic,kernel (23 nodes"),
        "{}",
        diff.left
    );
    assert_eq!(diff.differences.len(), 1);

    let refused = async |left: &str, right: &str| {
        let error = eye.diff(left, right).await.unwrap_err();
        let problem = error.problem().unwrap().clone();
        (problem.status, problem.detail)
    };
    let nobodys = "0123456789abcdef";
    for (left, right, status, why) in [
        (
            &kernel[0][..7],
            "gpu001",
            400,
            "give at least 8 digits of its digest",
        ),
        ("gpu001", nobodys, 404, "the start of a group's digest"),
        (
            &kernel[0][..],
            &both[0][..],
            400,
            "by kernel cannot be compared with a group by nic,kernel",
        ),
        ("gpu001", "gpu999", 404, "unknown node"),
    ] {
        let (got, detail) = refused(left, right).await;
        assert_eq!(got, status, "{detail}");
        assert!(detail.contains(why), "{detail}");
    }
}

#[tokio::test]
async fn rejects_baseline_mixed_with_unknown() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let asked = asking("gpu[001-004]", json!({"kernel.osrelease": "6.8.0"}));
    op.set_baseline("k", &asked, None).await.unwrap();
    let error = op.baseline_diff("k", "gpu999").await.unwrap_err();
    assert_eq!(error.exit_code(), 4);
    let detail = &error.problem().unwrap().detail;
    assert!(
        detail.contains("\"gpu999\"") && detail.contains("`lattice node list`"),
        "{detail}"
    );
}
