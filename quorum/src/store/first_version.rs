//! A data directory of the first version opens, and goes on. `fixtures/quorum/v1/ORIGIN.md` says
//! what is in it.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    replica::Replica,
    types::{Batch, Entry},
};
use lattice_quorum_types::{
    AllocationState, Command, Envelope, UnixMillis, VclusterName,
    command::{Power, Principal, SCHEMA},
    view::{Answer, Query},
};
use openraft::{
    EntryPayload, LogId, RaftLogReader, RaftSnapshotBuilder,
    storage::{RaftLogStorageExt, RaftStateMachine},
};
use std::path::Path;
use tempfile::TempDir;

/// Git keeps no empty folders, so `snapshots/` is not copied: it is made at opening.
fn copied() -> TempDir {
    let from = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/quorum/v1/data-dir"
    );
    let folder = tempfile::tempdir().unwrap();
    for file in ["FORMAT", "log.redb"] {
        std::fs::copy(Path::new(from).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn marker(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("FORMAT")).unwrap()
}

async fn entries(log: &mut LogStore) -> Vec<Entry> {
    log.try_get_log_entries(0..).await.unwrap()
}

fn envelopes(entries: &[Entry]) -> impl Iterator<Item = &Envelope> {
    entries.iter().flat_map(|entry| match &entry.payload {
        EntryPayload::Normal(Batch(envelopes)) => envelopes.as_slice(),
        _ => &[],
    })
}

fn hot(replica: &Replica) -> Box<lattice_quorum_types::view::Hot> {
    match replica.query(&Query::Hot) {
        Answer::Hot(hot) => hot,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_log_is_read_and_gives_the_state_of_then() {
    let folder = copied();
    assert!(marker(&folder).contains(r#""format":1"#));
    let mut data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let read = entries(&mut data.log).await;
    assert!(!read.is_empty());
    assert!(envelopes(&read).all(|envelope| envelope.schema == 1));
    let mut replica = Replica::open(data.snapshots.clone());
    let answers = replica.apply(read.clone()).await.unwrap();
    let results = answers.into_iter().flat_map(|answer| answer.0);
    let (mut good, mut refused) = (0, 0);
    for result in results {
        match result {
            Ok(_) => good += 1,
            Err(refusal) => {
                println!("refused: {refusal}");
                refused += 1;
            }
        }
    }
    let hot = hot(&replica);
    println!(
        "{} entries, {good} commands, {refused} refused; revision {}, {} nodes, {} projects, {} \
         live allocations",
        read.len(),
        hot.revision.0,
        hot.nodes.len(),
        hot.projects.len(),
        hot.allocations.len()
    );
    // What the first version's leader let into its log is accepted again.
    assert_eq!(refused, 0);
    assert!(good > 0 && !hot.nodes.is_empty() && !hot.projects.is_empty());
    // By the rules of then: nothing is known of certificates, and nothing is in the audit.
    let nobody = Answer::Certificates(Vec::new());
    assert_eq!(replica.query(&Query::Certificates), nobody);
    let (after, limit) = (0, 10);
    let audit = replica.query(&Query::Audit { after, limit });
    assert_eq!(audit, Answer::Audit(Vec::new()));
    data.log.close().await.unwrap();
}

#[tokio::test]
async fn the_directory_becomes_one_of_this_format_and_holds_both() {
    let folder = copied();
    let data = DataDir::open(folder.path(), "demo", 1).unwrap();
    // Before anything new is written: a build that reads format 1 alone refuses this number.
    assert!(
        marker(&folder).contains(r#""format":7"#),
        "{}",
        marker(&folder)
    );
    let mut log = data.log;
    let before = entries(&mut log).await;
    let last = before.last().unwrap().log_id;
    let command = Command::RegisterNode {
        node: "new-1".parse().unwrap(),
        vcluster: VclusterName::new("main").unwrap(),
    };
    let envelope = Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "root".to_owned(),
            power: Power::Admin,
        },
        key: None,
        at: UnixMillis(0),
        fence: None,
        command,
    };
    let added = Entry {
        log_id: LogId::new(last.leader_id, last.index + 1),
        payload: EntryPayload::Normal(Batch(vec![envelope].into())),
    };
    log.blocking_append([added.clone()]).await.unwrap();
    log.close().await.unwrap();
    drop(log);

    let data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let mut log = data.log;
    let mut after = entries(&mut log).await;
    assert_eq!(after.pop(), Some(added));
    assert_eq!(after, before);
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_member_that_upgrades_early_and_one_that_upgrades_late_agree() {
    let folder = copied();
    let mut data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let read = entries(&mut data.log).await;
    let mut whole = Replica::open(data.snapshots.clone());
    whole.apply(read.clone()).await.unwrap();
    // The other one has a snapshot in the middle, and goes on from there.
    let (first, second) = read.split_at(read.len() / 2);
    let mut half = Replica::open(data.snapshots.clone());
    half.apply(first.to_vec()).await.unwrap();
    half.build_snapshot().await.unwrap();
    data.log.close().await.unwrap();
    drop(data);
    let data = DataDir::open(folder.path(), "demo", 1).unwrap();
    let mut again = Replica::open(data.snapshots.clone());
    again.apply(second.to_vec()).await.unwrap();
    assert_eq!(again.digest(), whole.digest());
    let ended = hot(&again);
    let live = ended.allocations.iter();
    assert!(live.clone().all(|a| a.state != AllocationState::Completed));
    data.log.close().await.unwrap();
}
