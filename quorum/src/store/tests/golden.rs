//! Format 1: the golden data directory in `fixtures/quorum/format-1` opens, and this version writes its bytes.
//!
//! `just bless` rewrites the directory, which is allowed until the first release. See `../../../0004-formats.md`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod script;

use crate::{
    platform::Platform,
    raft::types::{Batch, Entry},
    state_machine::replica::Replica,
    store::{
        snapshot::SnapshotContent,
        writer::{LOG, META},
        *,
    },
};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Envelope, UnixMillis,
    membership::Incarnation,
    view::{Answer, Query},
};
use openraft::{
    BasicNode, CommittedLeaderId, EntryPayload, LogId, Membership, RaftLogReader as _,
    RaftSnapshotBuilder as _, Vote,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use redb::{Database, ReadableDatabase as _, ReadableTable as _};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Commands in a log entry.
const BATCH: usize = 3;
/// Last entry in the snapshot, and first entry that the log keeps.
const SNAPSHOT_AT: u64 = 40;
const LOG_FROM: u64 = 31;

fn golden() -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/quorum/format-1"
    ))
    .to_owned()
}

fn ground() -> Platform {
    Platform {
        segment_bounds: script::BOUNDS,
        ..Platform::default()
    }
}

fn open(folder: &Path) -> Result<DataDir, OpenError> {
    DataDir::open_on(&ground(), folder, "golden", 1)
}

async fn close(data: DataDir) {
    data.snapshots.segments().make_durable().unwrap();
    data.snapshots.segments().close().await;
    data.log.close().await.unwrap();
}

fn id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(2, 1), index)
}

fn entries(commands: &[Envelope]) -> Vec<Entry> {
    let members = Membership::new(
        vec![[1].into()],
        BTreeMap::from([(1, BasicNode::new("10.0.0.1:7400"))]),
    );
    let payloads = commands.chunks(BATCH).map(|batch| {
        let batch = Batch(batch.to_vec().into());
        EntryPayload::Normal(batch)
    });
    let payloads = std::iter::once(EntryPayload::Membership(members)).chain(payloads);
    (0..)
        .zip(payloads)
        .map(|(index, payload)| Entry {
            log_id: id(index),
            payload,
        })
        .collect()
}

/// Writes the data directory as a member does.
async fn write(folder: &Path) {
    let data = open(folder).unwrap();
    data.directory_incarnation.join(Incarnation::FIRST).unwrap();
    data.directory_incarnation.mark_caught_up().unwrap();
    let mut log = data.log.clone();
    log.save_vote(&Vote::new_committed(2, 1)).await.unwrap();
    let entries = entries(&script::commands());
    let last = entries.last().unwrap().log_id;
    log.blocking_append(entries.clone()).await.unwrap();
    log.save_committed(Some(last)).await.unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    let (covered, rest) = entries.split_at(SNAPSHOT_AT as usize + 1);
    replica.apply(covered.to_vec()).await.unwrap();
    replica.build_snapshot().await.unwrap();
    log.purge(id(LOG_FROM - 1)).await.unwrap();
    replica.apply(rest.to_vec()).await.unwrap();
    close(data).await;
}

/// Files of a folder and its subfolders, by their relative paths.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in ["", "snapshots", "segments"] {
        for entry in std::fs::read_dir(folder.join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Copies the golden directory: opening a directory changes its log file.
fn copied() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files(&golden().join("data-dir")) {
        let to = folder.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, bytes).unwrap();
    }
    folder
}

type Rows<K> = Vec<(K, Vec<u8>)>;

/// Rows of both tables of a log file.
fn rows(folder: &Path) -> (Rows<u64>, Rows<String>) {
    let database = Database::open(folder.join("log.redb")).unwrap();
    let read = database.begin_read().unwrap();
    let (log, meta) = (
        read.open_table(LOG).unwrap(),
        read.open_table(META).unwrap(),
    );
    let log = log.iter().unwrap().map(|row| {
        let (key, value) = row.unwrap();
        (key.value(), value.value().to_vec())
    });
    let meta = meta.iter().unwrap().map(|row| {
        let (key, value) = row.unwrap();
        (key.value().to_owned(), value.value().to_vec())
    });
    (log.collect(), meta.collect())
}

/// Describes the state, one line for each record that `state.txt` keeps.
fn describe(replica: &Replica) -> String {
    let mut text = String::new();
    let (revision, digest) = (replica.revision(), blake3::Hash::from(replica.digest()));
    writeln!(text, "revision {revision}\ndigest {digest}").unwrap();
    let state = replica.copy();
    for node in state.nodes() {
        let holder = node.holder.map(|holder| holder.allocation);
        writeln!(
            text,
            "node {} {:?} holder {holder:?} in {}",
            node.id, node.lifecycle, node.current
        )
        .unwrap();
    }
    for project in state.projects() {
        writeln!(text, "project {} uses {:?}", project.path, project.subtree).unwrap();
    }
    for allocation in state.live_allocations() {
        writeln!(
            text,
            "allocation {} {} attempt {}",
            allocation.id, allocation.state, allocation.attempt
        )
        .unwrap();
    }
    for segment in state.segments() {
        writeln!(text, "segment {} rows {}", segment.id, segment.rows).unwrap();
    }
    let facts = Query::UsageRecords {
        after: 0,
        limit: 1_000,
        since: UnixMillis(0),
    };
    let audit = Query::Audit {
        after: 0,
        limit: 1_000,
    };
    let counts = match (replica.query(&facts), replica.query(&audit)) {
        (Answer::UsageRecords(facts, _), Answer::Audit(audit)) => (facts.len(), audit.len()),
        other => panic!("{other:?}"),
    };
    writeln!(text, "facts {} audit {}", counts.0, counts.1).unwrap();
    text
}

