//! Leader failures under load: three member processes, 64 writers, and a leader that is killed repeatedly. No
//! acknowledged command is lost, no command is applied twice, and no node has two owners.
//!
//! Readers continuously check that no read is older than the commands acknowledged before it.
//!
//! Environment variables: `LATTICE_KILLS` is the number of kills (default 2). `LATTICE_ACKNOWLEDGED` is the total
//! number of commands to acknowledge (default 500 per kill). `LATTICE_PAUSES` is the number of times the leader is
//! paused for longer than an election takes, and then resumes without notice of its deposition (default 1).

use crate::common::{
    self, admin, client_of, create_project, now, process::Site, ready, register, submit, until,
};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Applied, Command, Envelope, NodeId, Outcome,
    Refusal, Revision, VoterId,
    allocation::RankExit,
    command::{ExpectedNode, Fence, RankReport},
    event::EventKind,
    id::LeaseName,
    node::Node,
    view::{Answer, LiveState, Query, WatchItem},
};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const WRITERS: usize = 64;
const NODES: usize = 48;
const READERS: usize = 4;
/// Duration of a pause of the leader: the others elect another leader meanwhile.
const PAUSE: Duration = Duration::from_millis(2500);

/// Acknowledged command.
#[derive(Debug)]
struct Acknowledged {
    key: String,
    revision: Revision,
    what: WriteKind,
}

#[derive(Debug, PartialEq)]
enum WriteKind {
    Submitted(AllocationId),
    Assigned(AllocationId, NodeId),
    Started(AllocationId),
    Ended(AllocationId),
}

/// View built from the watch.
#[derive(Default)]
struct Watched {
    nodes: BTreeMap<NodeId, Node>,
    revisions: BTreeSet<Revision>,
    /// Nodes that went from one holder to another without being free in between.
    stolen: Vec<NodeId>,
}

struct World {
    stop: AtomicBool,
    done: AtomicU64,
    /// Newest acknowledged revision.
    newest: AtomicU64,
    log: Mutex<Vec<Acknowledged>>,
    watched: Mutex<Watched>,
    fence: Fence,
}

