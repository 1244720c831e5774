//! Cells from the view of their members.

use crate::common::*;
use lattice_gossip::{
    Boot, GossipLiveness, Health, JoinError, Load, Power, PublishedState, Verdict,
};
use lattice_mesh::Role;
use std::time::Duration;

#[tokio::test]
async fn three_members_share_membership_and_metadata() {
    let authority = authority();
    let members = agents(&authority, 3).await;
    let said = PublishedState {
        fingerprints: [("gpu".to_owned(), format!("1:{}", "ab".repeat(32)))].into(),
        identity: Some("cd".repeat(32)),
        health: Some(Health {
            verdict: Verdict::Degraded,
            reasons: vec!["gpu.xid-63".to_owned()],
        }),
        load: Some(Load {
            running: 2,
            load1_hundredths: 25,
        }),
        power: Some(Power {
            milliwatts: 350_000,
        }),
        boot: Some(Boot {
            boot_id: "b-1".to_owned(),
            incarnation: 3,
        }),
        version: Some("1".to_owned()),
        group: Some("g0".to_owned()),
        history: None,
        grace_ms: Some(5_000),
        https: None,
        keep_output_s: Some(3600),
    };
    members[2].cell.publish(&said).unwrap();
    for member in &members {
        until(&member.cell, "all three", |s| {
            let a2 = s.members.get(&identity(Role::Agent, "a2"));
            alive(s) == 3 && a2.is_some_and(|m| m.published == said)
        })
        .await;
        let a2 = member.cell.member(&identity(Role::Agent, "a2")).unwrap();
        assert_eq!(a2.addr, members[2].mesh.local_addr());
        assert!(a2.unreadable.is_empty());
        assert_eq!(member.cell.alive_peer_count(), 2);
    }
    // An empty state removes all keys everywhere.
    members[2].cell.publish(&PublishedState::default()).unwrap();
    for member in &members {
        until(&member.cell, "nothing said", |s| {
            let a2 = &s.members[&identity(Role::Agent, "a2")];
            a2.published == PublishedState::default()
        })
        .await;
    }
}

#[tokio::test]
async fn ten_members_learn_a_changed_key_and_a_death() {
    let authority = authority();
    let mut members = agents(&authority, 10).await;
    for member in &members {
        until(&member.cell, "all ten", |s| alive(s) == 10).await;
    }
    members[7].cell.publish(&saying("changed")).unwrap();
    for member in &members {
        until(&member.cell, "the changed key", |s| {
            version(s, Role::Agent, "a7").as_deref() == Some("changed")
        })
        .await;
    }
    // Killed, not stopped: the member does not announce its end.
    let dead = members.remove(4);
    dead.mesh.shutdown(Duration::ZERO).await;
    drop(dead);
    for member in &members {
        until(&member.cell, "the death of one", |s| {
            belief(s, Role::Agent, "a4") == Some(GossipLiveness::Silent) && alive(s) == 9
        })
        .await;
    }
    for member in &members {
        let stats = member.cell.stats();
        assert_eq!((stats.garbage, stats.restarts), (0, 0), "{stats:?}");
        assert_few_late(&stats);
    }
}

#[tokio::test]
async fn a_member_that_comes_back_is_one_member_of_a_later_generation() {
    let authority = authority();
    let members = agents(&authority, 3).await;
    let [a0, a1, a2] = members.try_into().ok().unwrap();
    until(&a0.cell, "all three", |s| alive(s) == 3).await;
    a2.cell.leave().await;
    a2.mesh.shutdown(Duration::ZERO).await;
    for member in [&a0, &a1] {
        until(&member.cell, "one gone", |s| alive(s) == 2).await;
    }
    let (mesh, gossip) = gossiping(&authority, Role::Agent, "a2");
    let mut again = config("c0", &[(a0.mesh.local_addr(), Role::Agent)]);
    again.generation = 2;
    let _cell = join(&gossip, &mesh, again, "back").await.unwrap();
    for member in [&a0, &a1] {
        until(&member.cell, "one back", |s| {
            alive(s) == 3
                && s.members.len() == 3
                && version(s, Role::Agent, "a2").as_deref() == Some("back")
        })
        .await;
    }
    let back = a0.cell.member(&identity(Role::Agent, "a2")).unwrap();
    assert_eq!((back.generation, back.addr), (2, mesh.local_addr()));
}

