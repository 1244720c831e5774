//! Who the members are changes while they run: added, removed, replaced, and another one leads.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Cluster, admin, create_project, process::Site, until};
use lattice_quorum::App;
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Command, VoterId,
    audit::{AuditAction, AuditEntry},
    command::{Power, Principal},
    membership::{Change, ChangeRefused, MemberRole, Progress, QuorumView},
    view::{Answer, Query},
};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

fn alice() -> Principal {
    Principal {
        name: "alice".to_owned(),
        power: Power::Admin,
    }
}

/// Asks until the change is done or refused, under one key as the command line does.
async fn change(client: &QuorumClient, change: Change) -> Result<bool, ChangeRefused> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = format!("change-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let asking = async {
        loop {
            let step = client
                .change_quorum(alice(), key.clone(), change.clone())
                .await;
            match step.unwrap()? {
                Progress::Done { already, .. } => return Ok(already),
                Progress::CatchingUp { .. } | Progress::UnderWay => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), asking).await;
    done.unwrap_or_else(|_| panic!("{change:?} is not done"))
}

fn add(id: VoterId, addr: SocketAddr) -> Change {
    Change::Add { id, addr }
}

fn remove(id: VoterId) -> Change {
    Change::Remove {
        id,
        force: false,
        reason: "its disk is dying".to_owned(),
    }
}

fn voters(view: &QuorumView) -> Vec<VoterId> {
    let voters = view
        .members
        .iter()
        .filter(|m| m.role != MemberRole::Learner);
    voters.map(|m| m.id).collect()
}

async fn audit(client: &QuorumClient) -> Vec<AuditEntry> {
    let mut all: Vec<AuditEntry> = Vec::new();
    loop {
        let query = Query::Audit {
            after: all.last().map_or(0, |entry| entry.number),
            limit: 5000,
        };
        match client.read(query).await.unwrap() {
            Answer::Audit(page) if page.is_empty() => return all,
            Answer::Audit(page) => all.extend(page),
            other => panic!("{other:?}"),
        }
    }
}

async fn create(client: &QuorumClient, name: &str) {
    let created = client.propose(admin(None, create_project(name, 1))).await;
    created.unwrap().unwrap();
}

