//! Agent in a separate process, killed while jobs write checkpoints.

use super::fixture::*;
use crate::cluster::Cluster;
use crate::daemon::{Daemon, configure};
use crate::support::program;
use lattice_mesh::Peer;
use rustix::process::Signal;

const DEADLINE: Duration = Duration::from_secs(20);

async fn ask(peer: &Peer, key: AttemptKey, order: &CheckpointOrder) -> CheckpointStatus {
    let wanted = WriteCheckpoint {
        key,
        epoch: 1,
        order: order.clone(),
    };
    peer.call(&wanted, DEADLINE).await.unwrap().unwrap()
}

async fn stands(
    peer: &Peer,
    key: AttemptKey,
    order: &CheckpointOrder,
    wanted: impl Fn(&CheckpointStatus) -> bool,
) {
    let wait = async {
        while !wanted(&ask(peer, key, order).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

/// Three jobs with requests through the mesh continue to write. The next agent reports the results, given only the
/// checkpoint numbers.
#[tokio::test]
async fn restarted_agent_finds_checkpoint_in_progress() {
    let cluster = Cluster::start().await;
    let folder = cluster.folder.path();
    let runtime = format!(", runtime_dir: {}/run", folder.display());
    let config = configure(&cluster, &folder.join("n1"), &runtime);
    let mut first = Daemon::start(&program(), &config);
    let peer = first.peer(&cluster);
    let directory = |number: u64| folder.join(format!("checkpoints-{number}"));
    let order = |number, n| {
        let directory = directory(number);
        CheckpointOrder::new(n, directory.to_str().unwrap(), LONG_MS)
    };
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        let wanted = Launch {
            checkpoint: Some(CheckpointSetup {
                mode,
                directory: directory(number).to_str().unwrap().to_owned(),
                restore: None,
            }),
            ..counter(key(number), "--write-ms 1000")
        };
        peer.call(&wanted, DEADLINE).await.unwrap().unwrap();
        cluster.ledger.started(key(number)).await;
    }
    for number in 1..=3 {
        stands(&peer, key(number), &order(number, 1), is_writing).await;
    }
    first.end(Signal::KILL);
    let second = Daemon::start(&program(), &config);
    let peer = second.peer(&cluster);
    let is_written = |status: &CheckpointStatus| matches!(status, CheckpointStatus::Ended(outcome) if outcome.is_written());
    for number in 1..=3 {
        stands(&peer, key(number), &order(number, 1), is_written).await;
        stands(&peer, key(number), &order(number, 2), is_written).await;
        peer.call(&terminate(key(number)), DEADLINE)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(cluster.ledger.end(key(number)).await, RankExit::Stopped);
    }
}
