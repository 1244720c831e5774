//! Membership changes at runtime: additions, removals, and required refusals.

use crate::common::{
    self, Cluster, admin,
    changes::{add, audit, change, create, remove, voters},
    until,
};
use lattice_quorum::App;
use lattice_quorum_types::{
    Command, VoterId,
    audit::AuditAction,
    command::{Principal, Privilege},
    membership::ChangeRefusal,
};
use std::{net::SocketAddr, sync::Arc};

/// Waits until these members have the same state digest.
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
async fn removed_member_reports_its_removal() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "before").await;
    let id = cluster.join().await;
    let addr = cluster.members[3].1;
    assert_eq!(change(&client, add(id, addr)).await, Ok(false));
    // A completed change is not repeated.
    assert_eq!(change(&client, add(id, addr)).await, Ok(true));
    let view = client.quorum().await.unwrap();
    assert_eq!(voters(&view), [1, 2, 3, 4]);
    agree(&cluster, &[1, 2, 3, 4]).await;
    // Removal of the leader: another member takes over leadership first.
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
    // The removed member starts no more elections, however long it receives no heartbeat.
    until("the removed member has heard nothing for long", || async {
        let account = cluster.app(old).account().unwrap();
        account.last_contact_ms.is_none_or(|ms| ms > 4000)
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
    // A client configured with the first three members finds the others through them.
    assert!(client.members().contains(&addr), "{:?}", client.members());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_quorum_loss_and_wrong_member() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client("c1");
    create(&client, "one").await;
    let addrs: Vec<SocketAddr> = cluster.addrs();
    let refused = |result: Result<bool, ChangeRefusal>| result.unwrap_err().code();
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
    // Certificate of another member number.
    let id = cluster.join().await;
    let addr = cluster.members[3].1;
    let wrong = change(&client, add(9, addr)).await.unwrap_err();
    assert!(
        wrong.to_string().contains("spiffe://test/quorum/9"),
        "{wrong}"
    );
    // Of three members, two must remain.
    let leader = cluster.leader().await;
    let others: Vec<VoterId> = (1..=3).filter(|id| *id != leader).collect();
    cluster.stop_member(others[0]).await;
    until("the leader misses it", || async {
        let view = client.quorum().await.unwrap();
        let row = view.members.iter().find(|m| m.id == others[0]).unwrap();
        assert!(
            view.warnings.iter().all(|w| !w.contains("no majority: ")),
            "{view:?}"
        );
        row.fault.is_some() && view.warnings.iter().any(|w| w.contains("one more member"))
    })
    .await;
    until("the rest would have no majority", || async {
        match change(&client, remove(others[1])).await {
            Err(ChangeRefusal::NoMajorityLeft {
                voters, reached, ..
            }) => {
                assert_eq!((voters, reached), (2, 1));
                true
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    // The dead member may be removed: two of two remain. Then a new member is added.
    assert_eq!(change(&client, remove(others[0])).await, Ok(false));
    assert_eq!(change(&client, add(id, addr)).await, Ok(false));
    let view = client.quorum().await.unwrap();
    assert_eq!(
        voters(&view),
        [leader.min(others[1]), leader.max(others[1]), 4]
    );
    create(&client, "two").await;
    // A user without administrator rights.
    let user = Principal {
        name: "bob".to_owned(),
        privilege: Privilege::User,
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

#[tokio::test(flavor = "multi_thread")]
async fn only_leader_records_quorum_changes() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let action = AuditAction::SteppedDown {
        member: 1,
        to: None,
    };
    let command = Command::NoteQuorum {
        action: Box::new(action),
    };
    let hasty = common::hasty(&cluster.authority, "c2", cluster.addrs(), 3);
    let forged = hasty.propose(admin(None, command)).await;
    assert!(forged.is_err(), "{forged:?}");
    let entries = audit(&client).await;
    let forged = entries.iter().filter(|e| e.by.name == "alice");
    assert_eq!(forged.count(), 0);
    cluster.stop().await;
}