async fn projects(client: &QuorumClient) -> BTreeSet<String> {
    match client.read(Query::Hot).await.unwrap() {
        Answer::Hot(hot) => hot.projects.iter().map(|p| p.path.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Every member that runs, at one digest.
async fn agree(cluster: &Cluster, ids: &[VoterId]) {
    until("all members at one digest", || async {
        let digests: Vec<_> = ids
            .iter()
            .map(|id| cluster.app(*id).state_digest())
            .collect();
        digests.windows(2).all(|pair| pair[0] == pair[1])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_added_another_removed_and_who_is_none_any_more_says_so() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "before").await;
    let id = cluster.join().await;
    let addr = cluster.members[3].1;
    assert_eq!(change(&client, add(id, addr)).await, Ok(false));
    // What was done is not done twice.
    assert_eq!(change(&client, add(id, addr)).await, Ok(true));
    let view = client.quorum().await.unwrap();
    assert_eq!(voters(&view), [1, 2, 3, 4]);
    agree(&cluster, &[1, 2, 3, 4]).await;
    // The leader goes: another one leads first.
    let old = cluster.leader().await;
    assert_eq!(change(&client, remove(old)).await, Ok(false));
    assert_eq!(change(&client, remove(old)).await, Ok(true));
    let view = client.quorum().await.unwrap();
    assert!(!voters(&view).contains(&old) && view.leader.is_some_and(|id| id != old));
    create(&client, "after").await;
    until("the removed member knows it", || async {
        cluster
            .app(old)
            .account()
            .is_some_and(|account| account.removed)
    })
    .await;
    let term = client.quorum().await.unwrap().term;
    // It asks nobody for votes any more, however long it hears nothing.
    until("the removed member has heard nothing for long", || async {
        let account = cluster.app(old).account().unwrap();
        account.heard_ms.is_none_or(|ms| ms > 4000)
    })
    .await;
    assert!(cluster.app(old).account().unwrap().term <= term);
    let done: Vec<_> = audit(&client)
        .await
        .into_iter()
        .filter(|entry| {
            matches!(
                entry.action,
                AuditAction::MemberAdded { .. } | AuditAction::MemberRemoved { .. }
            )
        })
        .map(|entry| (entry.by.name, entry.action.word()))
        .collect();
    let by = |word| ("alice".to_owned(), word);
    assert_eq!(done, [by("member_added"), by("member_removed")]);
    // A client that knows the first three alone finds the rest by them.
    assert!(client.members().contains(&addr), "{:?}", client.members());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_lose_the_quorum_or_is_not_what_it_says_is_refused() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "one").await;
    let addrs: Vec<SocketAddr> = cluster.addrs();
    let refused = |result: Result<bool, ChangeRefused>| result.unwrap_err().code();
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    assert_eq!(
        refused(change(&client, add(2, nobody)).await),
        "member_exists"
    );
    assert_eq!(
        refused(change(&client, add(9, addrs[1])).await),
        "address_taken"
    );
    assert_eq!(
        refused(change(&client, add(9, nobody)).await),
        "member_not_reached"
    );
    // Somebody else's certificate.
    let id = cluster.join().await;
    let addr = cluster.members[3].1;
    let wrong = change(&client, add(9, addr)).await.unwrap_err();
    assert!(
        wrong.to_string().contains("spiffe://test/quorum/9"),
        "{wrong}"
    );
    // Of three, two have to stay.
    let leader = cluster.leader().await;
    let others: Vec<VoterId> = (1..=3).filter(|id| *id != leader).collect();
    cluster.stop_member(others[0]).await;
    until("the leader misses it", || async {
        let view = client.quorum().await.unwrap();
        let row = view.members.iter().find(|m| m.id == others[0]).unwrap();
        assert!(
            view.warnings
                .iter()
                .all(|w| !w.contains("there is no majority")),
            "{view:?}"
        );
        row.fault.is_some() && view.warnings.iter().any(|w| w.contains("one more member"))
    })
    .await;
    until("the rest would have no majority", || async {
        match change(&client, remove(others[1])).await {
            Err(ChangeRefused::NoMajorityLeft {
                voters, reached, ..
            }) => {
                assert_eq!((voters, reached), (2, 1));
                true
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    // The dead one may go: two of two are left. Then a new one comes.
    assert_eq!(change(&client, remove(others[0])).await, Ok(false));
    assert_eq!(change(&client, add(id, addr)).await, Ok(false));
    let view = client.quorum().await.unwrap();
    assert_eq!(
        voters(&view),
        [leader.min(others[1]), leader.max(others[1]), 4]
    );
    create(&client, "two").await;
    // Only a user.
    let user = Principal {
        name: "bob".to_owned(),
        power: Power::User,
    };
    let asked = client.change_quorum(user, "bob-1".to_owned(), remove(others[1]));
    assert_eq!(asked.await.unwrap().unwrap_err().code(), "not_allowed");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_founded_a_cluster_of_its_own_is_not_taken_in() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "one").await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let settings = lattice_quorum::Settings::new(common::CLUSTER, 4, common::any_port(), data);
    let edges = lattice_quorum::Edges {
        credentials: common::credentials(&cluster.authority, lattice_mesh::Role::Quorum, "4"),
        authority: None,
        clock: Arc::new(lattice_mesh::SystemClock),
    };
    let mut alone = App::bind(settings, edges).await.unwrap();
    let addr = alone.addr();
    alone.start(vec![(4, addr)]).await.unwrap();
    until("it leads itself", || async {
        alone.status().is_some_and(|s| s.leader == Some(4))
    })
    .await;
    let refused = change(&client, add(4, addr)).await.unwrap_err();
    assert_eq!(refused.code(), "other_history", "{refused}");
    let view = client.quorum().await.unwrap();
    assert_eq!(voters(&view), [1, 2, 3]);
    alone.stop().await;
    cluster.stop().await;
}

/// Writers that note what was acknowledged.
struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<String>>>,
    /// Longest time between two acknowledged writes of one writer.
    longest: Arc<Mutex<Duration>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    fn start(client: &QuorumClient, count: usize) -> Self {
        let writers = Self {
            stop: Arc::default(),
            acknowledged: Arc::default(),
            longest: Arc::default(),
            tasks: Vec::new(),
        };
        let write = |writer: usize| {
            let (client, stop) = (client.clone(), writers.stop.clone());
            let (acknowledged, longest) = (writers.acknowledged.clone(), writers.longest.clone());
            async move {
                let mut since = Instant::now();
                for n in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("w{writer}-{n}");
                    loop {
                        let envelope = admin(Some(name.clone()), create_project(&name, 1));
                        match client.propose(envelope).await {
                            Ok(done) => {
                                done.unwrap();
                                break;
                            }
                            Err(
                                ClientError::OutcomeUnknown { .. }
                                | ClientError::Unavailable { .. },
                            ) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    acknowledged.lock().unwrap().push(name);
                    let mut longest = longest.lock().unwrap();
                    *longest = longest.max(since.elapsed());
                    since = Instant::now();
                }
            }
        };
        let tasks = (0..count)
            .map(|writer| tokio::spawn(write(writer)))
            .collect();
        Self { tasks, ..writers }
    }
    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
    /// Forgets the gaps until now.
    fn begin(&self) {
        *self.longest.lock().unwrap() = Duration::ZERO;
    }
    fn longest(&self) -> Duration {
        *self.longest.lock().unwrap()
    }
    async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over_under_writers_and_nothing_acknowledged_is_lost() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let writers = Writers::start(&client, 8);
    let mut gaps = Vec::new();
    for round in 0..6 {
        let before = writers.count();
        until("writes go on", || async { writers.count() > before + 40 }).await;
        writers.begin();
        let old = cluster.leader().await;
        let to = (round % 2 == 0).then_some(if old == 3 { 1 } else { old + 1 });
        assert_eq!(change(&client, Change::StepDown { to }).await, Ok(false));
        let counted = writers.count();
        until("writes go on under another leader", || async {
            writers.count() > counted + 40
        })
        .await;
        let new = cluster.leader().await;
        assert!(to.is_none_or(|to| to == new), "{to:?}: {new} leads");
        gaps.push(writers.longest());
    }
    gaps.sort();
    let acknowledged = writers.end().await;
    let found = projects(&client).await;
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|n| !found.contains(*n))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    println!(
        "{} acknowledged, none lost; longest wait of a writer over a step-down: median {} ms, max {} ms",
        acknowledged.len(),
        gaps[gaps.len() / 2].as_millis(),
        gaps[gaps.len() - 1].as_millis(),
    );
    let refused = change(&client, Change::StepDown { to: Some(9) }).await;
    assert_eq!(refused.unwrap_err().code(), "no_such_member");
    let leader = cluster.leader().await;
    let to = Some(leader);
    assert_eq!(change(&client, Change::StepDown { to }).await, Ok(true));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_of_the_leader_costs_no_silence() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "one").await;
    let old = cluster.leader().await;
    let term = cluster.app(old).status().unwrap().term;
    cluster.stop_member(old).await;
    // Another one leads already when the old one is gone: nobody had to find out.
    let others: Vec<VoterId> = (1..=3).filter(|id| *id != old).collect();
    let statuses = others.iter().map(|id| cluster.app(*id).status().unwrap());
    let leads: Vec<_> = statuses.filter(|s| s.leader == Some(s.id)).collect();
    assert_eq!(leads.len(), 1, "{leads:?}");
    assert!(leads[0].term > term);
    create(&client, "two").await;
    cluster.stop().await;
}

/// Three processes under writers: one is killed for good and replaced by a fourth, by commands that
/// are cut in the middle and repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_machine_is_replaced_under_writers() {
    let mut site = Site::prepare("snapshot_every: 300\n");
    site.start_all();
    let mesh = common::control(&site.authority, "c1");
    let first = site.addrs.clone();
    let client = QuorumClient::with_config(mesh, first.clone(), common::patient());
    create(&client, "begin").await;
    let writers = Writers::start(&client, 8);
    // More than a snapshot's worth, so that the new one is sent one.
    until("there is a snapshot", || async {
        let view = client.quorum().await.unwrap();
        let mut accounts = view.members.iter().filter_map(|m| m.account.as_ref());
        accounts.any(|account| account.snapshot_index > 0)
    })
    .await;
    let leader = client.quorum().await.unwrap().leader.unwrap();
    let dead = (1..=3).find(|id| *id != leader).unwrap();
    site.kill(dead);
    let id = site.joiner("snapshot_every: 300\n");
    let addr = site.addrs[id as usize - 1];
    site.start(id);
    until("the new one answers", || async {
        !matches!(
            change_once(&client, add(id, addr)).await,
            Err(ChangeRefused::NotReached { .. })
        )
    })
    .await;
    // The leader dies in the middle of it, and the command is repeated.
    site.kill(leader);
    site.start(leader);
    change(&client, add(id, addr)).await.unwrap();
    change(&client, remove(dead)).await.unwrap();
    let view = client.quorum().await.unwrap();
    let expected: Vec<VoterId> = (1..=4).filter(|id| *id != dead).collect();
    assert_eq!(voters(&view), expected);
    // The rest of the old ones goes as well: clients follow to members that nobody told them of.
    let counted = writers.count();
    until("writes go on", || async { writers.count() > counted + 100 }).await;
    // It comes back with its data, and changes nothing.
    site.start(dead);
    until("the dead one knows that it is none any more", || async {
        site.printed(dead).contains("was removed from the quorum")
    })
    .await;
    let counted = writers.count();
    until("writes go on", || async { writers.count() > counted + 100 }).await;
    let acknowledged = writers.end().await;
    let found = projects(&client).await;
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|n| !found.contains(*n))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    println!("{} acknowledged, none lost", acknowledged.len());
    let entries = audit(&client).await;
    let added = entries
        .iter()
        .filter(|e| matches!(e.action, AuditAction::MemberAdded { .. }));
    assert!(added.count() >= 1);
    for id in expected {
        let printed = site.printed(id);
        for bad in ["foresight was wrong", "panicked", "broke down"] {
            assert!(!printed.contains(bad), "member {id}: {printed}");
        }
    }
}

/// One step only.
async fn change_once(client: &QuorumClient, change: Change) -> Result<Progress, ChangeRefused> {
    client
        .change_quorum(alice(), "once".to_owned(), change)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_a_leader_writes_down_what_was_done_to_the_quorum() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let action = AuditAction::SteppedDown {
        member: 1,
        to: None,
    };
    let command = Command::NoteQuorum {
        action: Box::new(action),
    };
    let mesh = common::control(&cluster.authority, "c2");
    let config = lattice_quorum_client::ClientConfig {
        deadline: Duration::from_secs(3),
        ..Default::default()
    };
    let hasty = QuorumClient::with_config(mesh, cluster.addrs(), config);
    let forged = hasty.propose(admin(None, command)).await;
    assert!(forged.is_err(), "{forged:?}");
    let entries = audit(&client).await;
    let forged = entries.iter().filter(|e| e.by.name == "alice");
    assert_eq!(forged.count(), 0);
    cluster.stop().await;
}
