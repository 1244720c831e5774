//! A data directory with commands of the fourth schema, a snapshot of the fifth format and segments of the
//! first version opens, and goes on. `fixtures/quorum/v6/ORIGIN.md` says what is in it.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::replica::Replica;
use lattice_quorum_state::{Bounds, Policy, State};
use lattice_quorum_types::{
    AllocationId, Envelope, Revision,
    view::{Answer, Query},
};
use openraft::{
    RaftLogReader,
    storage::{RaftLogStorage, RaftStateMachine},
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn sixth() -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/quorum/v6"
    ))
    .to_owned()
}

fn copied() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in ["", "snapshots", "segments"] {
        let to = folder.path().join(part);
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(sixth().join("data-dir").join(part)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
    }
    folder
}

#[tokio::test]
async fn the_snapshot_the_segments_and_the_log_behind_them_give_the_state_of_then() {
    let folder = copied();
    let mut data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let marker = std::fs::read_to_string(folder.path().join("FORMAT")).unwrap();
    assert!(marker.contains(r#""format":7"#), "{marker}");
    let mut replica = Replica::open(data.snapshots.clone());
    let (applied, membership) = replica.applied_state().await.unwrap();
    assert_eq!(applied.map(|id| id.index), Some(132));
    assert_eq!(membership.membership().voter_ids().count(), 3);
    let committed = data.log.read_committed().await.unwrap();
    assert_eq!(committed.map(|id| id.index), Some(144));
    let entries = data.log.try_get_log_entries(133..145).await.unwrap();
    assert_eq!(entries.len(), 12);
    replica.apply(entries).await.unwrap();
    assert_eq!(replica.revision(), Revision(387));

    let log = std::fs::read(sixth().join("log.postcard")).unwrap();
    let log: Vec<Envelope> = postcard::from_bytes(&log).unwrap();
    let (rows, bytes) = (8, 1 << 20);
    let mut whole = State::with_bounds(Policy::default(), Bounds { rows, bytes });
    // As the entries of the directory have them: three commands each, behind the one that says who the
    // members are.
    for (position, envelope) in log.iter().enumerate() {
        let _ = whole.apply(position as u64 / 3 + 1, envelope);
    }
    assert_eq!(replica.digest(), whole.digest());

    // From a segment of then.
    let id = AllocationId(4);
    match replica.answer(&Query::Allocation { id }).await.unwrap() {
        Answer::Allocation(Some(record)) => assert_eq!(record.id, id),
        other => panic!("{other:?}"),
    }
    data.snapshots.segments().close().await;
    data.log.close().await.unwrap();
}
