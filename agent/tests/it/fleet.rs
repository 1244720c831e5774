//! Many agents in one process, as in the demo.

use crate::cluster::{Cluster, captured};
use crate::support::{PATIENCE, eventually, key, launch};
use lattice_agent::App;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use std::time::Duration;

const AGENTS: u64 = 23;
const RANKS_EACH: u64 = 4;
/// Timeout for reading all nodes and launching all ranks at once.
const DEADLINE: Duration = Duration::from_secs(60);

fn name(n: u64) -> String {
    if n < 12 {
        format!("gpu{:03}", n + 1)
    } else {
        format!("gpu{}", 101 + n - 12)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_in_one_process_runs_everything_once_and_is_seen_whole() {
    let cluster = Cluster::start().await;
    let mut apps = Vec::new();
    for n in 0..AGENTS {
        let mut settings = cluster.settings(&name(n), captured(&name(n)));
        settings.gossip.interval = Some(Duration::from_millis(500));
        let mut app = App::bind(settings, cluster.edges(&name(n))).await.unwrap();
        app.start().await.unwrap();
        apps.push(app);
    }
    let mut running = Vec::new();
    for (n, app) in (0..).zip(&apps) {
        for rank in 0..RANKS_EACH {
            let mut wanted = launch(key(1 + n * RANKS_EACH + rank), &["sleep", "0.1"]);
            wanted.nodes = vec![app.node().clone()];
            let peer = cluster.peer(app);
            running.push(tokio::spawn(
                async move { peer.call(&wanted, DEADLINE).await },
            ));
        }
    }
    for launched in running {
        launched.await.unwrap().unwrap().unwrap();
    }
    for n in 1..=AGENTS * RANKS_EACH {
        assert_eq!(
            cluster.ledger.end(key(n)).await,
            RankExit::Exited { code: 0 }
        );
    }
    let mut ends = cluster.ledger.all();
    ends.retain(|r| matches!(r.report, RankReport::Ended { .. }));
    ends.sort_by_key(|r| r.key);
    // An end is reported again if control's answer was too late. A second run would have another end.
    ends.dedup_by(|a, b| (a.key, &a.report) == (b.key, &b.report));
    assert_eq!(ends.len() as u64, AGENTS * RANKS_EACH);
    for n in 0..AGENTS {
        cluster
            .member(&name(n), |m| m.published.identity.is_some())
            .await;
    }
    eventually("every end to be taken", || {
        apps.iter()
            .all(|app| app.executor().list().is_empty())
            .then_some(())
    })
    .await;
    let stopping = apps.into_iter().map(|app| app.stop());
    let stopped = futures::future::join_all(stopping);
    tokio::time::timeout(PATIENCE, stopped).await.unwrap();
}
