//! Segment transfer between three members. A returning member fetches exactly the segments that it lacks, a member with
//! a new disk fetches all, and damaged segments are replaced from another member.

use crate::common::{
    self, Cluster, admin, create_project, folder_of, register, submit, submitted, until,
};
use bytes::Bytes;
use futures::StreamExt as _;
use lattice_mesh::{Role, SystemClock};
use lattice_quorum::{App, Edges, Settings, restore, verify_backup};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, VoterId,
    command::{Principal, Privilege},
    view::{Answer, Query},
};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::SystemTime};

async fn seed(client: &QuorumClient) {
    let commands = [create_project("atlas", 10), register("n1")];
    let commands = commands.map(|command| admin(None, command)).to_vec();
    for reply in client.propose_all(commands).await.unwrap() {
        reply.unwrap();
    }
}

/// Submits `count` more allocations, which end before they start.
async fn end(client: &QuorumClient, count: usize) -> Vec<AllocationId> {
    let mut ended = Vec::new();
    for _ in 0..count {
        let id = submitted(
            client
                .propose(admin(None, submit("atlas", 1, "x")))
                .await
                .unwrap(),
        );
        let cancelled = client.propose(admin(None, Command::Cancel { id })).await;
        cancelled.unwrap().unwrap();
        ended.push(id);
    }
    ended
}

async fn check(client: &QuorumClient, ids: &[AllocationId]) {
    for id in ids {
        match client.read(Query::Allocation { id: *id }).await.unwrap() {
            Answer::Allocation(Some(record)) => {
                assert_eq!((record.id, record.state), (*id, AllocationState::Cancelled));
            }
            other => panic!("{id}: {other:?}"),
        }
    }
    let query = Query::Allocations {
        after: AllocationId(0),
        limit: 10_000,
        states: vec![AllocationState::Cancelled],
        within: None,
    };
    match client.read(query).await.unwrap() {
        Answer::Allocations(found) => {
            let found: Vec<_> = found.iter().map(|record| record.id).collect();
            assert_eq!(found, ids);
        }
        other => panic!("{other:?}"),
    }
}

/// Segment files of a member, with their modification times.
fn segments(cluster: &Cluster, id: VoterId) -> BTreeMap<PathBuf, SystemTime> {
    let folder = folder_of(cluster.folder.path(), id).join("segments");
    let Ok(files) = std::fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    // A file may be renamed during the listing.
    let files = files.filter_map(Result::ok);
    let files = files.filter(|file| file.path().extension().is_some_and(|e| e == "seg"));
    let written =
        files.filter_map(|f| Some((f.file_name().into(), f.metadata().ok()?.modified().ok()?)));
    written.collect()
}

