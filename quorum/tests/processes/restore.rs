//! Backup under load, and a restore onto new machines, with real processes; refusals are tested in-process.

use crate::common::{
    self, Cluster, admin,
    changes::{alice, create, projects},
    create_project,
    process::Site,
    until,
};
use bytes::Bytes;
use futures::StreamExt;
use lattice_mesh::{Authority, Role, SystemClock};
use lattice_quorum::{App, Edges, OpenError, RestoreFailed, Settings, restore, verify_backup};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Revision, VoterId,
    audit::AuditAction,
    backup::{BackupHeader, BackupVerifier, RESTORER},
    command::{Principal, Privilege},
    membership::{Incarnation, MemberReport},
    view::{Answer, Query, WatchItem},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

async fn backup(client: &QuorumClient) -> (BackupHeader, Vec<u8>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = format!("backup-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let pieces = client.backup(alice(), key).await.unwrap();
    let pieces: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
    let (mut verifier, mut whole) = (BackupVerifier::new(), Vec::new());
    for piece in pieces {
        verifier.feed(&piece).unwrap();
        whole.extend_from_slice(&piece);
    }
    (verifier.finish().unwrap(), whole)
}

/// Returns the reports of all members, once all answer and have reached the same position.
async fn accounts(client: &QuorumClient, count: usize) -> Vec<MemberReport> {
    let found = Mutex::new(Vec::new());
    until("all members answer and are equally far", || async {
        let Ok(view) = client.quorum().await else {
            return false;
        };
        let all: Vec<_> = view.members.into_iter().filter_map(|m| m.account).collect();
        let is_even = all.windows(2).all(|pair| {
            pair[0].applied_index == pair[1].applied_index && pair[0].revision == pair[1].revision
        });
        let ready = view.leader.is_some() && all.len() == count && is_even;
        *found.lock().unwrap() = all;
        ready
    })
    .await;
    found.into_inner().unwrap()
}

fn client(site: &Site, id: &str) -> QuorumClient {
    common::client_of(&site.authority, id, site.addrs.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_ignores_old_cluster() {
    let mut site = Site::prepare("snapshot_every: 300\n");
    site.start_all();
    let old = client(&site, "c1");
    create(&old, "first").await;
    // The writers have history when the backup is taken, and continue after it.
    let (stop, acknowledged) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (client, stop, acknowledged) = (old.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("w{writer}-{n}");
                    let envelope = admin(Some(name.clone()), create_project(&name, 1));
                    let revision = client.propose(envelope).await.unwrap().unwrap().revision;
                    acknowledged.lock().unwrap().push((revision, name));
                }
            })
        })
        .collect();
    let count = || acknowledged.lock().unwrap().len();
    until("there is a history", || async { count() > 400 }).await;
    let before: Vec<(Revision, String)> = acknowledged.lock().unwrap().clone();
    let (header, bytes) = backup(&old).await;
    let counted = count();
    until("writes went on", || async { count() > counted + 50 }).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let all = acknowledged.lock().unwrap().clone();
    let newest_of_old = all.iter().map(|(revision, _)| *revision).max().unwrap();
    assert!(
        newest_of_old > header.revision,
        "nothing came after the backup"
    );
    assert!(
        before
            .iter()
            .all(|(revision, _)| *revision <= header.revision)
    );
    let file = site.folder.path().join("nightly.backup");
    std::fs::write(&file, &bytes).unwrap();
    for id in 1..=3 {
        site.kill(id);
        std::fs::rename(site.data_dir(id), left_over(&site, id)).unwrap();
        // Without a terminal, the restore must be confirmed by an option.
        let unconfirmed = site.run(id, &["restore", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&unconfirmed.stderr).into_owned();
        assert!(
            !unconfirmed.status.success() && said.contains("--yes"),
            "{said}"
        );
        assert!(!site.data_dir(id).exists(), "nothing was restored");
        let said = String::from_utf8_lossy(&unconfirmed.stdout).into_owned();
        let numbers = "highest allocation number 0";
        assert!(
            said.contains(numbers) && said.contains("the next allocation is 1000000001"),
            "{said}"
        );
        let done = site.run(id, &["restore", file.to_str().unwrap(), "--yes"]);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert!(said.contains("incarnation 2"), "{said}");
    }
    let made: BTreeSet<Vec<u8>> = (1..=3).map(|id| snapshot(&site.data_dir(id))).collect();
    assert_eq!(made.len(), 1, "members begin with different states");
    // A second restore into the same directory is refused.
    let again = site.run(1, &["restore", file.to_str().unwrap(), "--yes"]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        !again.status.success() && said.contains("is not empty"),
        "{said}"
    );
    site.start_all();
    let new = client(&site, "c2");
    let accounts_now = accounts(&new, 3).await;
    assert!(accounts_now.iter().all(|a| a.incarnation.number == 2));
    let origins: BTreeSet<u64> = accounts_now.iter().map(|a| a.incarnation.origin).collect();
    assert_eq!(origins.len(), 1);
    // The state contains everything up to the backup's revision, and nothing after it.
    let found = projects(&new).await;
    let expected: BTreeSet<String> = all
        .iter()
        .filter(|(revision, _)| *revision <= header.revision)
        .map(|(_, name)| name.clone())
        .chain(["first".to_owned()])
        .collect();
    assert_eq!(found, expected);
    // A watcher of the old cluster must start over.
    let mut watch = new.watch(newest_of_old);
    let item = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    assert!(matches!(item.unwrap(), Some(WatchItem::Compacted { .. })));
    create(&new, "restored").await;
    // A member of the old incarnation returns, with its own data and under its own name.
    site.kill(3);
    std::fs::rename(site.data_dir(3), site.folder.path().join("restored-3")).unwrap();
    std::fs::rename(left_over(&site, 3), site.data_dir(3)).unwrap();
    site.start(3);
    until("both sides say why they refuse each other", || async {
        let theirs = site.printed(3);
        let ours = site.printed(1) + &site.printed(2);
        ours.contains("belongs to incarnation 1 of cluster")
            && theirs.contains("incarnation 2 (restored")
    })
    .await;
    create(&new, "unmoved").await;
    let view = new.quorum().await.unwrap();
    let old_member = view.members.iter().find(|m| m.id == 3).unwrap();
    let fault = old_member.fault.as_deref().unwrap();
    assert!(fault.contains("incarnation 1"), "{fault}");
    let found = projects(&new).await;
    assert!(found.contains("unmoved") && found.contains("restored"));
    assert_eq!(found.len(), expected.len() + 2);
    // With its restored directory it is a member again.
    site.kill(3);
    std::fs::rename(site.data_dir(3), left_over(&site, 3)).unwrap();
    std::fs::rename(site.folder.path().join("restored-3"), site.data_dir(3)).unwrap();
    site.start(3);
    accounts(&new, 3).await;
    println!(
        "{} acknowledged before the backup ({} bytes), all there; {} after it, none there",
        before.len(),
        bytes.len(),
        all.len() - expected.len() + 1
    );
}