#[tokio::test]
async fn a_control_is_a_member_of_every_cell_and_cells_do_not_mix() {
    let authority = authority();
    let (control, gossip) = gossiping(&authority, Role::Control, "c1");
    let seed = [(control.local_addr(), Role::Control)];
    let mut cells = Vec::new();
    let mut agents = Vec::new();
    for name in ["c0", "c1"] {
        let cell = join(&gossip, &control, config(name, &[]), "control");
        cells.push(cell.await.unwrap());
        for n in 0..2 {
            let (mesh, gossip) = gossiping(&authority, Role::Agent, &format!("{name}-{n}"));
            let cell = join(&gossip, &mesh, config(name, &seed), "agent");
            let cell = cell.await.unwrap();
            agents.push((mesh, cell, gossip));
        }
    }
    for cell in agents.iter().map(|(_, cell, _)| cell).chain(&cells) {
        until(cell, "two agents and the control", |s| alive(s) == 3).await;
    }
    for (cell, name) in cells.iter().zip(["c0", "c1"]) {
        let ids: Vec<_> = cell.members().iter().map(|m| m.identity.clone()).collect();
        let agent = |n: u8| identity(Role::Agent, &format!("{name}-{n}"));
        assert_eq!(ids, [agent(0), agent(1), identity(Role::Control, "c1")]);
    }
    let twice = join(&gossip, &control, config("c1", &[]), "again");
    let refused = twice.await.unwrap_err();
    assert!(
        matches!(refused, JoinError::AlreadyJoined { .. }),
        "{refused}"
    );
    // A cell that was left can be joined again.
    cells[1].leave().await;
    let again = join(&gossip, &control, config("c1", &[]), "again");
    again.await.unwrap();
}

#[tokio::test]
async fn what_cannot_work_is_refused_when_joining() {
    let authority = authority();
    let (mesh, gossip) = gossiping(&authority, Role::Agent, "a0");
    let mut slow = config("c0", &[]);
    slow.interval = Duration::from_secs(61);
    let refused = join(&gossip, &mesh, slow, "x").await.unwrap_err();
    assert!(
        matches!(refused, JoinError::Interval { given_ms: 61_000 }),
        "{refused}"
    );
    let mut nowhere = config("c0", &[]);
    nowhere.advertise = Some("0.0.0.0:7".parse().unwrap());
    let refused = join(&gossip, &mesh, nowhere, "x").await.unwrap_err();
    assert!(matches!(refused, JoinError::NoAddress { .. }), "{refused}");
    let long = "x".repeat(600);
    let refused = join(&gossip, &mesh, config("c0", &[]), &long);
    let refused = refused.await.unwrap_err();
    assert!(matches!(refused, JoinError::NotPublishable(_)), "{refused}");
    // The failed attempts have not registered the cell.
    let cell = gossip
        .join(&mesh, config("c0", &[]), &saying("x"))
        .await
        .unwrap();
    assert!(cell.publish(&saying(&long)).is_err());
}

/// A change on a node arrives at control before the next round is due.
#[tokio::test]
async fn control_receives_change_at_once() {
    let authority = authority();
    let slow = |seeds: &[_]| {
        let mut slow = config("c0", seeds);
        slow.interval = Duration::from_secs(6);
        slow
    };
    let (control, gossip) = gossiping(&authority, Role::Control, "c1");
    let at_control = join(&gossip, &control, slow(&[]), "x").await.unwrap();
    let seed = [(control.local_addr(), Role::Control)];
    let (agent, gossip) = gossiping(&authority, Role::Agent, "a0");
    let at_agent = join(&gossip, &agent, slow(&seed), "y").await.unwrap();
    for cell in [&at_agent, &at_control] {
        until(cell, "both", |s| alive(s) == 2).await;
    }
    for n in 0..3 {
        let said = format!("change {n}");
        at_agent.publish(&saying(&said)).unwrap();
        let limit = Duration::from_millis(4500);
        until_within(&at_control, limit, "the change", |s| {
            version(s, Role::Agent, "a0").as_ref() == Some(&said)
        })
        .await;
        // Changes in quick succession wait for the next round; these are far enough apart.
        tokio::time::sleep(Duration::from_millis(1700)).await;
    }
}
