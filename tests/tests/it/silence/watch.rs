//! Continuous observation of the nodes, by control's REST interface and by heartbeats in the gossip cell.

use lattice_client::{Client, api::node::NodeView};
use lattice_gossip::{Cell, CellConfig, Gossip, GossipLiveness, PublishedState, Seed};
use lattice_mesh::{Clock as _, Credentials, Mesh, MeshConfig, Role, Router, SystemClock};
use lattice_tests::{
    site::{CELL, Site},
    wait::{PATIENCE, until},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const EVERY: Duration = Duration::from_millis(100);

/// Observation of all nodes at one time.
#[derive(Clone)]
pub struct LivenessObservation {
    pub at: Instant,
    pub nodes: Arc<BTreeMap<String, NodeView>>,
    /// Nodes with a moving heartbeat in the gossip cell.
    pub reached: BTreeSet<String>,
}

/// Observes until it is dropped.
pub struct Watch {
    looks: Arc<Mutex<Vec<LivenessObservation>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    pub async fn start(site: &Site) -> Self {
        let (api, cell) = (site.api().clone(), join(site).await);
        let looks = Arc::new(Mutex::new(Vec::new()));
        let kept = looks.clone();
        let task = tokio::spawn(async move {
            loop {
                let look = look(&api, &cell).await;
                kept.lock().unwrap().extend(look);
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { looks, task }
    }

    /// Waits for the first observation since `from` that satisfies the condition for the node, and returns its time.
    ///
    /// # Panics
    /// When there is none in time; the message has the last view of the node.
    pub async fn until(
        &self,
        node: &str,
        from: Instant,
        is_so: impl Fn(&NodeView) -> bool,
    ) -> Instant {
        loop {
            let last = {
                let looks = self.looks.lock().unwrap();
                let mut since = looks.iter().filter(|look| look.at >= from);
                if let Some(found) = since.find(|look| is_so(&look.nodes[node])) {
                    return found.at;
                }
                looks.last().map(|look| look.nodes[node].clone())
            };
            assert!(
                from.elapsed() < PATIENCE,
                "within {PATIENCE:?} {node} is {last:#?}"
            );
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Waits until all heartbeats move in the gossip cell.
    pub async fn hears_all(&self) {
        until("all are heard", || {
            let looks = self.looks.lock().unwrap();
            let last = looks.last();
            last.is_some_and(|look| look.nodes.keys().all(|node| look.reached.contains(node)))
        })
        .await;
    }

    /// Observations of this period.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<LivenessObservation> {
        let looks = self.looks.lock().unwrap();
        let within = looks.iter().filter(|look| (from..=to).contains(&look.at));
        within.cloned().collect()
    }
}

/// Takes one observation. `None`: control did not answer.
async fn look(api: &Client, cell: &Cell) -> Option<LivenessObservation> {
    let all = api.nodes().await.ok()?;
    let members = cell.members();
    let reached = members
        .iter()
        .filter(|member| member.liveness == GossipLiveness::Alive);
    Some(LivenessObservation {
        at: Instant::now(),
        nodes: Arc::new(
            all.into_iter()
                .map(|node| (node.name.clone(), node))
                .collect(),
        ),
        reached: reached
            .map(|member| member.identity.id().to_owned())
            .collect(),
    })
}

/// Joins the cell as a member that publishes nothing.
async fn join(site: &Site) -> Cell {
    let credentials = Credentials::load(&site.observer_credentials()).unwrap();
    let here = (Ipv4Addr::LOCALHOST, 0).into();
    let mesh = Mesh::bind(here, credentials, MeshConfig::default()).unwrap();
    let gossip = Gossip::new();
    mesh.serve(gossip.route(Router::new())).unwrap();
    let mut config = CellConfig::new(CELL.parse().unwrap(), SystemClock.now().0);
    config.interval = Duration::from_millis(500);
    let seed = |addr: &std::net::SocketAddr| Seed {
        addr: *addr,
        role: Role::Control,
    };
    config.seeds = site.control_addrs().iter().map(seed).collect();
    gossip
        .join(&mesh, config, &PublishedState::default())
        .await
        .unwrap()
}

/// Longest time without a moving heartbeat of a node.
pub fn longest_silence(node: &str, looks: &[LivenessObservation]) -> Duration {
    let mut reached_at = looks.first().unwrap().at;
    let mut longest = Duration::ZERO;
    for look in looks {
        longest = longest.max(look.at - reached_at);
        if look.reached.contains(node) {
            reached_at = look.at;
        }
    }
    longest
}

/// Longest time without a new reply of a node to the pings of control.
pub fn longest_unanswered(node: &str, looks: &[LivenessObservation]) -> Duration {
    let mut replied = looks.first().unwrap();
    let mut longest = Duration::ZERO;
    for look in looks {
        longest = longest.max(look.at - replied.at);
        if look.nodes[node].last_seen != replied.nodes[node].last_seen {
            replied = look;
        }
    }
    longest
}
