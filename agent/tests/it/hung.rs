//! Node with a part that does not answer: the agent continues and reports the hanging probe. Needs root and FUSE, to
//! mount a filesystem with a dead server.

use crate::cluster::Cluster;
use crate::hanging::{Hang, Hanging};
use crate::support::{PATIENCE, tree_of};
use lattice_conformance::{Inventory, ProbeStatus};
use lattice_gossip::{Member, Verdict};
use lattice_hwprobe::{Host, NvmlSource};
use std::time::Duration;

fn reasons(member: &Member) -> Vec<String> {
    let health = member.published.health.clone();
    health.map(|health| health.reasons).unwrap_or_default()
}

/// Node with its own copy of a tree.
fn node(cluster: &Cluster) -> Host {
    let root = tree_of("gpu101", cluster.folder.path().join("tree"));
    let mut host = Host::new(root, NvmlSource::Disabled);
    host.files_within = Duration::from_millis(1500);
    host
}

async fn hangs_and_comes_back(hang: Hang) {
    let cluster = Cluster::start().await;
    let host = node(&cluster);
    let nics = host.root.path().join("sys/class/infiniband");
    let Some(hanging) = Hanging::over(&nics, hang) else {
        return;
    };
    let mut settings = cluster.settings("n1", host);
    settings.probe.interval = Duration::from_millis(500);
    settings.probe.confirm_after = Duration::from_millis(100);
    let mut app = lattice_agent::App::bind(settings, cluster.edges("n1"))
        .await
        .unwrap();
    app.start().await.unwrap();

    let hung = |member: &Member| reasons(member).contains(&"probe.nic.hung".to_owned());
    let mark = |member: &Member, class: &str| {
        let mark = member.published.fingerprints.get(class);
        mark.cloned().unwrap_or_default()
    };
    // On a busy machine, a read of another class may also time out once.
    let alone = |member: &Member| hung(member) && mark(member, "kernel").starts_with("2:");
    let member = cluster.member("n1", alone).await;
    assert!(reasons(&member).contains(&"nic.incomplete".to_owned()));
    let verdict = member.published.health.as_ref().unwrap().verdict;
    assert_eq!(verdict, Verdict::Unknown);
    assert_eq!(mark(&member, "nic"), "incomplete");
    // Requests are answered, with the state of the probe.
    let bytes = tokio::time::timeout(PATIENCE, app.view().latest())
        .await
        .unwrap()
        .unwrap();
    let inventory: Inventory = serde_json::from_slice(&bytes).unwrap();
    let nic = inventory
        .probes
        .iter()
        .find(|probe| probe.name == "nic")
        .unwrap();
    assert_eq!(nic.outcome, ProbeStatus::Hung);
    assert_eq!(inventory.resources.rdma_count.present(), None);

    drop(hanging);
    let sound = |member: &Member| mark(member, "nic").starts_with("2:") && !hung(member);
    cluster.member("n1", sound).await;
    app.stop().await;
}

#[tokio::test]
async fn a_file_that_never_answers_is_a_reason_of_its_own() {
    hangs_and_comes_back(Hang::Killable).await;
}

#[tokio::test]
async fn processes_that_cannot_be_killed_stop_nothing_else() {
    hangs_and_comes_back(Hang::Stuck).await;
}
