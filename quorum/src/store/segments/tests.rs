//! Crashes between sealing and snapshot, and damaged files.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    platform::HostFiles,
    raft::types::{Batch, Entry},
    state_machine::replica::{QueryFault, Replica},
    store::DataDir,
};
use lattice_quorum_state::{SegmentLimits, Table};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Envelope, ProjectPath, UnixMillis, VclusterName,
    VoterId,
    command::{Principal, Privilege, SCHEMA},
    limit::Limits,
    spec::{AllocationSpec, Workload},
    view::{Answer, Query},
};
use openraft::{
    BasicNode, CommittedLeaderId, EntryPayload, LogId, Membership, RaftSnapshotBuilder as _,
    storage::RaftStateMachine as _,
};
use redb::{Database, DatabaseError};
use tempfile::TempDir;

/// Ground with segments of four rows, on these files.
fn ground(files: Arc<dyn Files>) -> Platform {
    let (rows, bytes) = (4, 1 << 20);
    Platform {
        files,
        segment_bounds: SegmentLimits { rows, bytes },
        ..Platform::default()
    }
}

fn open_on(folder: &TempDir, ground: &Platform) -> Result<DataDir, OpenError> {
    DataDir::open_on(ground, folder.path(), "test", 1)
}

fn open(folder: &TempDir) -> Result<DataDir, OpenError> {
    open_on(folder, &ground(Arc::new(HostFiles)))
}

async fn close(data: &DataDir) {
    data.snapshots.segments().close().await;
    data.log.close().await.unwrap();
}

fn entry(index: u64, commands: Vec<Command>) -> Entry {
    let envelope = |command| Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: UnixMillis(1_800_000_000_000 + index),
        fence: None,
        command,
    };
    let batch: Vec<_> = commands.into_iter().map(envelope).collect();
    Entry {
        log_id: LogId::new(CommittedLeaderId::new(1, 1), index),
        payload: EntryPayload::Normal(Batch(batch.into())),
    }
}

/// A project, followed by allocations that end before they start, one per entry.
fn log(ended: u64) -> Vec<Entry> {
    let path = ProjectPath::new("t").unwrap();
    let limits = Limits {
        max_nodes: Some(10),
        max_concurrent_allocations: None,
    };
    let mut log = vec![entry(
        0,
        vec![
            Command::CreateProject {
                path: path.clone(),
                limits: Some(limits),
                admins: Vec::new(),
                description: String::new(),
            },
            Command::RegisterNode {
                node: "n1".parse().unwrap(),
                vcluster: VclusterName::new("main").unwrap(),
            },
        ],
    )];
    let spec = AllocationSpec::new(
        path,
        VclusterName::new("main").unwrap(),
        1,
        Workload {
            argv: vec!["true".to_owned()],
            ..Workload::default()
        },
    );
    log.extend((1..=ended).map(|n| {
        let id = AllocationId(n);
        let spec = Box::new(spec.clone());
        entry(n, vec![Command::Submit { spec }, Command::Cancel { id }])
    }));
    log
}

async fn apply(replica: &mut Replica, log: Vec<Entry>) {
    for results in replica.apply(log).await.unwrap() {
        assert!(results.0.iter().all(Result::is_ok), "{results:?}");
    }
}

/// Checks the records of `ended` allocations, all of them cancelled.
async fn check(replica: &Replica, ended: u64) {
    for id in (1..=ended).map(AllocationId) {
        match replica.answer(&Query::Allocation { id }).await.unwrap() {
            Answer::Allocation(Some(record)) => {
                assert_eq!((record.id, record.state), (id, AllocationState::Cancelled));
            }
            other => panic!("{id}: {other:?}"),
        }
    }
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    let mut files = HostFiles.list(&folder.path().join("segments")).unwrap();
    files.sort();
    files
}

/// Creates a directory with a snapshot of twenty ended allocations. Returns it with the state digest.
async fn with_snapshot() -> (TempDir, [u8; 32]) {
    let folder = tempfile::tempdir().unwrap();
    let data = open(&folder).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    apply(&mut replica, log(20)).await;
    replica.build_snapshot().await.unwrap();
    close(&data).await;
    (folder, replica.digest())
}

