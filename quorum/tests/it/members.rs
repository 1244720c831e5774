//! Three members in one process, as clients see them.

use crate::common::{
    self, Cluster, admin, control, create_project, node, now, path, patient, ready, register,
    service, submit, submitted, until, without_key,
};
use lattice_quorum_client::{ClientConfig, ClientError, QuorumClient};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Outcome, Refusal, Revision,
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode},
    event::EventKind,
    membership::MemberStatus,
    view::{Answer, Query, WatchItem},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Creates a project and two nodes for submissions.
async fn seed(client: &lattice_quorum_client::QuorumClient) {
    let mut commands = vec![admin(None, create_project("atlas", 10))];
    for name in ["n1", "n2"] {
        commands.push(admin(None, register(name)));
        commands.push(admin(None, ready(name)));
    }
    for reply in client.propose_all(commands).await.unwrap() {
        reply.unwrap();
    }
}

async fn hot(
    client: &lattice_quorum_client::QuorumClient,
) -> lattice_quorum_types::view::LiveState {
    match client.read(Query::Hot).await.unwrap() {
        Answer::Hot(hot) => *hot,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_applied_by_all_members_and_read_back() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    seed(&client).await;
    let done = client
        .propose(admin(None, create_project("atlas/web", 4)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(done.outcome, Outcome::Done);
    let project = hot(&client).await.projects.remove(0);
    assert_eq!(project.path, path("atlas"));
    let id = submitted(
        client
            .propose(admin(None, submit("atlas", 2, "a")))
            .await
            .unwrap(),
    );
    let Answer::Allocation(Some(found)) = client.read(Query::Allocation { id }).await.unwrap()
    else {
        panic!("allocation {id} is not there");
    };
    assert_eq!(
        (found.state, found.user.as_str()),
        (AllocationState::Pending, "alice")
    );
    // All members have the same state, byte for byte.
    until("all members at one digest", || async {
        let digests: Vec<_> = (1..=3).map(|id| cluster.app(id).state_digest()).collect();
        digests.windows(2).all(|pair| pair[0] == pair[1])
    })
    .await;
    until("all three answer, and name one leader", || async {
        let statuses = client.status().await;
        assert_eq!(statuses.len(), 3);
        let mut statuses = statuses.iter().map(|(_, status)| status.as_ref().ok());
        let leader = |status: Option<&MemberStatus>| status.and_then(|status| status.leader);
        let first = statuses.next().and_then(leader);
        first.is_some() && statuses.all(|status| leader(status) == first)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_refused_within_batch_is_not_logged() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let commands = vec![
        admin(None, create_project("atlas", 10)),
        admin(None, create_project("atlas", 10)),
        admin(None, create_project("atlas/a", 8)),
        admin(None, create_project("atlas/b", 8)),
    ];
    let replies = client.propose_all(commands).await.unwrap();
    let codes: Vec<_> = replies
        .iter()
        .map(|r| r.as_ref().map(|_| ()).map_err(Refusal::code))
        .collect();
    assert_eq!(
        codes,
        [Ok(()), Err("project_exists"), Ok(()), Err("limit_conflict")]
    );
    cluster.knows_its_authority().await;
    // An election adds an entry of its own: then the check is repeated.
    until("nobody is elected meanwhile", || async {
        let leader = cluster.leader().await;
        let before = cluster.app(leader).status().unwrap();
        for _ in 0..5 {
            let refused = client
                .propose(admin(None, create_project("atlas/b", 8)))
                .await
                .unwrap();
            assert_eq!(refused.unwrap_err().code(), "limit_conflict");
        }
        let after = cluster.app(leader).status().unwrap();
        let is_same = (before.term, before.leader) == (after.term, after.leader);
        assert!(
            !is_same || before.applied_index == after.applied_index,
            "refused proposals entered the log"
        );
        is_same
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_each_get_their_own_answer() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    seed(&client).await;
    let writers = (0..200).map(|i| {
        let client = client.clone();
        async move {
            let name = format!("job-{i}");
            let reply = client.propose(admin(None, submit("atlas", 1, &name))).await;
            (name, submitted(reply.unwrap()))
        }
    });
    let mut ids = Vec::new();
    for (name, id) in futures::future::join_all(writers).await {
        let answer = client.read(Query::Allocation { id }).await.unwrap();
        let Answer::Allocation(Some(found)) = answer else {
            panic!("allocation {id} is not there");
        };
        assert_eq!(found.spec.name, Some(name));
        ids.push(id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 200);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_when_the_leader_stops_and_keys_make_repeats_harmless() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    seed(&client).await;
    let key = Some("submit-1".to_owned());
    let first = client
        .propose(admin(key.clone(), submit("atlas", 1, "one")))
        .await;
    let first = submitted(first.unwrap());
    let old = cluster.leader().await;
    cluster.stop_member(old).await;
    // The same key at the new leader returns the first outcome and does nothing new.
    let again = client.propose(admin(key, submit("atlas", 1, "one"))).await;
    assert_eq!(submitted(again.unwrap()), first);
    let reused = client
        .propose(admin(
            Some("submit-1".to_owned()),
            submit("atlas", 1, "two"),
        ))
        .await
        .unwrap();
    assert_eq!(reused.unwrap_err().code(), "key_reused");
    assert_eq!(hot(&client).await.allocations.len(), 1);
    assert_ne!(cluster.leader().await, old);
    // The old leader returns and catches up.
    cluster.restart_member(old).await;
    let digest = |id| cluster.app(id).state_digest();
    let other = if old == 1 { 2 } else { 1 };
    until("the old leader has caught up", || async {
        digest(old) == digest(other)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_answered_and_nothing_is_lost() {
    let mut cluster = Cluster::start().await;
    let client = common::hasty(&cluster.authority, "c1", cluster.addrs(), 3);
    let patient = cluster.client("c2");
    seed(&patient).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    for id in &others {
        cluster.stop_member(*id).await;
    }
    let read = client.read(Query::Revision).await.unwrap_err();
    assert!(matches!(read, ClientError::Unavailable { .. }), "{read}");
    let bare = client
        .propose(without_key(admin(None, submit("atlas", 1, "bare"))))
        .await;
    let error = bare.unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::OutcomeUnknownWithoutKey { .. } | ClientError::Unavailable { .. }
        ),
        "{error}"
    );
    let keyed = tokio::spawn({
        let patient = patient.clone();
        let command = admin(Some("k".to_owned()), submit("atlas", 1, "keyed"));
        async move { patient.propose(command).await }
    });
    cluster.restart_member(others[0]).await;
    let id = submitted(keyed.await.unwrap().unwrap());
    let found = hot(&patient).await.allocations;
    assert_eq!(found.iter().filter(|a| a.id == id).count(), 1);
    let keyed = found
        .iter()
        .filter(|a| a.spec.name.as_deref() == Some("keyed"));
    assert_eq!(keyed.count(), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_over_a_change_of_leader_without_gap_or_repeat() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let watcher = cluster.client("c2");
    seed(&client).await;
    let mut watch = watcher.watch(Revision(0));
    let names = tokio::spawn(async move {
        let (mut names, mut last) = (Vec::new(), (Revision(0), 0));
        while names.len() < 60 {
            let item = timeout(Duration::from_secs(60), watch.next()).await;
            let WatchItem::Events(events) = item.expect("an item").expect("no end") else {
                continue;
            };
            for event in events {
                let place = (event.revision, event.ordinal);
                assert!(
                    place > last || last == (Revision(0), 0),
                    "{place:?} after {last:?}"
                );
                last = place;
                if let EventKind::Allocation { record, .. } = event.kind {
                    names.push(record.spec.name.clone().unwrap());
                }
            }
        }
        names
    });
    for i in 0..60 {
        if i == 30 {
            let leader = cluster.leader().await;
            cluster.stop_member(leader).await;
        }
        let command = submit("atlas", 1, &format!("job-{i}"));
        client
            .propose(admin(Some(format!("key-{i}")), command))
            .await
            .unwrap()
            .unwrap();
    }
    let expected: Vec<_> = (0..60).map(|i| format!("job-{i}")).collect();
    assert_eq!(names.await.unwrap(), expected);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_watch_revision_is_reported() {
    let mut cluster = Cluster::start_with(100).await;
    let client = cluster.client("c1");
    seed(&client).await;
    for i in 0..220 {
        let command = submit("atlas", 1, &format!("job-{i}"));
        client.propose(admin(None, command)).await.unwrap().unwrap();
    }
    cluster.knows_its_authority().await;
    let revision = hot(&client).await.revision;
    // After a restart of all members, the events before the snapshots are lost.
    for id in 1..=3 {
        cluster.stop_member(id).await;
    }
    for id in 1..=3 {
        cluster.restart_member(id).await;
    }
    assert_eq!(hot(&client).await.revision, revision);
    let mut watch = client.watch(Revision(1));
    let first = timeout(Duration::from_secs(30), watch.next())
        .await
        .unwrap();
    let Some(WatchItem::Compacted { oldest }) = first else {
        panic!("{first:?}");
    };
    assert!(oldest > Revision(1) && oldest <= revision, "{oldest}");
    assert_eq!(watch.next().await, None);
    // A watch from the oldest available revision works.
    let mut watch = client.watch(oldest);
    let mut at = oldest;
    while at < revision {
        match timeout(Duration::from_secs(30), watch.next())
            .await
            .unwrap()
        {
            Some(WatchItem::Events(events)) => at = events.last().unwrap().revision,
            Some(WatchItem::Idle(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    // A future revision belongs to another history.
    let mut watch = client.watch(Revision(revision.0 + 1000));
    let item = timeout(Duration::from_secs(30), watch.next())
        .await
        .unwrap();
    assert!(
        matches!(item, Some(WatchItem::Compacted { .. })),
        "{item:?}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_away_for_long_gets_a_snapshot() {
    let mut cluster = Cluster::start_with(100).await;
    let client = cluster.client("c1");
    seed(&client).await;
    // On a stalled machine, an election is possible at any time; only the member's return must not cause one.
    let (mut cost, mut free) = (0, 0);
    for round in 1..=8 {
        let machine = Machine::watch();
        let leader = cluster.leader().await;
        let away = (1..=3).find(|id| *id != leader).unwrap();
        cluster.stop_member(away).await;
        for i in 0..500 {
            let command = submit("atlas", 1, &format!("job-{round}-{i}"));
            client.propose(admin(None, command)).await.unwrap().unwrap();
        }
        let leader = cluster.leader().await;
        let term = cluster.app(leader).status().unwrap().term;
        cluster.restart_member(away).await;
        let digest = |id| cluster.app(id).state_digest();
        until("it has caught up", || async {
            digest(away) == digest(leader)
        })
        .await;
        let snapshots = cluster
            .folder
            .path()
            .join(away.to_string())
            .join("snapshots");
        assert!(std::fs::read_dir(snapshots).unwrap().count() > 0);
        let leads = cluster.leader().await;
        if (leads, cluster.app(leads).status().unwrap().term) == (leader, term) {
            free += 1;
            if free == 2 {
                return cluster.stop().await;
            }
        } else if machine.stood_still() {
            println!("round {round}: {leads} was elected on a machine that stood still");
        } else {
            println!("round {round}: {leads} was elected when {away} came back");
            assert_ne!(leads, away, "it took the lead from {leader}");
            cost += 1;
            assert!(cost < 2, "its return cost an election, and not once");
        }
    }
    panic!("this machine stands still all the time");
}

/// Measures stalls of the machine, in a thread of its own.
struct Machine {
    /// Longest overrun of a short sleep, milliseconds.
    late: Arc<AtomicU64>,
}

impl Machine {
    fn watch() -> Self {
        let late = Arc::new(AtomicU64::new(0));
        let kept = Arc::downgrade(&late);
        std::thread::spawn(move || {
            while let Some(late) = kept.upgrade() {
                let (slept, begun) = (Duration::from_millis(50), Instant::now());
                std::thread::sleep(slept);
                let over = begun.elapsed().saturating_sub(slept).as_millis();
                late.fetch_max(u64::try_from(over).unwrap(), Ordering::Relaxed);
            }
        });
        Self { late }
    }

    /// A few such stalls add up to half a second without a heartbeat, which members treat as silence.
    fn stood_still(&self) -> bool {
        self.late.load(Ordering::Relaxed) >= 150
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_may_move_to_other_addresses() {
    let started = std::time::Instant::now();
    let mut cluster = Cluster::start().await;
    cluster.leader().await;
    println!(
        "all members joined after {} ms",
        started.elapsed().as_millis()
    );
    let client = cluster.client("c1");
    seed(&client).await;
    cluster.knows_its_authority().await;
    let before = hot(&client).await;
    let old = cluster.addrs();
    for id in 1..=3 {
        cluster.stop_member(id).await;
    }
    let restarted = std::time::Instant::now();
    cluster.move_all().await;
    assert!(old.iter().all(|addr| !cluster.addrs().contains(addr)));
    let client = cluster.client("c2");
    assert_eq!(hot(&client).await, before);
    println!("answers again after {} ms", restarted.elapsed().as_millis());
    let now: Vec<_> = cluster
        .members
        .iter()
        .map(|(id, addr)| (*id, addr.to_string()))
        .collect();
    until("the first tells of the new addresses", || async {
        let first = client.status().await.remove(0).1;
        first.is_ok_and(|status| status.members == now)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposer_with_a_wrong_clock_does_not_move_the_time_of_all() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    seed(&client).await;
    let mut late = admin(None, create_project("atlas/late", 1));
    late.at.0 += 3_600_000;
    client.propose(late).await.unwrap().unwrap();
    let after = hot(&client).await.at;
    let ahead = after.0.saturating_sub(common::now().0);
    assert!(ahead <= 30_000, "state time is {ahead} ms ahead");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lost_its_disk_buries_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    seed(&client).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    let (behind, wiped) = (others[0], others[1]);
    // Acknowledged by the leader and by the member that is about to lose its disk.
    cluster.stop_member(behind).await;
    let id = submitted(
        client
            .propose(admin(Some("k".to_owned()), submit("atlas", 1, "kept")))
            .await
            .unwrap(),
    );
    cluster.stop_member(wiped).await;
    std::fs::remove_dir_all(cluster.folder.path().join(wiped.to_string())).unwrap();
    cluster.stop_member(leader).await;
    // These two members are a majority by number, and must not elect a leader.
    cluster.restart_member(behind).await;
    cluster.restart_member(wiped).await;
    let hasty = common::hasty(&cluster.authority, "c2", cluster.addrs(), 5);
    let error = hasty.read(Query::Revision).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
    // With the member that holds the entry, everything is present, and the wiped member catches up.
    cluster.restart_member(leader).await;
    let found = hot(&client).await.allocations;
    assert_eq!(found.iter().map(|a| a.id).collect::<Vec<_>>(), [id]);
    until("all members at one digest", || async {
        let digests: Vec<_> = (1..=3).map(|id| cluster.app(id).state_digest()).collect();
        digests.windows(2).all(|pair| pair[0] == pair[1])
    })
    .await;
    // From then on, the wiped member's vote counts again.
    cluster.stop_member(leader).await;
    assert_eq!(hot(&client).await.allocations.len(), 1);
    cluster.stop().await;
}

/// The trust may have changed without this leader receiving the change.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_no_majority_follows_judges_no_claims() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let unsigned = || {
        let attestation = Attestation {
            node: node("n1"),
            boot_id: "b1".to_owned(),
            cohort: None,
            classes: Default::default(),
            read_at: now(),
            nonce: [0; 16],
        };
        let proof = Proof {
            attestation,
            signature: Default::default(),
            completed: Default::default(),
            conforms: Default::default(),
        };
        let expected = ExpectedNode {
            node: node("n1"),
            version: 1,
            boot: Some("b1".to_owned()),
        };
        let nodes = vec![AttestedNode { expected, proof }];
        let id = AllocationId(1);
        without_key(service(None, Command::AssignSensitive { id, nodes }))
    };
    let config = ClientConfig {
        deadline: Duration::from_secs(6),
        ..ClientConfig::default()
    };
    let addr = cluster.app(leader).addr();
    let client = |id, config| {
        let mesh = control(&cluster.authority, id);
        QuorumClient::with_config(mesh, vec![addr], config)
    };
    let (client, patient) = (client("c1", config), client("c2", patient()));
    let mut judged = unsigned();
    judged.key = Some("judged".to_owned());
    let refused = patient.propose(judged).await.unwrap().unwrap_err();
    assert!(matches!(refused, Refusal::Unproven { .. }), "{refused}");
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.stop_member(id).await;
    }
    // The last try may reach the client's deadline, which leaves its outcome unknown.
    let answer = client.propose(unsigned()).await;
    let unanswered = [
        matches!(&answer, Err(ClientError::Unavailable { .. })),
        matches!(&answer, Err(ClientError::OutcomeUnknownWithoutKey { .. })),
    ];
    assert!(unanswered.contains(&true), "{answer:?}");
    cluster.stop().await;
}
