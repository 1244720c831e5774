//! A data directory with commands of the third schema and a snapshot of the fourth format opens, and
//! goes on. `fixtures/quorum/v5/ORIGIN.md` says what is in it.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::replica::Replica;
use lattice_quorum_state::State;
use lattice_quorum_types::{Envelope, Revision};
use openraft::{
    RaftLogReader,
    storage::{RaftLogStorage, RaftStateMachine},
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fifth() -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/quorum/v5"
    ))
    .to_owned()
}

fn copied() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("snapshots")).unwrap();
    for file in [
        "FORMAT",
        "log.redb",
        "snapshots/00000000000000000034-1.snap",
    ] {
        let from = fifth().join("data-dir").join(file);
        std::fs::copy(from, folder.path().join(file)).unwrap();
    }
    folder
}

#[tokio::test]
async fn the_snapshot_and_the_log_behind_it_give_the_state_of_then() {
    let folder = copied();
    let mut data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let marker = std::fs::read_to_string(folder.path().join("FORMAT")).unwrap();
    assert!(marker.contains(r#""format":7"#), "{marker}");
    let mut replica = Replica::open(data.snapshots.clone());
    let (applied, membership) = replica.applied_state().await.unwrap();
    assert_eq!(applied.map(|id| id.index), Some(34));
    assert_eq!(membership.membership().voter_ids().count(), 3);
    let committed = data.log.read_committed().await.unwrap();
    assert_eq!(committed.map(|id| id.index), Some(69));
    let entries = data.log.try_get_log_entries(35..70).await.unwrap();
    assert_eq!(entries.len(), 35);
    replica.apply(entries).await.unwrap();
    assert_eq!(replica.revision(), Revision(183));

    let log = std::fs::read(fifth().join("log.postcard")).unwrap();
    let log: Vec<Envelope> = postcard::from_bytes(&log).unwrap();
    // As the entries of the directory have them: three commands each, from the third entry on, but
    // for a leader's own.
    let mut whole = State::new();
    for (position, envelope) in log.iter().enumerate() {
        let batch = position as u64 / 3;
        let index = batch + 2 + u64::from(batch >= 40);
        let _ = whole.apply(index, envelope);
    }
    assert_eq!(replica.digest(), whole.digest());
    data.log.close().await.unwrap();
}