#[tokio::test]
async fn a_snapshot_brings_everything_that_it_names_to_disk() {
    let (folder, digest) = with_snapshot().await;
    let data = open(&folder).unwrap();
    let named: Vec<_> = {
        let replica = Replica::open(data.snapshots.clone());
        assert_eq!(replica.digest(), digest);
        check(&replica, 20).await;
        let state = replica.copy();
        state.segments().map(|segment| segment.id).collect()
    };
    assert!(named.iter().any(|id| id.table == Table::Ended));
    assert_eq!(files(&folder).len(), named.len());
    let bytes = std::fs::read_dir(folder.path().join("snapshots")).unwrap();
    assert_eq!(bytes.count(), 1);
    close(&data).await;
}

/// Segments are sealed, written or not, and the member is killed: the log seals the same segments again.
#[tokio::test]
async fn what_was_sealed_behind_the_snapshot_comes_again_with_the_log() {
    for written in [false, true] {
        let (folder, _) = with_snapshot().await;
        let data = open(&folder).unwrap();
        let mut replica = Replica::open(data.snapshots.clone());
        let before = files(&folder);
        apply(&mut replica, log(60).split_off(21)).await;
        if written {
            replica.segments().make_durable().unwrap();
            assert!(files(&folder).len() > before.len());
        }
        check(&replica, 60).await;
        let digest = replica.digest();
        close(&data).await;
        drop((data, replica));

        let data = open(&folder).unwrap();
        assert_eq!(files(&folder), before, "what no snapshot names is removed");
        let mut replica = Replica::open(data.snapshots.clone());
        check(&replica, 20).await;
        apply(&mut replica, log(60).split_off(21)).await;
        assert_eq!(replica.digest(), digest);
        check(&replica, 60).await;
        replica.build_snapshot().await.unwrap();
        check(&replica, 60).await;
        close(&data).await;
    }
}

#[tokio::test]
async fn unavailable_segment_is_named_and_nothing_changes() {
    for cut in [false, true] {
        let (folder, _) = with_snapshot().await;
        let victim = files(&folder).remove(0);
        let whole = std::fs::read(&victim).unwrap();
        match cut {
            false => std::fs::remove_file(&victim).unwrap(),
            true => std::fs::write(&victim, &whole[..whole.len() - 1]).unwrap(),
        }
        let before = files(&folder);
        let error = open(&folder).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, OpenError::Damaged { .. }), "{text}");
        assert!(text.contains(victim.to_str().unwrap()), "{text}");
        assert!(text.contains("a copy of this directory"), "{text}");
        assert_eq!(files(&folder), before);
        // Restored as the error text advises.
        std::fs::write(&victim, &whole).unwrap();
        let data = open(&folder).unwrap();
        check(&Replica::open(data.snapshots.clone()), 20).await;
        close(&data).await;
    }
}

/// One of three members: the others have the segment.
#[tokio::test]
async fn missing_segment_blocks_only_its_queries() {
    let folder = tempfile::tempdir().unwrap();
    let data = open(&folder).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    let members: BTreeMap<VoterId, BasicNode> =
        (1..=3).map(|n| (n, BasicNode::default())).collect();
    let voters = members.keys().copied().collect::<BTreeSet<_>>();
    let founded = Entry {
        log_id: LogId::new(CommittedLeaderId::new(1, 1), 21),
        payload: EntryPayload::Membership(Membership::new(vec![voters], members)),
    };
    apply(&mut replica, log(20)).await;
    apply(&mut replica, vec![founded]).await;
    replica.build_snapshot().await.unwrap();
    close(&data).await;
    drop((data, replica));

    let ended = |file: &&PathBuf| file.to_str().unwrap().contains("ended-00000000");
    let victim = files(&folder).iter().find(ended).unwrap().clone();
    let whole = std::fs::read(&victim).unwrap();
    std::fs::remove_file(&victim).unwrap();
    let data = open(&folder).unwrap();
    let replica = Replica::open(data.snapshots.clone());
    let missing = replica.segments().missing();
    assert_eq!(replica.segments().counts().missing, 1);
    // The error must not advise a restore of the cluster: another member has the segment.
    let state = replica.copy();
    let named = |segment: &&Segment| segment.id == missing[0];
    let segment = state.segments().find(named).unwrap();
    let reason = replica.segments().absence_reason(segment).unwrap();
    assert_eq!(reason.as_deref(), Some("it is missing"));
    let first = AllocationId(1);
    let asked = Query::Allocation { id: first };
    let fault = replica.answer(&asked).await.unwrap_err();
    assert!(matches!(fault, QueryFault::Segment(_)), "{fault}");
    assert!(fault.to_string().contains("it is missing here"), "{fault}");
    // Records outside the missing segment are answered.
    let last = Query::Allocation {
        id: AllocationId(20),
    };
    assert!(matches!(
        replica.answer(&last).await.unwrap(),
        Answer::Allocation(Some(_))
    ));
    replica.segments().put(&missing[0], &whole).unwrap();
    assert_eq!(replica.segments().missing(), []);
    check(&replica, 20).await;
    close(&data).await;
}

