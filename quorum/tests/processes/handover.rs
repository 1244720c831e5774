//! Changes of leadership and the replacement of a dead machine, under writers: no acknowledged write is lost.

use crate::common::{
    self, Cluster,
    changes::{Writers, add, alice, audit, change, create, remove, voters},
    process::Site,
    until,
};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    VoterId,
    audit::AuditAction,
    membership::{ChangeProgress, ChangeRefusal, MembershipChange},
};

#[tokio::test(flavor = "multi_thread")]
async fn handover_loses_no_acknowledged_write() {
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
        assert_eq!(
            change(&client, MembershipChange::StepDown { to }).await,
            Ok(false)
        );
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
    let acknowledged = writers.none_lost(&client).await;
    println!(
        "{acknowledged} acknowledged, none lost; longest wait of a writer over a step-down: median {} ms, max {} ms",
        gaps[gaps.len() / 2].as_millis(),
        gaps[gaps.len() - 1].as_millis(),
    );
    let refused = change(&client, MembershipChange::StepDown { to: Some(9) }).await;
    assert_eq!(refused.unwrap_err().code(), "no_such_member");
    let leader = cluster.leader().await;
    let to = Some(leader);
    assert_eq!(
        change(&client, MembershipChange::StepDown { to }).await,
        Ok(true)
    );
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
    // Another member leads already when the old leader stops: no election timeout was needed.
    let others: Vec<VoterId> = (1..=3).filter(|id| *id != old).collect();
    let statuses = others.iter().map(|id| cluster.app(*id).status().unwrap());
    let leads: Vec<_> = statuses.filter(|s| s.leader == Some(s.id)).collect();
    assert_eq!(leads.len(), 1, "{leads:?}");
    assert!(leads[0].term > term);
    create(&client, "two").await;
    cluster.stop().await;
}

/// Three processes under writers: one is killed for good and replaced by a fourth, by commands that are interrupted and
/// repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_machine_is_replaced_under_writers() {
    let mut site = Site::prepare("snapshot_every: 300\n");
    site.start_all();
    let client = common::client_of(&site.authority, "c1", site.addrs.clone());
    create(&client, "begin").await;
    let writers = Writers::start(&client, 8);
    // More than a snapshot's worth of entries, so that the new member receives a snapshot.
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
            Err(ChangeRefusal::NotReached { .. })
        )
    })
    .await;
    // The leader dies in the middle of the change, and the command is repeated.
    site.kill(leader);
    site.start(leader);
    change(&client, add(id, addr)).await.unwrap();
    change(&client, remove(dead)).await.unwrap();
    let view = client.quorum().await.unwrap();
    let expected: Vec<VoterId> = (1..=4).filter(|id| *id != dead).collect();
    assert_eq!(voters(&view), expected);
    let counted = writers.count();
    until("writes go on", || async { writers.count() > counted + 100 }).await;
    // The removed member returns with its data, and changes nothing.
    site.start(dead);
    until("the dead one knows that it is none any more", || async {
        site.printed(dead).contains("was removed from the quorum")
    })
    .await;
    let counted = writers.count();
    until("writes go on", || async { writers.count() > counted + 100 }).await;
    let acknowledged = writers.none_lost(&client).await;
    println!("{acknowledged} acknowledged, none lost");
    let entries = audit(&client).await;
    let added = entries
        .iter()
        .filter(|e| matches!(e.action, AuditAction::MemberAdded { .. }));
    assert!(added.count() >= 1);
    for id in expected {
        let printed = site.printed(id);
        for bad in ["predicted state was wrong", "panicked", "broke down"] {
            assert!(!printed.contains(bad), "member {id}: {printed}");
        }
    }
}

/// Performs a single step of a change.
async fn change_once(
    client: &QuorumClient,
    change: MembershipChange,
) -> Result<ChangeProgress, ChangeRefusal> {
    client
        .change_quorum(alice(), "once".to_owned(), change)
        .await
        .unwrap()
}
