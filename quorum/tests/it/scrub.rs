//! Segment scrubber: damaged or missing segments are found and replaced from another member, without any query.

use crate::common::{
    Cluster, admin, create_project, folder_of, register, submit, submitted, until,
};
use lattice_quorum::ScrubSettings;
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{Command, VoterId, membership::SegmentCounts};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Submits `count` allocations, which end before they start.
async fn history(client: &QuorumClient, count: usize) {
    let commands = [create_project("atlas", 10), register("n1")];
    let commands = commands.map(|command| admin(None, command)).to_vec();
    for reply in client.propose_all(commands).await.unwrap() {
        reply.unwrap();
    }
    for _ in 0..count {
        let submit = admin(None, submit("atlas", 1, "x"));
        let id = submitted(client.propose(submit).await.unwrap());
        let cancelled = client.propose(admin(None, Command::Cancel { id })).await;
        cancelled.unwrap().unwrap();
    }
}

fn segments(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|e| e == "seg"));
    files
        .map(|file| (file.clone(), fs::read(file).unwrap()))
        .collect()
}

fn counts(cluster: &Cluster, id: VoterId) -> SegmentCounts {
    cluster.app(id).account().unwrap().segments
}

/// Returns a cluster with history and a stopped follower, with the segments that the follower's last snapshot names.
async fn with_history() -> (Cluster, VoterId, PathBuf, BTreeMap<PathBuf, Vec<u8>>) {
    let mut cluster = Cluster::start_with_segments(20, 4).await;
    let client = cluster.client("c1");
    history(&client, 40).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let folder = folder_of(cluster.folder.path(), follower);
    until("snapshots of the follower", || async {
        fs::read_dir(folder.join("snapshots")).is_ok_and(|files| files.count() == 2)
    })
    .await;
    cluster.stop_member(follower).await;
    let segments_folder = folder.join("segments");
    // Segments outside the snapshot are removed at a start; they do not count as lost.
    cluster.restart_member(follower).await;
    cluster.stop_member(follower).await;
    let whole = segments(&segments_folder);
    assert!(whole.len() >= 3, "{:?}", whole.keys());
    (cluster, follower, segments_folder, whole)
}

/// Two segments that every snapshot names.
fn oldest(whole: &BTreeMap<PathBuf, Vec<u8>>) -> [(&PathBuf, &Vec<u8>); 2] {
    let ended = |n: u32| {
        let name = format!("ended-{n:08}-");
        let mut files = whole.iter();
        files
            .find(|(file, _)| file.to_str().unwrap().contains(&name))
            .unwrap()
    };
    [ended(0), ended(1)]
}

async fn until_whole(what: &str, whole: &BTreeMap<PathBuf, Vec<u8>>) {
    until(what, || async {
        whole
            .iter()
            .all(|(file, bytes)| fs::read(file).is_ok_and(|found| found == *bytes))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_found_by_reading_all_of_them_and_replaced() {
    let (mut cluster, follower, _, whole) = with_history().await;
    cluster.scrub = Some(ScrubSettings {
        segment_interval: Duration::from_millis(5),
        round_interval: Duration::from_millis(50),
    });
    cluster.restart_member(follower).await;
    until("a round over all files", || async {
        counts(&cluster, follower).checked > whole.len() as u64
    })
    .await;
    assert_eq!(counts(&cluster, follower).replaced, 0);
    let victims = oldest(&whole);
    for (file, bytes) in &victims {
        let mut flipped = bytes.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        fs::write(file, flipped).unwrap();
    }
    until_whole("what was damaged is whole again", &whole).await;
    // The file is present a moment before it is counted.
    until("both are counted", || async {
        counts(&cluster, follower).replaced >= 2
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_missing_at_the_start_is_brought_from_another_member() {
    let (mut cluster, follower, folder, whole) = with_history().await;
    let victims = oldest(&whole);
    fs::remove_file(victims[0].0).unwrap();
    let (file, cut) = victims[1];
    fs::write(file, &cut[..cut.len() - 1]).unwrap();
    cluster.restart_member(follower).await;
    until_whole("missing files are there again", &whole).await;
    until("they are missing no more", || async {
        let SegmentCounts {
            missing, replaced, ..
        } = counts(&cluster, follower);
        (missing, replaced >= 2) == (0, true)
    })
    .await;
    assert!(segments(&folder).len() >= whole.len());
    cluster.stop().await;
}

/// A segment that no member has does not stop the checks of the others, and is requested again.
#[tokio::test(flavor = "multi_thread")]
async fn missing_segment_is_retried_without_blocking() {
    let (mut cluster, follower, _, whole) = with_history().await;
    let [(lost, lost_bytes), (damaged, damaged_bytes)] = oldest(&whole);
    let at = |id: VoterId| {
        let folder = folder_of(cluster.folder.path(), id).join("segments");
        folder.join(lost.file_name().unwrap())
    };
    let everywhere: Vec<PathBuf> = (1..=3).map(at).collect();
    for file in &everywhere {
        until("everybody has it", || async { file.exists() }).await;
        fs::remove_file(file).unwrap();
    }
    cluster.scrub = Some(ScrubSettings {
        segment_interval: Duration::from_millis(5),
        round_interval: Duration::from_millis(50),
    });
    cluster.restart_member(follower).await;
    until("the others are read", || async {
        counts(&cluster, follower).checked > whole.len() as u64
    })
    .await;
    let mut flipped = damaged_bytes.clone();
    flipped[0] ^= 1;
    fs::write(damaged, flipped).unwrap();
    until("what was damaged is replaced", || async {
        fs::read(damaged).is_ok_and(|found| found == *damaged_bytes)
    })
    .await;
    assert_eq!(counts(&cluster, follower).missing, 1);
    assert!(!lost.exists());
    // Another member has the segment again.
    let other = everywhere.iter().find(|file| *file != lost).unwrap();
    fs::write(other, lost_bytes).unwrap();
    until_whole("what was missing is brought", &whole).await;
    until("nothing is missing", || async {
        counts(&cluster, follower).missing == 0
    })
    .await;
    cluster.stop().await;
}
