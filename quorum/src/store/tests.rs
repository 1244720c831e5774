#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod golden;

use super::*;
use crate::{
    raft::types::{Batch, Entry, StorageError, Types},
    state_machine::replica::Replica,
};
use openraft::{
    CommittedLeaderId, EntryPayload, LogId, RaftLogReader, RaftSnapshotBuilder, Vote,
    storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine},
    testing::{StoreBuilder, Suite},
};
use std::sync::Arc;
use tempfile::TempDir;

struct Builder;

impl StoreBuilder<Types, LogStore, Replica, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Replica), StorageError> {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::open(folder.path(), "test", 1).unwrap();
        let replica = Replica::open(data.snapshots);
        Ok((folder, data.log, replica))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_passes_the_suite_of_openraft() {
    let suite = || Suite::test_all(Builder).map_err(Box::new);
    tokio::task::spawn_blocking(suite).await.unwrap().unwrap();
}

fn id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}
fn entry(index: u64) -> Entry {
    Entry {
        log_id: id(index),
        payload: EntryPayload::Normal(Batch(Arc::new(Vec::new()))),
    }
}
fn open(folder: &TempDir) -> Result<DataDir, OpenError> {
    DataDir::open(folder.path(), "test", 1)
}
async fn fill(folder: &TempDir, entries: u64) {
    let data = open(folder).unwrap();
    let mut log = data.log;
    log.save_vote(&Vote::new(3, 2)).await.unwrap();
    for index in 0..entries {
        log.blocking_append([entry(index)]).await.unwrap();
    }
    log.save_committed(entries.checked_sub(1).map(id))
        .await
        .unwrap();
    log.close().await.unwrap();
}

#[tokio::test]
async fn log_vote_and_commit_point_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder, 100).await;
    let mut log = open(&folder).unwrap().log;
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(3, 2)));
    assert_eq!(log.read_committed().await.unwrap(), Some(id(99)));
    let state = log.get_log_state().await.unwrap();
    assert_eq!(
        (state.last_purged_log_id, state.last_log_id),
        (None, Some(id(99)))
    );
    let entries = log.try_get_log_entries(10..20).await.unwrap();
    assert_eq!(entries, (10..20).map(entry).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_member_that_led_does_not_lead_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for (saved, restored) in [
        (Vote::new_committed(3, 1), Vote::new(3, 1)),
        (Vote::new_committed(4, 2), Vote::new_committed(4, 2)),
    ] {
        let mut log = open(&folder).unwrap().log;
        log.save_vote(&saved).await.unwrap();
        assert_eq!(log.read_vote().await.unwrap(), Some(saved));
        log.close().await.unwrap();
        drop(log);
        let mut log = open(&folder).unwrap().log;
        assert_eq!(log.read_vote().await.unwrap(), Some(restored));
        log.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_log_refuses_writes() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(&folder).unwrap().log;
    log.close().await.unwrap();
    assert!(log.save_vote(&Vote::new(1, 1)).await.is_err());
}

#[tokio::test]
async fn a_directory_of_another_member_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder, 1).await;
    let other = DataDir::open(folder.path(), "test", 2).unwrap_err();
    assert!(
        matches!(
            other,
            OpenError::OtherOwner {
                found: 1,
                voter: 2,
                ..
            }
        ),
        "{other}"
    );
    let other = DataDir::open(folder.path(), "prod", 1).unwrap_err();
    assert!(
        other
            .to_string()
            .contains("belongs to voter 1 of cluster \"test\""),
        "{other}"
    );
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _first = open(&folder).unwrap();
    let second = open(&folder).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
}

#[tokio::test]
async fn a_missing_or_empty_log_is_not_a_new_beginning() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder, 3).await;
    let path = folder.path().join("log.redb");
    std::fs::write(&path, b"").unwrap();
    let text = open(&folder).unwrap_err().to_string();
    assert!(text.contains("log.redb is damaged: it is empty"), "{text}");
    std::fs::remove_file(&path).unwrap();
    let text = open(&folder).unwrap_err().to_string();
    assert!(
        text.contains("log.redb is damaged: it is missing"),
        "{text}"
    );
    assert!(text.contains("restore the file from a backup"), "{text}");
}

#[tokio::test]
async fn a_log_truncated_anywhere_is_refused_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder, 200).await;
    let path = folder.path().join("log.redb");
    let whole = std::fs::read(&path).unwrap();
    for part in 1..20 {
        let length = whole.len() * part / 20;
        std::fs::write(&path, &whole[..length]).unwrap();
        let text = open(&folder)
            .expect_err(&format!("{length} bytes"))
            .to_string();
        assert!(text.contains("log.redb is damaged"), "{length}: {text}");
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            length as u64,
            "it was changed"
        );
    }
}

#[tokio::test]
async fn a_flipped_byte_in_an_entry_is_found() {
    let row = row::encode(7, &entry(7)).unwrap();
    assert_eq!(row::decode::<Entry>(7, &row).unwrap(), entry(7));
    assert!(
        row::decode::<Entry>(8, &row)
            .unwrap_err()
            .contains("checksum")
    );
    for position in 0..row.len() {
        let mut bad = row.clone();
        bad[position] ^= 1;
        assert!(row::decode::<Entry>(7, &bad).is_err(), "byte {position}");
    }
    let mut newer = row.clone();
    newer[0] = 9;
    let text = row::decode::<Entry>(7, &newer).unwrap_err();
    assert!(text.contains("format 9"), "{text}");
}

#[tokio::test]
async fn snapshots_are_kept_twice_and_the_older_one_serves_when_it_can() {
    let folder = tempfile::tempdir().unwrap();
    {
        let data = open(&folder).unwrap();
        let mut replica = Replica::open(data.snapshots);
        for index in 0..3 {
            replica.apply([entry(index)]).await.unwrap();
            replica.build_snapshot().await.unwrap();
        }
        data.log.close().await.unwrap();
    }
    let snapshots = folder.path().join("snapshots");
    let mut names: Vec<_> = std::fs::read_dir(&snapshots)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    assert_eq!(names.len(), 2);
    std::fs::write(&names[1], b"LATSNAP\n\x01\0 broken").unwrap();
    let replica = Replica::open(open(&folder).unwrap().snapshots);
    assert_eq!(replica.applied(), Some(id(1)));
    // The log is purged beyond the older snapshot, which is thus unusable.
    {
        let mut log = open(&folder).unwrap().log;
        log.purge(id(2)).await.unwrap();
        log.close().await.unwrap();
    }
    let text = open(&folder).unwrap_err().to_string();
    assert!(text.contains("is damaged"), "{text}");
}