fn left_over(site: &Site, id: VoterId) -> PathBuf {
    site.folder.path().join(format!("old-{id}"))
}

/// Reads the newest snapshot of a directory.
fn snapshot(data_dir: &Path) -> Vec<u8> {
    let folder = std::fs::read_dir(data_dir.join("snapshots")).unwrap();
    let newest = folder.map(|entry| entry.unwrap().path()).max();
    std::fs::read(newest.unwrap()).unwrap()
}

/// Takes a backup of a small cluster, in a file.
async fn small() -> (tempfile::TempDir, PathBuf, BackupHeader, Arc<Authority>) {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "one").await;
    let (header, bytes) = backup(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.backup");
    std::fs::write(&file, bytes).unwrap();
    let query = Query::Audit {
        after: 0,
        limit: 1000,
    };
    let Answer::Audit(entries) = client.read(query).await.unwrap() else {
        panic!("no audit");
    };
    let made = entries
        .iter()
        .find(|e| matches!(e.action, AuditAction::BackedUp { .. }));
    let made = made.expect("that a backup was made is written down");
    assert_eq!(made.by.name, "alice");
    let authority = cluster.authority.clone();
    cluster.stop().await;
    (folder, file, header, authority)
}

fn settings(cluster: &str, id: VoterId, folder: &Path) -> Settings {
    let data = folder.join(format!("data-{id}"));
    let mut settings = Settings::new(cluster, id, common::any_port(), data);
    let addr = |id: VoterId| (id, format!("127.0.0.1:{}", 7000 + id).parse().unwrap());
    settings.members = (1..=3).map(addr).collect();
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_this_clusters_whole_backup_makes_no_directory() {
    let (folder, file, header, _) = small().await;
    assert_eq!(verify_backup(&file).unwrap(), header);
    let ours = settings(common::CLUSTER, 1, folder.path());
    let is_untouched = |settings: &Settings| !settings.data_dir.exists();
    let others = settings("elsewhere", 1, folder.path());
    let refused = restore(&others, &file, None).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("\"test\"") && text.contains("\"elsewhere\""),
        "{text}"
    );
    assert!(is_untouched(&ours));
    // Damage in the last part, and before it.
    let whole = std::fs::read(&file).unwrap();
    let damaged = folder.path().join("damaged.backup");
    let mut bytes = whole.clone();
    let middle = bytes.len() - header.parts.last().unwrap().bytes as usize / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let refused = restore(&ours, &damaged, None).await.unwrap_err();
    let name = format!(
        "part {:?} of the backup is damaged",
        header.parts.last().unwrap().name
    );
    assert!(refused.to_string().contains(&name), "{refused}");
    std::fs::write(&damaged, &whole[..whole.len() - 1]).unwrap();
    let refused = restore(&ours, &damaged, None).await.unwrap_err();
    assert!(
        refused.to_string().contains("is truncated in part"),
        "{refused}"
    );
    let mut newer = whole.clone();
    newer[8] = 200;
    std::fs::write(&damaged, &newer).unwrap();
    let refused = restore(&ours, &damaged, None).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("the backup has format 200; this version of Lattice reads format 1"),
        "{refused}"
    );
    let refused = restore(&ours, &file, Some(1)).await.unwrap_err();
    assert!(
        matches!(refused, RestoreFailed::OldIncarnation { given: 1, .. }),
        "{refused}"
    );
    let mut joins = ours.clone();
    joins.join = true;
    let refused = restore(&joins, &file, None).await.unwrap_err();
    assert!(matches!(refused, RestoreFailed::Joins), "{refused}");
    assert!(is_untouched(&ours));
    // Existing files stay unchanged too.
    std::fs::create_dir_all(&ours.data_dir).unwrap();
    std::fs::write(ours.data_dir.join("precious"), "x").unwrap();
    let refused = restore(&ours, &file, None).await.unwrap_err();
    assert!(
        matches!(refused, RestoreFailed::Data(OpenError::NotEmpty { .. })),
        "{refused}"
    );
    let left: Vec<_> = std::fs::read_dir(&ours.data_dir).unwrap().collect();
    assert_eq!(left.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_restored_alike_are_of_one_incarnation_and_others_are_not() {
    let (folder, file, header, _) = small().await;
    let made = async |id, members: &[VoterId], number| {
        let root = folder.path().join(format!("{members:?}-{number:?}"));
        let mut settings = settings(common::CLUSTER, id, &root);
        settings.members.retain(|id, _| members.contains(id));
        restore(&settings, &file, number).await.unwrap().incarnation
    };
    let first = made(1, &[1, 2, 3], None).await;
    assert_eq!(first.number, header.incarnation.number + 1);
    assert_eq!(made(2, &[1, 2, 3], None).await, first);
    assert_ne!(made(1, &[1, 2], None).await, first, "other members");
    assert_ne!(made(1, &[1, 2, 3], Some(7)).await, first, "another number");
    assert_eq!(header.incarnation, Incarnation::FIRST);
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_members_found_the_cluster_together_and_come_to_the_same_bytes() {
    let (folder, file, header, authority) = small().await;
    let (mut apps, mut members) = (Vec::new(), Vec::new());
    for id in 1..=3 {
        let settings = settings(common::CLUSTER, id, folder.path());
        restore(&settings, &file, None).await.unwrap();
        let edges = Edges {
            credentials: common::credentials(&authority, Role::Quorum, &id.to_string()),
            authority: Some(authority.clone()),
            clock: Arc::new(SystemClock),
        };
        let app = App::bind(settings, edges).await.unwrap();
        members.push((id, app.addr()));
        apps.push(app);
    }
    let digests: BTreeSet<_> = apps.iter().map(App::state_digest).collect();
    assert_eq!(digests.len(), 1, "members begin with different states");
    for app in &mut apps {
        app.start(members.clone()).await.unwrap();
    }
    let addrs = members.iter().map(|(_, addr)| *addr).collect();
    let client = common::client_of(&authority, "c9", addrs);
    assert!(projects(&client).await.contains("one"));
    create(&client, "two").await;
    let Answer::Revision(now) = client.read(Query::Revision).await.unwrap() else {
        panic!("no revision");
    };
    assert!(now.0 > header.revision.0 + 1_000_000, "{now}");
    until("all members at one digest", || async {
        let digests: BTreeSet<_> = apps.iter().map(App::state_digest).collect();
        digests.len() == 1
    })
    .await;
    let query = Query::Audit {
        after: header.audit_number,
        limit: 1000,
    };
    let Answer::Audit(entries) = client.read(query).await.unwrap() else {
        panic!("no audit");
    };
    // The audit chain continues where the backup ended.
    let first = entries.first().unwrap();
    assert_eq!(first.number, header.audit_number + 1);
    let AuditAction::Restored { revision, .. } = &first.action else {
        panic!("{first:?}");
    };
    assert_eq!(*revision, header.revision);
    let AuditAction::NumbersSkipped { after, until, .. } = &entries[1].action else {
        panic!("{:?}", entries[1]);
    };
    assert_eq!((after.0, until.0), (0, 1_000_000_000));
    assert_eq!(entries[1].by.name, RESTORER);
    for app in apps {
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_cut_short_is_not_opened() {
    let (folder, file, _, authority) = small().await;
    let ours = settings(common::CLUSTER, 1, folder.path());
    restore(&ours, &file, None).await.unwrap();
    // The state of the directory before the last step of a restore.
    std::fs::write(ours.data_dir.join("RESTORING"), "").unwrap();
    let edges = Edges {
        credentials: common::credentials(&authority, Role::Quorum, "1"),
        authority: None,
        clock: Arc::new(SystemClock),
    };
    let refused = App::bind(ours, edges).await.unwrap_err();
    assert!(refused.to_string().contains("was interrupted"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_get_a_backup() {
    let cluster = Cluster::start().await;
    let client = common::hasty(&cluster.authority, "c1", cluster.addrs(), 3);
    until("there is a leader", || async {
        client.read(Query::Revision).await.is_ok()
    })
    .await;
    let bob = Principal {
        name: "bob".to_owned(),
        privilege: Privilege::Operator,
    };
    let refused = client.backup(bob, "b".to_owned()).await.err().unwrap();
    assert!(
        matches!(refused, ClientError::Unavailable { .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("needs the role admin")
            || refused.to_string().contains("the role admin"),
        "{refused}"
    );
    cluster.stop().await;
}
