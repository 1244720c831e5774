//! Gossip under attack: from outside the cluster, and by a malicious member.

use crate::common::*;
use lattice_gossip::MESSAGE_KIND;
use lattice_mesh::{ExpectedIdentity, MessageDropped, Role};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Message of cell `c0` with any content.
fn of_cell(content: &[u8]) -> bytes::Bytes {
    let mut message = vec![2, b'c', b'0'];
    message.extend_from_slice(content);
    message.into()
}

#[tokio::test]
async fn garbage_from_a_member_is_dropped_and_the_cell_goes_on() {
    let authority = authority();
    let members = agents(&authority, 4).await;
    for member in &members {
        until(&member.cell, "all four", |s| alive(s) == 4).await;
    }
    let bad = mesh(&authority, Role::Agent, "bad");
    let mut garbage: Vec<bytes::Bytes> = (0u8..40)
        .map(|n| of_cell(&vec![n; usize::from(n) * 40]))
        .collect();
    // Almost valid: chitchat's magic number and a type, then invalid bytes.
    garbage.push(of_cell(&[0x53, 0xb0, 1, 0, 1, 2, 3, 4, 5, 6, 7]));
    garbage.push(of_cell(&[0x53, 0xb0, 1, 3]));
    garbage.push(of_cell(&vec![7; 65_507]));
    garbage.push(bytes::Bytes::new());
    garbage.push(bytes::Bytes::from_static(&[200, 1]));
    garbage.push(bytes::Bytes::from_static(&[1, 0xff, 0]));
    let attack = async {
        for round in 0u64.. {
            for (member, message) in members
                .iter()
                .zip(garbage.iter().cycle().skip(round as usize))
            {
                let expect = ExpectedIdentity::role(Role::Agent);
                let peer = bad.peer(member.mesh.local_addr(), expect);
                let _ = peer.send_message(MESSAGE_KIND, message.clone());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let life = async {
        for round in 0..5 {
            let said = format!("round {round}");
            members[round % 4].cell.publish(&saying(&said)).unwrap();
            for member in &members {
                until(&member.cell, "the changed key", |s| {
                    let id = format!("a{}", round % 4);
                    version(s, Role::Agent, &id).as_ref() == Some(&said)
                })
                .await;
            }
        }
        // A message may still be on its way to a member.
        let attacked = async {
            while members.iter().any(|m| m.cell.stats().garbage == 0) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, attacked).await.unwrap();
    };
    tokio::select! {
        () = attack => {}
        () = life => {}
    }
    for member in &members {
        let stats = member.cell.stats();
        println!("{stats:?}");
        assert!(stats.garbage > 0, "{stats:?}");
        assert_eq!(stats.restarts, 0, "{stats:?}");
        assert_few_late(&stats);
        until(&member.cell, "all four still", |s| alive(s) == 4).await;
        let bad = identity(Role::Agent, "bad");
        assert!(member.cell.member(&bad).is_none(), "it never gossiped");
    }
}

#[tokio::test]
async fn a_flood_from_one_member_is_cut_to_its_share() {
    let authority = authority();
    let members = agents(&authority, 2).await;
    let bad = mesh(&authority, Role::Agent, "bad");
    let peer = bad.peer(
        members[0].mesh.local_addr(),
        ExpectedIdentity::role(Role::Agent),
    );
    peer.connected().await.unwrap();
    let cell = &members[0].cell;
    let (before, started_at) = (cell.stats(), Instant::now());
    // A busy machine may send no faster than the limit for a while.
    let cut = async {
        while cell.stats().over_rate <= 100 {
            match peer.send_message(MESSAGE_KIND, of_cell(b"flood")) {
                Ok(()) => {}
                Err(MessageDropped::QueueFull) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let cut = tokio::time::timeout(PATIENCE, cut).await;
    let stats = cell.stats();
    println!("{stats:?}");
    assert!(cut.is_ok(), "{stats:?}");
    let (arrived, cut) = (
        stats.received - before.received,
        stats.over_rate - before.over_rate,
    );
    // Both senders together: 48 messages at once, and 16 in each interval.
    let intervals = started_at.elapsed().div_duration_f64(QUICK);
    let share = 2.0 * (48.0 + 16.0 * intervals);
    assert!(arrived.saturating_sub(cut) as f64 <= share, "{stats:?}");
    until(cell, "the other one still", |s| alive(s) == 2).await;
}

/// A quorum member has a valid certificate, but no role in gossip; a foreign process has neither.
#[tokio::test]
async fn ignores_unauthorized_gossip_peer() {
    let ours = authority();
    let theirs = authority();
    let good = member(&ours, Role::Agent, "a0", &[]).await;
    let seed = [(good.mesh.local_addr(), Role::Agent)];
    let quorum = member(&ours, Role::Quorum, "q1", &seed).await;
    let foreign = member(&theirs, Role::Agent, "a1", &seed).await;
    // Both keep sending.
    let tried = async {
        while quorum.cell.stats().sent < 10 || foreign.cell.stats().sent < 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.unwrap();
    assert_eq!(good.cell.stats().received, 0);
    assert_eq!(good.cell.members().len(), 1, "itself");
    // A permitted member gets through on the same path.
    let control = member(&ours, Role::Control, "c1", &seed).await;
    until(&good.cell, "the control", |s| alive(s) == 2).await;
    until(&control.cell, "the agent", |s| alive(s) == 2).await;
    assert_eq!(good.cell.members().len(), 2);
}

/// Messages of another cell have no effect on a member that receives them.
#[tokio::test]
async fn another_cells_messages_are_not_taken() {
    let authority = authority();
    let members = agents(&authority, 2).await;
    let (mesh, gossip) = gossiping(&authority, Role::Agent, "lost");
    let seeds = [(members[0].mesh.local_addr(), Role::Agent)];
    let lost = join(&gossip, &mesh, config("c9", &seeds), "lost")
        .await
        .unwrap();
    until(&members[0].cell, "both", |s| alive(s) == 2).await;
    let tried = async {
        while lost.stats().sent < 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.unwrap();
    assert_eq!(members[0].cell.members().len(), 2);
    assert_eq!(lost.members().len(), 1);
}