#[tokio::test]
async fn golden_directory_opens() {
    let folder = copied();
    let mut data = open(folder.path()).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    let (applied, membership) = replica.applied_state().await.unwrap();
    assert_eq!(applied, Some(id(SNAPSHOT_AT)));
    assert_eq!(membership.membership().voter_ids().collect::<Vec<_>>(), [1]);
    assert_eq!(data.directory_incarnation.current(), Incarnation::FIRST);
    let committed = data.log.read_committed().await.unwrap().unwrap();
    let rest = SNAPSHOT_AT + 1..committed.index + 1;
    let entries = data.log.try_get_log_entries(rest).await.unwrap();
    for results in replica.apply(entries).await.unwrap() {
        assert!(results.0.iter().all(Result::is_ok), "{results:?}");
    }
    let expected = std::fs::read_to_string(golden().join("state.txt")).unwrap();
    assert_eq!(describe(&replica), expected);
    close(data).await;
}

/// A difference means that the format has changed: see the decision record before blessing it.
#[tokio::test]
async fn current_code_writes_the_golden_bytes() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    if std::env::var_os("LATTICE_BLESS").is_some() {
        bless(folder.path()).await;
    }
    let (mut written, mut kept) = (files(folder.path()), files(&golden().join("data-dir")));
    // The page layout of the database is arbitrary, so only its rows are compared.
    for files in [&mut written, &mut kept] {
        files.remove(Path::new("log.redb")).unwrap();
    }
    let names = |files: &BTreeMap<PathBuf, _>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&written), names(&kept));
    for (name, bytes) in written {
        assert!(kept[&name] == bytes, "{} has other bytes", name.display());
    }
    assert_eq!(rows(folder.path()), rows(copied().path()));
}

async fn bless(written: &Path) {
    let to = golden().join("data-dir");
    for part in ["snapshots", "segments"] {
        let _ = std::fs::remove_dir_all(to.join(part));
        std::fs::create_dir_all(to.join(part)).unwrap();
    }
    for (name, bytes) in files(written) {
        std::fs::write(to.join(name), bytes).unwrap();
    }
    let folder = copied();
    let data = open(folder.path()).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    let entries = entries(&script::commands());
    let rest = entries.into_iter().skip(SNAPSHOT_AT as usize + 1);
    replica.apply(rest.collect::<Vec<_>>()).await.unwrap();
    std::fs::write(golden().join("state.txt"), describe(&replica)).unwrap();
    close(data).await;
}

/// Snapshot plus log must give the same state as the whole log, wherever the member took its snapshot.
#[tokio::test]
async fn golden_log_gives_the_golden_state() {
    let folder = copied();
    let data = open(folder.path()).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    let entries = entries(&script::commands());
    let rest = entries.iter().skip(SNAPSHOT_AT as usize + 1).cloned();
    replica.apply(rest.collect::<Vec<_>>()).await.unwrap();
    let mut whole = State::with_bounds(Default::default(), script::BOUNDS);
    for (position, envelope) in script::commands().iter().enumerate() {
        let index = position / BATCH + 1;
        whole.apply(index as u64, envelope).unwrap();
    }
    assert_eq!(replica.digest(), whole.digest());
    close(data).await;
}

/// Opens an altered copy, which must be refused with this text and stay unchanged.
fn refused(folder: &TempDir, named: &Path, found: u32) {
    let before = files(folder.path());
    let error = open(folder.path()).unwrap_err();
    let expected = format!(
        "{} has format {found}; this version of Lattice reads format 1. Nothing was changed. \
         Start the version that wrote it; or, while the other members are up and have a leader, \
         move the data directory away and start again",
        named.display()
    );
    let text = error.to_string();
    assert!(text.starts_with(&expected), "{text}");
    let after = files(folder.path());
    assert!(before == after, "the directory was changed");
}

#[tokio::test]
async fn refuses_a_directory_of_another_format() {
    let folder = copied();
    let marker = folder.path().join("FORMAT");
    let ours = std::fs::read_to_string(&marker).unwrap();
    for found in [0, 2, 7] {
        let other = ours.replace(r#""format":1"#, &format!(r#""format":{found}"#));
        std::fs::write(&marker, other).unwrap();
        refused(&folder, folder.path(), found);
    }
    // Another format may have another marker.
    std::fs::write(&marker, r#"{"format":9,"layout":"other"}"#).unwrap();
    refused(&folder, folder.path(), 9);
}

#[tokio::test]
async fn refuses_a_snapshot_of_another_format() {
    let folder = copied();
    let snapshots = folder.path().join("snapshots");
    let file = files(folder.path()).into_keys();
    let mut file = file.filter(|file| file.starts_with("snapshots"));
    let file = folder.path().join(file.next().unwrap());
    let ours = std::fs::read(&file).unwrap();
    let mut frame = ours.clone();
    frame[8] = 3;
    std::fs::write(&file, frame).unwrap();
    // The log is opened first, and opening writes to its file.
    let text = open(folder.path()).unwrap_err().to_string();
    let expected = |found: u16| {
        let file = file.display();
        format!("{file} has format {found}; this version of Lattice reads format 1. ")
    };
    assert!(text.starts_with(&expected(3)), "{text}");

    std::fs::write(&file, ours).unwrap();
    let stored = SnapshotDir::open(&ground(), &snapshots, None).unwrap();
    let SnapshotContent { meta, state } = stored.load().unwrap().unwrap();
    let mut state = state.to_vec();
    state[8] = 4;
    stored.store(&meta, &state).unwrap();
    let text = open(folder.path()).unwrap_err().to_string();
    assert!(text.starts_with(&expected(4)), "{text}");
}