#[tokio::test]
async fn a_segment_with_a_flipped_bit_gives_no_answer_until_it_is_replaced() {
    let (folder, _) = with_snapshot().await;
    let ended = |file: &&PathBuf| file.to_str().unwrap().contains("ended-00000000");
    let victim = files(&folder).iter().find(ended).unwrap().clone();
    let whole = std::fs::read(&victim).unwrap();
    let mut flipped = whole.clone();
    flipped[40] ^= 1;
    std::fs::write(&victim, &flipped).unwrap();
    let data = open(&folder).unwrap();
    let replica = Replica::open(data.snapshots.clone());
    let id = AllocationId(1);
    let fault = replica.answer(&Query::Allocation { id }).await.unwrap_err();
    let QueryFault::Segment(fault) = fault else {
        panic!("{fault}")
    };
    assert_eq!((fault.id.table, fault.id.number), (Table::Ended, 0));
    let wrong = replica.segments().put(&fault.id, &flipped).unwrap_err();
    assert_eq!(wrong.kind(), io::ErrorKind::InvalidData);
    replica.segments().put(&fault.id, &whole).unwrap();
    check(&replica, 20).await;
    close(&data).await;
}

/// Files that fail to write segments.
#[derive(Debug)]
struct NoSegments;

impl Files for NoSegments {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        HostFiles.make_folder(path)
    }
    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        HostFiles.length(path)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        HostFiles.read(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        HostFiles.list(folder)
    }
    fn replace(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        match path.extension().is_some_and(|e| e == EXTENSION) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => HostFiles.replace(path, parts),
        }
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        HostFiles.remove(path)
    }
    fn database(&self, path: &Path, builder: redb::Builder) -> Result<Database, DatabaseError> {
        HostFiles.database(path, builder)
    }
}

#[tokio::test]
async fn there_is_no_snapshot_without_its_segments() {
    let folder = tempfile::tempdir().unwrap();
    let data = open_on(&folder, &ground(Arc::new(NoSegments))).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    apply(&mut replica, log(20)).await;
    assert!(replica.build_snapshot().await.is_err());
    assert!(data.snapshots.load().unwrap().is_none());
    // The segments are still read from memory.
    check(&replica, 20).await;
    close(&data).await;
}

#[tokio::test]
async fn snapshot_without_segments_is_not_installed() {
    let (from, _) = with_snapshot().await;
    let sent = open(&from).unwrap();
    let stored = sent.snapshots.load().unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = open(&folder).unwrap();
    let mut replica = Replica::open(data.snapshots.clone());
    let empty = replica.digest();
    let state = Box::new(stored.state.clone());
    let refused = replica.install_snapshot(&stored.meta, state).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("segment ended-00000000-"), "{text}");
    assert_eq!(replica.digest(), empty);
    assert!(data.snapshots.load().unwrap().is_none());
    let mut state = State::restore(&stored.state).unwrap();
    assert!(state.take_sealed().is_empty());
    for segment in state.segments() {
        assert!(!replica.segments().is_present(segment));
        let bytes = sent.snapshots.segments().read(&segment.id).unwrap();
        replica.segments().put(&segment.id, &bytes).unwrap();
        assert!(replica.segments().is_present(segment));
    }
    let state = Box::new(stored.state);
    replica.install_snapshot(&stored.meta, state).await.unwrap();
    check(&replica, 20).await;
    close(&data).await;
    close(&sent).await;
}