impl World {
    fn count(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
    fn acknowledge(&self, key: &str, revision: Revision, what: WriteKind) {
        let key = key.to_owned();
        let entry = Acknowledged {
            key,
            revision,
            what,
        };
        self.log.lock().unwrap().push(entry);
        self.newest.fetch_max(revision.0, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::Relaxed);
    }
    /// Returns a node that appears free, a different one for each caller.
    fn free_node(&self, salt: usize) -> Option<ExpectedNode> {
        let watched = self.watched.lock().unwrap();
        let free: Vec<_> = watched
            .nodes
            .values()
            .filter(|n| n.is_assignable())
            .collect();
        let node = free.get(salt.checked_rem(free.len())?)?;
        Some(ExpectedNode {
            node: node.id.clone(),
            version: node.version,
            boot: None,
        })
    }
}

/// Proposes until the outcome is known: the key makes repeats harmless.
async fn settle(client: &QuorumClient, envelope: Envelope) -> Result<Applied, Refusal> {
    assert!(envelope.key.is_some());
    let started = Instant::now();
    loop {
        match client.propose(envelope.clone()).await {
            Ok(reply) => return reply,
            Err(ClientError::OutcomeUnknown { .. } | ClientError::Unavailable { .. })
                if started.elapsed() < Duration::from_secs(90) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Takes allocations from submission to their end, one after the other.
async fn write(world: Arc<World>, client: QuorumClient, writer: usize) {
    let mut round = 0;
    while !world.stop.load(Ordering::Relaxed) {
        round += 1;
        let name = format!("w{writer}-r{round}");
        let key = format!("{name}/submit");
        let envelope = admin(Some(key.clone()), submit("atlas", 1, &name));
        let applied = settle(&client, envelope).await.unwrap();
        let Outcome::Submitted { id } = applied.outcome else {
            panic!("{applied:?}");
        };
        world.acknowledge(&key, applied.revision, WriteKind::Submitted(id));
        let Some(node) = assign(&world, &client, &name, id, writer + round).await else {
            continue;
        };
        let started = RankReport::Started { at: now() };
        let key = format!("{name}/started");
        let revision = report(&client, &key, id, &node, started).await;
        world.acknowledge(&key, revision, WriteKind::Started(id));
        let exit = RankExit::Exited { code: 0 };
        let key = format!("{name}/ended");
        let ended = RankReport::Ended {
            at: now(),
            exit,
            fault: None,
        };
        let revision = report(&client, &key, id, &node, ended).await;
        world.acknowledge(&key, revision, WriteKind::Ended(id));
    }
}

/// Tries nodes until this writer holds one. Other writers compete for the nodes, and the view is slightly old.
async fn assign(
    world: &World,
    client: &QuorumClient,
    name: &str,
    id: AllocationId,
    salt: usize,
) -> Option<NodeId> {
    for attempt in 0..200 {
        let Some(expected) = world.free_node(salt + attempt) else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let node = expected.node.clone();
        let nodes = vec![expected];
        let key = format!("{name}/assign-{attempt}");
        let mut envelope = common::service(Some(key.clone()), Command::Assign { id, nodes });
        envelope.fence = Some(world.fence.clone());
        match settle(client, envelope).await {
            Ok(applied) => {
                assert_eq!(applied.outcome, Outcome::Assigned { attempt: 1 });
                world.acknowledge(
                    &key,
                    applied.revision,
                    WriteKind::Assigned(id, node.clone()),
                );
                return Some(node);
            }
            Err(Refusal::OwnershipConflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    None
}

async fn report(
    client: &QuorumClient,
    key: &str,
    id: AllocationId,
    node: &NodeId,
    report: RankReport,
) -> Revision {
    let command = Command::Report {
        id,
        attempt: 1,
        node: node.clone(),
        report,
    };
    let envelope = common::service(Some(key.to_owned()), command);
    settle(client, envelope).await.unwrap().revision
}

/// Reads repeatedly. Returns the number of reads.
async fn read(world: Arc<World>, client: QuorumClient) -> u64 {
    let mut reads = 0;
    while !world.stop.load(Ordering::Relaxed) {
        let acknowledged = world.newest.load(Ordering::SeqCst);
        match client.read(Query::Revision).await {
            Ok(Answer::Revision(found)) => {
                assert!(found.0 >= acknowledged, "{found} read after {acknowledged}");
                reads += 1;
            }
            Err(ClientError::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    reads
}

/// Applies the watch to the view until cancelled.
async fn watch(world: Arc<World>, client: QuorumClient, since: Revision) {
    let mut watch = client.watch(since);
    let mut last = (since, u32::MAX);
    while let Some(item) = watch.next().await {
        let events = match item {
            WatchItem::Events(events) => events,
            WatchItem::Idle(_) => continue,
            // A watch is compacted only after a restart of a leader that was behind: it then starts at the newest
            // snapshot's revision. The test does not expect that.
            WatchItem::Compacted { oldest } => panic!("compacted at {oldest}, was at {last:?}"),
        };
        let mut watched = world.watched.lock().unwrap();
        for event in events {
            let place = (event.revision, event.ordinal);
            assert!(place > last, "{place:?} after {last:?}");
            last = place;
            watched.revisions.insert(event.revision);
            if let EventKind::Node { record } = event.kind {
                let held = |n: &Node| n.holder.map(|h| h.allocation);
                let before = watched.nodes.get(&record.id).and_then(held);
                if before.is_some() && held(&record).is_some() && before != held(&record) {
                    watched.stolen.push(record.id.clone());
                }
                watched.nodes.insert(record.id.clone(), record);
            }
        }
    }
}

/// Waits until all three members answer and agree on a leader, and returns that leader.
async fn all_agree(client: &QuorumClient) -> VoterId {
    let agreed = Cell::new(None);
    until("all members agree on a leader", || async {
        let statuses = client.status().await;
        let leaders: BTreeSet<_> = statuses
            .iter()
            .map(|(_, s)| s.as_ref().ok().and_then(|s| s.leader))
            .collect();
        let one = leaders.first().copied().flatten();
        agreed.set(one.filter(|_| leaders.len() == 1));
        agreed.get().is_some()
    })
    .await;
    agreed.get().unwrap()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

async fn prepare(client: &QuorumClient) -> (Fence, LiveState) {
    let mut commands = vec![create_project("atlas", 1000)];
    for i in 0..NODES {
        let name = format!("n{i:02}");
        commands.extend([register(&name), ready(&name)]);
    }
    let keyed = commands
        .into_iter()
        .enumerate()
        .map(|(i, command)| admin(Some(format!("prepare-{i}")), command));
    for reply in client.propose_all(keyed.collect()).await.unwrap() {
        reply.unwrap();
    }
    let lease = LeaseName::new("schedule.default").unwrap();
    let acquire = Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    };
    let granted = settle(client, common::service(Some("lease".to_owned()), acquire)).await;
    let Outcome::Leased { epoch, .. } = granted.unwrap().outcome else {
        panic!("no lease");
    };
    let Answer::Hot(hot) = client.read(Query::Hot).await.unwrap() else {
        panic!("no hot state");
    };
    (Fence { lease, epoch }, *hot)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_leaders_are_killed() {
    let kills = setting("LATTICE_KILLS", 2);
    let pauses = setting("LATTICE_PAUSES", 1);
    let target = setting("LATTICE_ACKNOWLEDGED", 500 * kills);
    let mut site = Site::prepare("snapshot_every: 500\nlog: warn\n");
    site.start_all();
    let addrs: Vec<SocketAddr> = site.addrs.clone();
    let client = |id: &str| client_of(&site.authority, id, addrs.clone());
    let (chief, killer) = (client("c1"), client("c0"));
    let clients: Vec<_> = (2..6).map(|i| client(&format!("c{i}"))).collect();
    all_agree(&killer).await;
    let (fence, hot) = prepare(&chief).await;
    let world = Arc::new(World {
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        newest: AtomicU64::new(0),
        log: Mutex::default(),
        watched: Mutex::default(),
        fence,
    });
    world.watched.lock().unwrap().nodes =
        hot.nodes.into_iter().map(|n| (n.id.clone(), n)).collect();
    let watching = tokio::spawn(watch(world.clone(), chief.clone(), hot.revision));
    let writers: Vec<_> = (0..WRITERS)
        .map(|i| tokio::spawn(write(world.clone(), clients[i % clients.len()].clone(), i)))
        .collect();
    let readers: Vec<_> = (0..READERS)
        .map(|i| tokio::spawn(read(world.clone(), client(&format!("r{i}")))))
        .collect();

    let started = Instant::now();
    let mut outages = Vec::new();
    for kill in 1..=kills {
        until("enough is written before the next kill", || async {
            world.count() >= target * (kill - 1) / kills + 100
        })
        .await;
        let leader = all_agree(&killer).await;
        site.kill(leader);
        let killed = Instant::now();
        let probe = submit("atlas", 1, &format!("after-kill-{kill}"));
        let probe = admin(Some(format!("after-kill-{kill}")), probe);
        settle(&killer, probe).await.unwrap();
        outages.push(killed.elapsed());
        site.start(leader);
    }
    for _ in 0..pauses {
        let leader = all_agree(&killer).await;
        site.signal(leader, "STOP");
        tokio::time::sleep(PAUSE).await;
        site.signal(leader, "CONT");
    }
    until("enough is acknowledged", || async {
        world.count() >= target
    })
    .await;
    let took = started.elapsed();
    world.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let mut reads = 0;
    for reader in readers {
        reads += reader.await.unwrap();
    }
    let log = std::mem::take(&mut *world.log.lock().unwrap());
    let newest = log.iter().map(|a| a.revision).max().unwrap();
    until("the watch has told everything", || async {
        watching.is_finished() || {
            let watched = world.watched.lock().unwrap();
            watched.revisions.last() >= Some(&newest)
        }
    })
    .await;
    assert!(!watching.is_finished(), "the watch ended");
    watching.abort();

    for id in 1..=3 {
        site.kill(id);
    }
    site.start_all();
    all_agree(&killer).await;
    check(&killer, &world, &log, kills).await;
    for id in 1..=3 {
        let printed = site.printed(id);
        for bad in ["predicted state was wrong", "panicked", "broke down"] {
            assert!(!printed.contains(bad), "member {id}: {printed}");
        }
    }
    outages.sort();
    let ms = |d: &Duration| d.as_millis();
    println!(
        "{} commands acknowledged in {:.1} s ({WRITERS} writers), {kills} leaders killed and {pauses} \
         paused, {reads} reads none of them stale; first \
         write after a kill: median {} ms, max {} ms",
        log.len(),
        took.as_secs_f64(),
        outages.get(outages.len() / 2).map_or(0, ms),
        outages.last().map_or(0, ms),
    );
    println!(
        "each read back after all members were killed and restarted; none applied twice; no node with two owners"
    );
}

async fn all_allocations(client: &QuorumClient) -> BTreeMap<AllocationId, Allocation> {
    let mut found = BTreeMap::new();
    loop {
        let after = found
            .last_key_value()
            .map_or(AllocationId(0), |(id, _)| *id);
        let query = Query::Allocations {
            after,
            limit: 2000,
            states: Vec::new(),
            within: None,
        };
        let Answer::Allocations(page) = client.read(query).await.unwrap() else {
            panic!("no allocations");
        };
        if page.is_empty() {
            return found;
        }
        found.extend(page.into_iter().map(|a| (a.id, a)));
    }
}

/// Compares the acknowledged commands with the state.
async fn check(client: &QuorumClient, world: &World, log: &[Acknowledged], kills: u64) {
    let found = all_allocations(client).await;
    let names: BTreeSet<_> = found
        .values()
        .map(|a| a.spec.name.clone().unwrap())
        .collect();
    assert_eq!(names.len(), found.len(), "a submit was applied twice");
    let revisions: BTreeSet<_> = log.iter().map(|a| a.revision).collect();
    assert_eq!(revisions.len(), log.len(), "two commands share a revision");
    let mut submits = 0;
    for Acknowledged {
        key,
        revision,
        what,
    } in log
    {
        let id = match what {
            WriteKind::Submitted(id) | WriteKind::Started(id) | WriteKind::Ended(id) => id,
            WriteKind::Assigned(id, _) => id,
        };
        let record = found.get(id).unwrap_or_else(|| panic!("{key} is lost"));
        assert!(
            record.revision >= *revision,
            "{key}: older than acknowledged"
        );
        let name = record.spec.name.as_deref().unwrap();
        assert_eq!(key.split('/').next(), Some(name), "{key}: another's record");
        assert!(record.attempt <= 1, "{key}: assigned twice");
        match what {
            WriteKind::Submitted(_) => submits += 1,
            WriteKind::Assigned(_, node) => {
                assert_eq!(record.nodes().collect::<Vec<_>>(), [node], "{key}");
            }
            WriteKind::Started(_) => assert!(record.started_at.is_some(), "{key}"),
            WriteKind::Ended(_) => assert_eq!(record.state, AllocationState::Completed, "{key}"),
        }
    }
    // All proposers waited for their answers, so every record was acknowledged: there are no more.
    assert_eq!(found.len() as u64, submits + kills);
    {
        let watched = world.watched.lock().unwrap();
        let unseen: Vec<_> = revisions.difference(&watched.revisions).collect();
        assert!(unseen.is_empty(), "never watched: {unseen:?}");
        assert!(
            watched.stolen.is_empty(),
            "two owners: {:?}",
            watched.stolen
        );
    }
    let Answer::Hot(hot) = client.read(Query::Hot).await.unwrap() else {
        panic!("no hot state");
    };
    assert_eq!(hot.nodes.len(), NODES);
    let held: BTreeMap<_, _> = hot
        .nodes
        .iter()
        .filter_map(|n| Some((n.holder?.allocation, n.id.clone())))
        .collect();
    let holding: BTreeMap<_, _> = found
        .values()
        .filter(|a| a.state.holds())
        .map(|a| (a.id, a.ranks[0].node.clone()))
        .collect();
    assert_eq!(
        held, holding,
        "nodes and allocations disagree on who holds what"
    );
    let owned: BTreeSet<_> = holding.values().collect();
    assert_eq!(owned.len(), holding.len(), "a node has two owners");
    assert_eq!(hot.projects[0].path, common::path("atlas"));
}
