//! GPU selection for jobs that use some of a node's GPUs, and its variables.

use crate::cluster::{Cluster, captured};
use crate::support::{PATIENCE, eventually, key, shell, tree_of};
use lattice_agent::App;
use lattice_agent_rpc::{GetInventory, Launch};
use lattice_hwprobe::Root;
use lattice_mesh::Peer;
use lattice_quorum_types::allocation::RankExit;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Description of the node's driver.
fn driver(tree: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(tree.join("nvml.json")).unwrap()).unwrap()
}

fn change(tree: &Path, how: impl FnOnce(&mut Value)) {
    let mut said = driver(tree);
    how(&mut said);
    std::fs::write(tree.join("nvml.json"), said.to_string()).unwrap();
}

/// CUDA ids of these GPUs.
fn uuids(tree: &Path, gpus: &[usize]) -> String {
    let said = driver(tree);
    let uuid = |gpu: &usize| said["gpus"][*gpu]["uuid"].as_str().unwrap().to_owned();
    gpus.iter().map(uuid).collect::<Vec<_>>().join(",")
}

/// Agent on a copy of a captured host.
struct Node {
    cluster: Cluster,
    name: &'static str,
    tree: PathBuf,
    /// `None` during a restart.
    app: Option<App>,
}

impl Node {
    async fn new(name: &'static str, how: impl FnOnce(&mut Value)) -> Self {
        let cluster = Cluster::start().await;
        let tree = tree_of(name, cluster.folder.path().join("tree"));
        change(&tree, how);
        let app = agent(&cluster, name, &tree).await;
        Self {
            cluster,
            name,
            tree,
            app: Some(app),
        }
    }

    fn peer(&self) -> Peer {
        self.cluster.peer(self.app.as_ref().unwrap())
    }

    async fn stop(mut self) {
        self.app.take().unwrap().stop().await;
    }

    async fn starts_anew(&mut self) {
        self.app.take().unwrap().stop().await;
        self.app = Some(agent(&self.cluster, self.name, &self.tree).await);
    }

    fn attempt(&self, number: u64) -> PathBuf {
        let folder = self.cluster.folder.path().join(self.name);
        folder.join(format!("executor/attempts/{number}.1"))
    }

    fn stdout(&self, number: u64) -> String {
        std::fs::read_to_string(self.attempt(number).join("stdout")).unwrap()
    }

    /// GPU selection variables that a job sees.
    async fn sees(&self, number: u64, gpus: u32, env: &[(&str, &str)]) -> Vec<String> {
        let mut launch = shell(key(number), "env | grep -E 'DEVICE|GPU' | sort; true");
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        launch.workload.env = env.collect();
        launch_on(&self.peer(), launch, gpus).await;
        let end = self.cluster.ledger.end(key(number)).await;
        assert_eq!(end, RankExit::Exited { code: 0 });
        self.stdout(number).lines().map(str::to_owned).collect()
    }
}

async fn agent(cluster: &Cluster, name: &str, tree: &Path) -> App {
    let mut host = captured(name);
    host.root = Root::new(tree);
    host.nvml = host
        .nvml
        .with_env(lattice_fake_nvml::DESCRIPTION_ENV, tree.join("nvml.json"));
    let app = cluster.agent(name, host).await;
    let last = GetInventory {
        fresh: false,
        by: None,
    };
    let read = cluster.peer(&app).call(&last, PATIENCE).await;
    read.unwrap().unwrap();
    app
}

async fn launch_on(peer: &Peer, launch: Launch, gpus: u32) {
    let asked = Launch { gpus, ..launch };
    peer.call(&asked, PATIENCE).await.unwrap().unwrap();
}

/// Variables for CUDA and for container runtimes.
fn cuda(list: &str) -> Vec<String> {
    ["CUDA", "NVIDIA"]
        .map(|vendor| format!("{vendor}_VISIBLE_DEVICES={list}"))
        .to_vec()
}

