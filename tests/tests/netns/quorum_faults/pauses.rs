//! Pauses: SIGSTOP for ten seconds: of the leader, which must not act as leader afterwards, and of a follower.

use super::{PROGRAM, all_there_whoever_leads, others};
use lattice_mesh::{CallError, ExpectedIdentity, Mesh, Peer, Role};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    NodeId,
    view::{Answer, Query},
    wire::{Read, Unavailable},
};
use lattice_tests::{
    members::{IDS, Members, caught_up, led},
    recorder::{Recorder, admin, prepare, settle},
    wait::LivenessChecks,
};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Length of a pause.
const PAUSE: Duration = Duration::from_secs(10);
/// Number of readers that wait for the paused leader.
const READERS: usize = 32;

fn register() -> NodeId {
    NodeId::new("register").unwrap()
}

async fn set(client: &QuorumClient, value: &str) {
    let drain = lattice_quorum_types::Command::Drain {
        node: register(),
        reason: Some(value.to_owned()),
        expected: None,
    };
    settle(client, admin(value, drain)).await.unwrap();
}

fn value_in(answer: &Answer) -> String {
    let Answer::Hot(hot) = answer else {
        panic!("{answer:?}");
    };
    let node = hot.nodes.iter().find(|node| node.id == register()).unwrap();
    node.drain
        .first()
        .map_or(String::new(), |d| d.reason.clone())
}

/// Reads from this member only, over an existing connection. Returns the value, or that the member cannot answer for
/// the quorum now.
async fn ask(peer: &Peer) -> Result<Result<String, Unavailable>, CallError> {
    let asked = peer.call(&Read { query: Query::Hot }, PAUSE * 3).await;
    asked.map(|answer| answer.map(|answer| value_in(&answer)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stood_still_answers_nothing_old_and_accepts_nothing() {
    let mut members = Members::prepare(PROGRAM, "");
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[register()]).await;
    led(&client, &IDS).await;
    let recorder = Recorder::start(&client, "leader-paused", 8);
    recorder.writes(100).await;
    set(&client, "before").await;
    let (leader, term) = led(&client, &IDS).await;
    let meshes: Vec<_> = (0..READERS)
        .map(|reader| members.mesh(&format!("r{reader}")))
        .collect();
    let peer = |mesh: &Mesh| mesh.peer(members.addr(leader), ExpectedIdentity::role(Role::Quorum));
    let peers: Vec<_> = meshes.iter().map(peer).collect();
    for peer in &peers {
        assert_eq!(ask(peer).await.unwrap().unwrap(), "before");
    }
    let paused = Instant::now();
    members.signal(leader, Signal::STOP);
    set(&client, "meanwhile").await;
    let served = paused.elapsed();
    let (next, later) = led(&client, &others(leader)).await;
    assert!(next != leader && later > term, "{next} in {later}");
    // These requests are in the paused leader's socket when it continues.
    let reads = futures::future::join_all(peers.iter().map(ask));
    let hasty = members.client_of_one("c2", leader);
    let write = tokio::spawn(async move { set(&hasty, "through the old one").await });
    let (answers, ()) = tokio::join!(reads, async {
        recorder.writes(100).await;
        tokio::time::sleep(PAUSE.saturating_sub(paused.elapsed())).await;
        members.signal(leader, Signal::CONT);
    });
    let (answered, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    let answered: Vec<_> = answered.into_iter().flatten().collect();
    // Unanswered requests prove nothing.
    assert!(!answered.is_empty(), "{failed:?}");
    for answer in &answered {
        let is_old = answer.as_ref().is_ok_and(|value| value == "before");
        assert!(!is_old, "the deposed leader answered what was overwritten");
    }
    let values = answered.iter().filter(|answer| answer.is_ok()).count();
    write.await.unwrap();
    caught_up(&client, leader).await;
    // The leader that was elected meanwhile still leads, or a later one: the old term is over.
    let (_, now) = led(&client, &IDS).await;
    assert!(now >= later, "{now} after {later}");
    let Answer::Hot(hot) = client.read(Query::Hot).await.unwrap() else {
        panic!("no hot state");
    };
    assert_eq!(value_in(&Answer::Hot(hot)), "through the old one");
    let acknowledged = recorder.stop().await;
    all_there_whoever_leads(&mut members, &client, &acknowledged).await;
    println!(
        "the first write {} ms after the leader was paused; {} of {READERS} reads answered by it \
         when it went on, {values} of them with a value and none with the old one; {} records there",
        served.as_millis(),
        answered.len(),
        acknowledged.len(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_stood_still_costs_nothing() {
    let mut members = Members::prepare(PROGRAM, "");
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[]).await;
    let recorder = Recorder::start(&client, "follower-paused", 8);
    // A stalled machine may cause an election at any time.
    let mut cost = 0;
    for _ in 0..5 {
        let mut machine = LivenessChecks::begin();
        recorder.writes(100).await;
        let (leader, term) = led(&client, &IDS).await;
        let follower = others(leader)[0];
        members.member(follower).signal(Signal::STOP);
        let paused = Instant::now();
        let mut blameless = true;
        while paused.elapsed() < PAUSE {
            recorder.writes(20).await;
            blameless &= machine.may_blame(Instant::now());
        }
        members.member(follower).signal(Signal::CONT);
        caught_up(&client, follower).await;
        let (leads, now) = led(&client, &IDS).await;
        blameless &= machine.may_blame(Instant::now());
        if (leads, now) == (leader, term) {
            let acknowledged = recorder.stop().await;
            return all_there_whoever_leads(&mut members, &client, &acknowledged).await;
        }
        println!("{leads} leads in {now}, after {leader} in {term}; to blame: {blameless}");
        cost += usize::from(blameless);
        assert!(
            cost < 2,
            "a paused follower costs an election, and not once"
        );
    }
    panic!("this machine stands still all the time");
}
