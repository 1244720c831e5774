//! A data directory with commands of the sixth schema, a snapshot of the seventh format and segments of version 3
//! opens, and goes on. `fixtures/quorum/v8/ORIGIN.md` says what is in it.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::replica::Replica;
use lattice_quorum_state::{Bounds, Policy, State};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Envelope, Revision,
    view::{Answer, Query},
};
use openraft::{
    RaftLogReader,
    storage::{RaftLogStorage, RaftStateMachine},
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn eighth() -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/quorum/v8"
    ))
    .to_owned()
}

fn copied() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in ["", "snapshots", "segments"] {
        let to = folder.path().join(part);
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(eighth().join("data-dir").join(part)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
    }
    folder
}

async fn record(replica: &Replica, id: u64) -> Box<Allocation> {
    let id = AllocationId(id);
    match replica.answer(&Query::Allocation { id }).await.unwrap() {
        Answer::Allocation(Some(record)) => record,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_snapshot_the_segments_and_the_log_behind_them_give_the_state_of_then() {
    let folder = copied();
    let mut data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let marker = std::fs::read_to_string(folder.path().join("FORMAT")).unwrap();
    assert!(
        marker.contains(&format!(r#""format":{FORMAT},"#)),
        "{marker}"
    );
    let mut replica = Replica::open(data.snapshots.clone());
    let (applied, membership) = replica.applied_state().await.unwrap();
    assert_eq!(applied.map(|id| id.index), Some(300));
    assert_eq!(membership.membership().voter_ids().count(), 3);
    assert_eq!(replica.revision(), Revision(243));
    let committed = data.log.read_committed().await.unwrap();
    assert_eq!(committed.map(|id| id.index), Some(365));
    let entries = data.log.try_get_log_entries(301..366).await.unwrap();
    assert_eq!(entries.len(), 65);
    replica.apply(entries).await.unwrap();
    assert_eq!(replica.revision(), Revision(346));

    let log = std::fs::read(eighth().join("log.postcard")).unwrap();
    let log: Vec<Envelope> = postcard::from_bytes(&log).unwrap();
    let (rows, bytes) = (4, 1 << 20);
    let mut whole = State::with_bounds(Policy::default(), Bounds { rows, bytes });
    // As the entries of the directory have them: three commands each, behind the one that says who the
    // members are.
    for (position, envelope) in log.iter().enumerate() {
        let _ = whole.apply(position as u64 / 3 + 1, envelope);
    }
    assert_eq!(replica.digest(), whole.digest());

    // From segments of then, and from those that were behind the snapshot.
    for (id, state) in [
        (97, AllocationState::Held),
        (209, AllocationState::Checkpointing),
        (219, AllocationState::Completed),
        (220, AllocationState::Failed),
    ] {
        let record = record(&replica, id).await;
        assert_eq!((record.id, record.state), (AllocationId(id), state));
    }
    // What the log makes anew are the very files of then.
    let segments = data.snapshots.segments();
    segments.make_durable().unwrap();
    for file in std::fs::read_dir(eighth().join("segments")).unwrap() {
        let file = file.unwrap();
        let made = folder.path().join("segments").join(file.file_name());
        let (made, then) = (std::fs::read(made), std::fs::read(file.path()));
        assert_eq!(made.unwrap(), then.unwrap(), "{:?}", file.file_name());
    }
    segments.close().await;
    data.log.close().await.unwrap();
}