/// Eight H100 on NVSwitches in two halves. One GPU of the first half has lost half of its links. So the only four GPUs
/// with full connections are the second half.
#[tokio::test]
async fn four_of_eight_are_the_half_that_is_whole() {
    let node = Node::new("gpu001", |said| {
        said["gpus"][1]["nvlinks"][0]["links"] = json!(9);
    })
    .await;
    let half = uuids(&node.tree, &[4, 5, 6, 7]);
    assert_eq!(node.sees(1, 4, &[]).await, cuda(&half));
    // Three GPUs of the first half are intact, and nearer to each other than to the second half.
    let three = uuids(&node.tree, &[0, 2, 3]);
    assert_eq!(node.sees(2, 3, &[]).await, cuda(&three));
    // A request for all GPUs, or for more than exist, sets no variable.
    assert_eq!(node.sees(3, 8, &[]).await, [""; 0]);
    assert_eq!(node.sees(4, 9, &[]).await, [""; 0]);
    node.stop().await;
}

/// Four A100 with four NVLinks between each pair; the first has lost its links to the second.
#[tokio::test]
async fn two_of_four_are_a_pair_with_all_its_links() {
    let lose = |gpu: &mut Value, to: &str| {
        let links = gpu["nvlinks"].as_array_mut().unwrap();
        links.retain(|link| !link["remote_pci"]["bus_id"].as_str().unwrap().contains(to));
    };
    let node = Node::new("gpu101", |said| {
        for (gpu, to) in [(0, ":41:"), (1, ":03:")] {
            lose(&mut said["gpus"][gpu], to);
        }
    })
    .await;
    let pair = uuids(&node.tree, &[0, 2]);
    assert_eq!(node.sees(1, 2, &[]).await, cuda(&pair));
    let three = uuids(&node.tree, &[0, 2, 3]);
    assert_eq!(node.sees(2, 3, &[]).await, cuda(&three));
    node.stop().await;
}

#[tokio::test]
async fn explicit_gpu_choice_is_kept() {
    let node = Node::new("gpu101", |_| {}).await;
    let own = [("CUDA_VISIBLE_DEVICES", "3,1")];
    assert_eq!(node.sees(1, 2, &own).await, ["CUDA_VISIBLE_DEVICES=3,1"]);
    node.stop().await;
}

/// The selection belongs to the attempt: a repeated launch gets the recorded one, even if the node has changed.
#[tokio::test]
async fn a_repeated_launch_changes_no_choice() {
    let mut node = Node::new("gpu001", |_| {}).await;
    let go = node.cluster.folder.path().join("go");
    let script = format!(
        "echo $CUDA_VISIBLE_DEVICES; until [ -e {0} ]; do sleep 0.1; done; echo $CUDA_VISIBLE_DEVICES",
        go.display()
    );
    let launch = shell(key(1), &script);
    launch_on(&node.peer(), launch.clone(), 2).await;
    node.cluster.ledger.started(key(1)).await;
    eventually("what it sees", || {
        (!node.stdout(1).is_empty()).then_some(())
    })
    .await;
    let first = uuids(&node.tree, &[0, 1]);
    let record = std::fs::read(node.attempt(1).join("launch.json")).unwrap();
    let recorded: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(recorded["gpus"]["slots"], json!([0, 1]));
    change(&node.tree, |said| {
        said["gpus"][0]["nvlinks"][0]["links"] = json!(2);
    });
    node.starts_anew().await;
    launch_on(&node.peer(), launch, 2).await;
    let other = shell(key(2), "echo $CUDA_VISIBLE_DEVICES");
    launch_on(&node.peer(), other, 2).await;
    node.cluster.ledger.end(key(2)).await;
    let recorded = std::fs::read(node.attempt(1).join("launch.json")).unwrap();
    assert_eq!(recorded, record);
    std::fs::write(&go, "").unwrap();
    node.cluster.ledger.end(key(1)).await;
    assert_eq!(node.stdout(1), format!("{first}\n{first}\n"));
    // A new selection would differ.
    assert_eq!(node.stdout(2), format!("{}\n", uuids(&node.tree, &[1, 2])));
    node.stop().await;
}
