//! Node claims: a researcher claims nodes, uses them and releases them. Real daemons, the command line of each person,
//! and the site's own wipe hook.

use lattice_api::claim::{ReleaseRequest, Wipe};
use lattice_client::api::node::NodeView;
use lattice_tests::{
    site::{PROJECT, Plan, Site, token},
    wait::eventually,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

const NODES: [&str; 3] = ["gpu101", "gpu102", "gpu103"];

/// Hook that records each run, and fails while a file of the node's name exists.
fn wipe_hook(folder: &Path) -> PathBuf {
    let hook = folder.join("wipe");
    let at = folder.display();
    let text = format!(
        "#!/bin/sh\necho \"$LATTICE_USER $LATTICE_PROJECT\" >> {at}/$LATTICE_NODE.ran\n\
         [ -e {at}/$LATTICE_NODE.fails ] && echo scratch is busy && exit 1\necho all clean\n"
    );
    fs::write(&hook, text).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    hook
}

/// Context file of a person for the command line.
fn context(site: &Site, user: &str) -> String {
    let secret = site.path(&format!("{user}.token"));
    fs::write(&secret, token(user)).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let out = site.path(&format!("context-of-{user}.json"));
    let server = format!("https://{}", site.https()[0]);
    site.lattice(&[
        "admin",
        "context",
        "--server",
        &server,
        "--ca",
        "https/https-ca.pem",
        "--token-file",
        secret.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    out.to_str().unwrap().to_owned()
}

/// Output and exit code of a command.
fn says(site: &Site, context: &str, args: &[&str]) -> (Option<i32>, String) {
    let done = site.cli(&[&["--context", context], args].concat());
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(text).unwrap())
}

async fn node_when(
    site: &Site,
    what: &str,
    name: &str,
    is: impl Fn(&NodeView) -> bool,
) -> NodeView {
    eventually(what, || async {
        let node = site.api().node(name).await.ok()?;
        is(&node).then_some(node)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_claimed_worked_on_given_back_and_wiped() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let hook = wipe_hook(folder.path());
    let hosts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts");
    let plan = Plan {
        users: vec!["alice".to_owned(), "bob".to_owned()],
        executor_lines: format!("  hooks:\n    wipe: {{program: {}}}\n", hook.display()),
        trees: Some(hosts),
        drivers: true,
        ..Plan::with_agents(NODES)
    };
    let site = Site::found(lattice_tests::programs!(), &plan).await;
    let (alice, bob) = (context(&site, "alice"), context(&site, "bob"));
    let (pair, project) = ("gpu[101-102]", ["--project", PROJECT]);
    let claim = |principal: &str, nodes: &str| {
        says(
            &site,
            principal,
            &[&["node", "claim", nodes][..], &project].concat(),
        )
    };

    // Before each node was probed twice the claim is refused; the claim is repeated.
    eventually("claimed", || async {
        (claim(&alice, pair).0 == Some(0)).then_some(())
    })
    .await;
    let (code, text) = claim(&bob, "gpu[102-103]");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("node gpu102 is claimed by alice"), "{text}");
    let third = site.api().node("gpu103").await.unwrap();
    assert_eq!(third.claim, None, "all or none");

    // Her sensitive job runs there; meanwhile she cannot release the nodes.
    let args = ["submit", "--sensitive", "--nodes", "2"];
    let work = ["--", "sh", "-c", "sleep 3600"];
    let (code, text) = says(&site, &alice, &[&args[..], &project, &work].concat());
    assert_eq!(code, Some(0), "{text}");
    let held = |node: &NodeView| node.holder.is_some();
    let node = node_when(&site, "her work on gpu101", "gpu101", held).await;
    let id = node.holder.unwrap().allocation;
    let (code, text) = says(&site, &alice, &["node", "release", pair]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("still runs allocation"), "{text}");
    site.lattice(&["cancel", &id.to_string()]);
    for name in ["gpu101", "gpu102"] {
        let node = node_when(&site, "idle", name, |node| node.holder.is_none()).await;
        let claim = node.claim.unwrap();
        assert_eq!(
            (claim.user.as_str(), claim.state.as_str()),
            ("alice", "claimed")
        );
    }

    // One node is wiped and free; the wipe of the other one fails, so it is quarantined.
    fs::write(folder.path().join("gpu102.fails"), "").unwrap();
    let (code, text) = says(&site, &bob, &["node", "release", pair]);
    assert_eq!(code, Some(5), "{text}");
    let (code, text) = says(&site, &alice, &["node", "release", pair]);
    assert_eq!(code, Some(0), "{text}");
    node_when(&site, "gpu101 is free", "gpu101", |node| {
        node.claim.is_none() && node.lifecycle == "ready"
    })
    .await;
    let failed = node_when(&site, "gpu102 is quarantined", "gpu102", |node| {
        node.lifecycle == "quarantined"
    })
    .await;
    let claim_of = failed.claim.unwrap();
    assert_eq!(claim_of.state, "unclean");
    assert!(claim_of.reason.unwrap().contains("scratch is busy"));
    let (code, text) = claim(&bob, "gpu102");
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = claim(&bob, "gpu101");
    assert_eq!(code, Some(0), "{text}");

    // An administrator repeats the wipe.
    fs::remove_file(folder.path().join("gpu102.fails")).unwrap();
    let again = ReleaseRequest {
        reason: Some("ended what held it".to_owned()),
        wipe: Wipe::Again,
    };
    site.api().release_nodes("gpu102", &again).await.unwrap();
    let wiped = node_when(&site, "gpu102 is wiped", "gpu102", |node| {
        node.claim.is_none()
    })
    .await;
    assert_eq!(wiped.lifecycle, "drained");
    site.lattice(&["node", "undrain", "gpu102"]);
    node_when(&site, "gpu102 is back", "gpu102", |node| {
        node.lifecycle == "ready"
    })
    .await;
    // Wipes after her job, at her release, and repeated.
    let ran = fs::read_to_string(folder.path().join("gpu102.ran")).unwrap();
    assert_eq!(ran, "alice acme\n".repeat(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_vcluster_take_its_work_alone_and_go_back_when_it_has_ended() {
    let plan = Plan {
        users: vec!["alice".to_owned()],
        ..Plan::with_agents(["gpu101", "gpu102"])
    };
    let site = Site::found(lattice_tests::programs!(), &plan).await;
    let (ada, alice) = (context(&site, "ada"), context(&site, "alice"));
    let vcluster = |principal: &str, args: &[&str]| {
        says(
            &site,
            principal,
            &[&["admin", "vcluster"][..], args].concat(),
        )
    };
    let ok = |(code, text): (Option<i32>, String)| assert_eq!(code, Some(0), "{text}");

    // Users of the vCluster may read it, and nothing else.
    let (code, text) = vcluster(&alice, &["set", "night"]);
    assert_eq!(code, Some(5), "{text}");
    let (code, text) = vcluster(&ada, &["assign", "night", "gpu102"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(
        text.contains("`lattice admin vcluster set night`"),
        "{text}"
    );
    let sleeps = ["--project", PROJECT, "--", "sh", "-c", "sleep 3600"];
    let asks = |args: &[&str]| says(&site, &alice, &[&["submit"][..], args, &sleeps].concat());
    let submit = |args: &[&str]| {
        let (code, text) = asks(args);
        assert_eq!(code, Some(0), "{text}");
        text.trim().to_owned()
    };
    let waits = submit(&["--nodes", "2", "--hold"]);
    // An idle node is lent to waiting jobs, unless its vCluster forbids lending.
    let keeps = ["--set", "sharing.allow_lending=false"];
    let night = ["set", "night", "--tenants", PROJECT];
    ok(vcluster(&ada, &[&night[..], &keeps].concat()));
    ok(vcluster(&ada, &["assign", "night", "gpu102"]));
    let moved = site.api().node("gpu102").await.unwrap();
    assert_eq!(moved.vcluster, "night");

    // A job that needs both nodes of the other vCluster waits while one is left; further such jobs are refused.
    ok(says(&site, &alice, &["release", &waits]));
    let (code, text) = asks(&["--nodes", "2"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("vCluster default has 1 node"), "{text}");
    let runs = submit(&["--vcluster", "night"]);
    let held = |node: &NodeView| node.holder.is_some();
    let node = node_when(&site, "its work on gpu102", "gpu102", held).await;
    assert_eq!(node.holder.unwrap().allocation.to_string(), runs);
    let waiting = site
        .api()
        .allocation(waits.parse::<lattice_quorum_types::AllocationId>().unwrap())
        .await
        .unwrap();
    assert_eq!(waiting.state, "pending");

    // While a job runs on the node, the node cannot be moved and its vCluster cannot be deleted.
    ok(vcluster(&ada, &["set", "default"]));
    let back = ["assign", "default", "gpu102", "--from", "night"];
    let (code, text) = vcluster(&ada, &back);
    assert_eq!(code, Some(1), "{text}");
    let holder = format!("node gpu102 is held by allocation {runs} of alice");
    assert!(text.contains(&holder), "{text}");
    let (code, text) = vcluster(&ada, &["delete", "night"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("has nodes: gpu102"), "{text}");
    ok(says(&site, &alice, &["cancel", &runs]));
    node_when(&site, "idle", "gpu102", |node| node.holder.is_none()).await;
    let (code, text) = vcluster(&ada, &back[..3]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("belongs to vCluster \"night\""), "{text}");
    ok(vcluster(&ada, &back));
    ok(vcluster(&ada, &["delete", "night"]));

    // Now there are two nodes.
    for name in ["gpu101", "gpu102"] {
        let is = |node: &NodeView| {
            let holder = node.holder.as_ref();
            holder.is_some_and(|holder| holder.allocation.to_string() == waits)
        };
        node_when(&site, "what waited runs", name, is).await;
    }
    let actions = ["--action", "nodes_moved,vcluster_set,vcluster_deleted"];
    let entries = site.lattice(&[&["audit", "query"][..], &actions].concat());
    for part in [
        "moved node gpu102 from vCluster default to night",
        "moved node gpu102 from vCluster night to default",
        "deleted vCluster night",
    ] {
        assert!(entries.contains(part), "{part} in {entries}");
    }
}