async fn agree(cluster: &Cluster) {
    until("all members at one digest", || async {
        let digests: Vec<_> = (1..=3).map(|id| cluster.app(id).state_digest()).collect();
        digests.windows(2).all(|pair| pair[0] == pair[1])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_member_gets_missing_segments_only() {
    let mut cluster = Cluster::start_with_segments(20, 4).await;
    let client = cluster.client("c1");
    seed(&client).await;
    let mut ended = end(&client, 30).await;
    agree(&cluster).await;
    let leader = cluster.leader().await;
    let away = (1..=3).find(|id| *id != leader).unwrap();
    until("a snapshot that names segments", || async {
        let folder = folder_of(cluster.folder.path(), away).join("snapshots");
        std::fs::read_dir(folder).is_ok_and(|files| files.count() == 2)
    })
    .await;
    cluster.stop_member(away).await;
    let before = segments(&cluster, away);
    assert!(before.len() >= 3, "{before:?}");
    ended.extend(end(&client, 60).await);
    cluster.restart_member(away).await;
    agree(&cluster).await;
    let after = segments(&cluster, away);
    assert!(after.len() > before.len() + 5, "{before:?} {after:?}");
    // The segments in the member's last snapshot are unchanged.
    let kept = before
        .iter()
        .filter(|(file, written)| after.get(*file) == Some(*written));
    assert!(kept.count() >= 3, "{before:?} {after:?}");
    check(&client, &ended).await;

    // Another member loses its disk.
    let wiped = (1..=3).find(|id| *id != leader && *id != away).unwrap();
    cluster.stop_member(wiped).await;
    std::fs::remove_dir_all(folder_of(cluster.folder.path(), wiped)).unwrap();
    cluster.restart_member(wiped).await;
    agree(&cluster).await;
    // The wiped member answers for all records: the other two need it for a majority.
    cluster.stop_member(leader).await;
    cluster.stop_member(away).await;
    cluster.restart_member(away).await;
    check(&client, &ended).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_segment_is_brought_from_another_member() {
    let cluster = Cluster::start_with_segments(20, 4).await;
    let client = cluster.client("c1");
    seed(&client).await;
    let ended = end(&client, 30).await;
    agree(&cluster).await;
    let leader = cluster.leader().await;
    let folder = folder_of(cluster.folder.path(), leader).join("segments");
    let is_ended = |file: &PathBuf| file.to_str().is_some_and(|name| name.starts_with("ended"));
    let victims = segments(&cluster, leader).into_keys().filter(is_ended);
    let victims: Vec<PathBuf> = victims.take(3).collect();
    assert_eq!(victims.len(), 3);
    let mut whole = Vec::new();
    for (n, victim) in victims.iter().enumerate() {
        let file = folder.join(victim);
        whole.push(std::fs::read(&file).unwrap());
        let mut damaged = whole[n].clone();
        match n {
            0 => damaged[50] ^= 1,
            1 => damaged.truncate(30),
            _ => damaged.clear(),
        }
        std::fs::write(&file, damaged).unwrap();
    }
    check(&client, &ended).await;
    // The leader had to read the damaged segments; if it still leads, they are intact again.
    if cluster.leader().await == leader {
        for (victim, whole) in victims.iter().zip(whole) {
            assert!(std::fs::read(folder.join(victim)).unwrap() == whole);
        }
    }
    cluster.stop().await;
}

/// A backup contains the segments, and a cluster restored from it answers from them.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_the_segments_and_a_restored_cluster_answers_from_them() {
    let cluster = Cluster::start_with_segments(5000, 4).await;
    let client = cluster.client("c1");
    seed(&client).await;
    let ended = end(&client, 30).await;
    let pieces = client.backup(principal(), "k".to_owned()).await.unwrap();
    let pieces: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
    let mut backup = pieces.concat();
    cluster.stop().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.backup");
    std::fs::write(&file, &backup).unwrap();
    let header = verify_backup(&file).unwrap();
    let named = header
        .parts
        .iter()
        .filter(|part| part.name.starts_with("ended-"));
    assert!(named.count() >= 5, "{:?}", header.parts);
    // A flipped bit anywhere in a segment is found before the restore creates anything.
    backup[header.encode().len() + header.parts[0].bytes as usize + 100] ^= 1;
    std::fs::write(&file, &backup).unwrap();
    let damaged = verify_backup(&file).unwrap_err().to_string();
    assert!(damaged.contains(&header.parts[1].name), "{damaged}");
    backup[header.encode().len() + header.parts[0].bytes as usize + 100] ^= 1;
    std::fs::write(&file, &backup).unwrap();

    let authority = common::authority();
    let mut settings = Settings::new(
        common::CLUSTER,
        1,
        common::any_port(),
        folder.path().join("1"),
    );
    settings.members = [(1, "127.0.0.1:1".parse().unwrap())].into();
    restore(&settings, &file, None).await.unwrap();
    let edges = Edges {
        credentials: common::credentials(&authority, Role::Quorum, "1"),
        authority: Some(authority.clone()),
        clock: Arc::new(SystemClock),
    };
    let mut app = App::bind(settings, edges).await.unwrap();
    let addr = app.addr();
    app.start(vec![(1, addr)]).await.unwrap();
    let client = common::client_of(&authority, "c1", vec![addr]);
    check(&client, &ended).await;
    app.stop().await;
}

fn principal() -> Principal {
    Principal {
        name: "root".to_owned(),
        privilege: Privilege::Admin,
    }
}
