//! A data directory with commands of the fifth schema, a snapshot of the sixth format and segments of the
//! first two versions opens, and goes on. `fixtures/quorum/v7/ORIGIN.md` says what is in it.
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

fn seventh() -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/quorum/v7"
    ))
    .to_owned()
}

fn copied() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in ["", "snapshots", "segments"] {
        let to = folder.path().join(part);
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(seventh().join("data-dir").join(part)).unwrap() {
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
    assert_eq!(applied.map(|id| id.index), Some(228));
    assert_eq!(membership.membership().voter_ids().count(), 3);
    assert_eq!(replica.revision(), Revision(595));
    let committed = data.log.read_committed().await.unwrap();
    assert_eq!(committed.map(|id| id.index), Some(283));
    let entries = data.log.try_get_log_entries(229..284).await.unwrap();
    assert_eq!(entries.len(), 55);
    replica.apply(entries).await.unwrap();
    assert_eq!(replica.revision(), Revision(727));

    let log = std::fs::read(seventh().join("log.postcard")).unwrap();
    let log: Vec<Envelope> = postcard::from_bytes(&log).unwrap();
    let (rows, bytes) = (8, 1 << 20);
    let mut whole = State::with_bounds(Policy::default(), Bounds { rows, bytes });
    // As the entries of the directory have them: three commands each, behind the one that says who the
    // members are.
    for (position, envelope) in log.iter().enumerate() {
        let _ = whole.apply(position as u64 / 3 + 1, envelope);
    }
    assert_eq!(replica.digest(), whole.digest());

    // From segments of then, of both versions: those of the last two were behind the snapshot.
    for (id, state, says_demand) in [
        (4, AllocationState::Completed, false),
        (65, AllocationState::Completed, true),
        (66, AllocationState::Completed, false),
        (80, AllocationState::Completed, false),
        (88, AllocationState::Completed, true),
    ] {
        let record = record(&replica, id).await;
        assert_eq!((record.id, record.state), (AllocationId(id), state));
        assert_eq!(!record.spec.demand.is_empty(), says_demand, "{id}");
    }
    // What the log makes anew are the very files of then.
    let segments = data.snapshots.segments();
    segments.make_durable().unwrap();
    for file in std::fs::read_dir(seventh().join("segments")).unwrap() {
        let file = file.unwrap();
        let made = folder.path().join("segments").join(file.file_name());
        let (made, then) = (std::fs::read(made), std::fs::read(file.path()));
        assert_eq!(made.unwrap(), then.unwrap(), "{:?}", file.file_name());
    }
    segments.close().await;
    data.log.close().await.unwrap();
}
