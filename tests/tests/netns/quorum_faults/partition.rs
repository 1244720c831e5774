//! Network cuts between members: hosts of their own that cannot reach each other, in one direction or both.

use super::{PROGRAM, all_there_whoever_leads, others};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::VoterId;
use lattice_tests::{
    members::{IDS, Members, caught_up, led},
    netns::Network,
    recorder::{Recorder, prepare},
    wait::LivenessChecks,
};
use std::time::{Duration, Instant};
use tokio::sync::MutexGuard;

/// Direction of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutDirection {
    /// No packets to or from the member, including those of clients.
    Off,
    /// The other members do not receive the member's packets; clients do.
    Mute,
    /// The member does not receive the other members' packets; clients are not affected.
    Deaf,
}

/// Shortest cut: several times the duration of an election.
const LASTS: Duration = Duration::from_secs(5);

fn cut(members: &Members, cut: CutDirection, id: VoterId) {
    let (network, own) = (members.network(), members.host(id));
    match cut {
        CutDirection::Off => network.unplug(own),
        CutDirection::Mute => {
            for other in others(id) {
                network.mute(own, members.host(other));
            }
        }
        CutDirection::Deaf => {
            for other in others(id) {
                network.mute(members.host(other), own);
            }
        }
    }
}

fn heal(members: &Members, cut: CutDirection, id: VoterId) {
    let (network, own) = (members.network(), members.host(id));
    match cut {
        CutDirection::Off => network.heal(own),
        CutDirection::Mute => {
            for other in others(id) {
                network.unmute(own, members.host(other));
            }
        }
        CutDirection::Deaf => {
            for other in others(id) {
                network.unmute(members.host(other), own);
            }
        }
    }
}

struct Quorum {
    members: Members,
    client: QuorumClient,
    recorder: Recorder,
    /// Dropped after the network of the members.
    _turn: MutexGuard<'static, ()>,
}

async fn quorum(name: &str) -> Option<Quorum> {
    let turn = Network::turn().await?;
    let mut members = Members::on_hosts(PROGRAM, "snapshot_every: 1000\n");
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[]).await;
    led(&client, &IDS).await;
    let recorder = Recorder::start(&client, name, 8);
    recorder.writes(100).await;
    Some(Quorum {
        members,
        client,
        recorder,
        _turn: turn,
    })
}

/// A leader is replaced by a follower when the followers do not receive its packets, or it does not receive theirs. It
/// returns without an election.
async fn a_leader_is_replaced(how: CutDirection) {
    let Some(mut q) = quorum("leader-cut").await else {
        return;
    };
    let (mut cost, mut free) = (0, 0);
    while free == 0 {
        let mut machine = LivenessChecks::begin();
        let (leader, term) = led(&q.client, &IDS).await;
        cut(&q.members, how, leader);
        let begun = Instant::now();
        let (next, later) = led(&q.client, &others(leader)).await;
        let elected = begun.elapsed();
        assert!(
            next != leader && later > term,
            "{next} in {later} after {term}"
        );
        q.recorder.writes(50).await;
        let served = begun.elapsed();
        tokio::time::sleep(LASTS.saturating_sub(begun.elapsed())).await;
        let (next, later) = led(&q.client, &others(leader)).await;
        heal(&q.members, how, leader);
        caught_up(&q.client, leader).await;
        q.recorder.writes(50).await;
        let (leads, now) = led(&q.client, &IDS).await;
        println!(
            "{how:?} leader: another after {} ms, 50 writes after {} ms; term {term}, {later}, {now}",
            elected.as_millis(),
            served.as_millis()
        );
        match (leads, now) == (next, later) {
            true => free += 1,
            false => cost += usize::from(machine.may_blame(Instant::now())),
        }
        assert!(cost < 3, "its return costs elections");
    }
    let acknowledged = q.recorder.stop().await;
    all_there_whoever_leads(&mut q.members, &q.client, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_replaced() {
    a_leader_is_replaced(CutDirection::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_followers_do_not_hear_is_replaced() {
    a_leader_is_replaced(CutDirection::Mute).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_does_not_hear_its_followers_is_replaced() {
    a_leader_is_replaced(CutDirection::Deaf).await;
}

/// A cut follower causes no election, neither during the cut nor afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_follower_deposes_no_leader() {
    let Some(mut q) = quorum("follower-cut").await else {
        return;
    };
    for how in [CutDirection::Off, CutDirection::Mute, CutDirection::Deaf] {
        let mut cost = 0;
        loop {
            let mut machine = LivenessChecks::begin();
            let (leader, term) = led(&q.client, &IDS).await;
            let follower = others(leader)[0];
            cut(&q.members, how, follower);
            let begun = Instant::now();
            while begun.elapsed() < LASTS {
                q.recorder.writes(20).await;
            }
            heal(&q.members, how, follower);
            caught_up(&q.client, follower).await;
            q.recorder.writes(50).await;
            let (leads, now) = led(&q.client, &IDS).await;
            println!("{how:?} follower: {leader} leads in {term}, {leads} in {now}");
            if (leads, now) == (leader, term) {
                break;
            }
            // A stalled machine may cause elections by itself.
            cost += usize::from(machine.may_blame(Instant::now()));
            assert!(cost < 3, "a follower that is {how:?} deposes leaders");
        }
    }
    let acknowledged = q.recorder.stop().await;
    all_there_whoever_leads(&mut q.members, &q.client, &acknowledged).await;
}
