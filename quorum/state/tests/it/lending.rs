//! Lent and recalled nodes, and the allocations that run on them.

use crate::common::{Cluster, dependencies::*, node, preemption::*};
use lattice_quorum_types::{
    AllocationState::*, Applied, Command, Refusal, VclusterName, allocation::RankExit,
    node::UnavailableReason, progress::MoveReason, vcluster::VclusterPatch,
};

/// Two vClusters; n004 and n005 of `home` are lent to `main`.
fn lent() -> Cluster {
    let mut c = cluster();
    for name in ["main", "home"] {
        c.admin(Command::SetVcluster {
            vcluster: VclusterName::new(name).unwrap(),
            change: Box::new(VclusterPatch {
                description: Some("x".to_owned()),
                ..VclusterPatch::default()
            }),
            expected_version: None,
        })
        .unwrap();
    }
    c.admin(Command::AssignVcluster {
        nodes: names(&[4, 5]),
        vcluster: VclusterName::new("home").unwrap(),
        from: Some(VclusterName::new("main").unwrap()),
    })
    .unwrap();
    for n in [4, 5] {
        let of = c.expected(&names(&[n])).remove(0);
        c.service(Command::LendNode {
            node: of.node,
            to: VclusterName::new("main").unwrap(),
            version: of.version,
        })
        .unwrap();
    }
    c
}

fn recall(c: &mut Cluster, n: u32, wanted: bool) -> Result<Applied, Refusal> {
    let of = c.expected(&names(&[n])).remove(0);
    c.service(Command::ReclaimNode {
        node: of.node,
        wanted,
        version: of.version,
    })
}

fn go_home(c: &mut Cluster, n: u32) -> Result<Applied, Refusal> {
    let of = c.expected(&names(&[n])).remove(0);
    c.service(Command::ReturnNode {
        node: of.node,
        version: of.version,
    })
}

#[test]
fn recalled_node_returns_when_free() {
    let mut c = lent();
    let runs = c.submit(of_class(1, 2)).unwrap();
    assign(&mut c, runs, &[4]).unwrap();
    c.start_all(runs);
    assert_eq!(fault(recall(&mut c, 0, true)).0, "node");
    let version = 1;
    let node_id = node("n004");
    let stale = Command::ReclaimNode {
        node: node_id,
        wanted: true,
        version,
    };
    assert_eq!(code(c.service(stale)), "node_changed");
    for n in [4, 5] {
        c.clock += 1;
        recall(&mut c, n, true).unwrap();
        let since = c.state.node(&names(&[n])[0]).unwrap().reclaimed_at;
        assert_eq!(since, Some(c.now()));
    }
    c.reopen();
    let other = c.submit(of_class(1, 2)).unwrap();
    let by_home = |result: Result<Applied, Refusal>| match result {
        Err(Refusal::NodesTaken { nodes }) => {
            matches!(&nodes[0].by, UnavailableReason::Vcluster { home } if home.as_str() == "home")
        }
        other => panic!("{other:?}"),
    };
    assert!(by_home(assign(&mut c, other, &[5])));
    let nodes = c.expected(&names(&[5]));
    assert!(by_home(c.service(Command::Grow { id: runs, nodes })));
    // Nor is the node promised to an allocation of the borrower.
    let high = c.submit(of_class(1, 9)).unwrap();
    let victims = vec![victim(&c, runs, false)];
    assert!(by_home(preempt(&mut c, high, &[4], victims)));
    assert!(!c.state.node(&node("n005")).unwrap().is_assignable());
    // Without the recall, any allocation of the borrower may get the node.
    recall(&mut c, 5, false).unwrap();
    assign(&mut c, other, &[5]).unwrap();
    // The owner gets the node back when it is free.
    assert_eq!(code(go_home(&mut c, 4)), "ownership_conflict");
    c.end_all(runs, DONE);
    go_home(&mut c, 4).unwrap();
    let home = c.state.node(&node("n004")).unwrap();
    assert_eq!((home.current.as_str(), home.reclaimed_at), ("home", None));
    assert!(home.is_assignable());
}

#[test]
fn recalled_node_is_not_promised() {
    let mut c = lent();
    let low = c.submit(of_class(2, 2)).unwrap();
    assign(&mut c, low, &[3, 4]).unwrap();
    c.start_all(low);
    let high = c.submit(of_class(2, 9)).unwrap();
    let victims = vec![victim(&c, low, false)];
    preempt(&mut c, high, &[3, 4], victims).unwrap();
    recall(&mut c, 4, true).unwrap();
    assert_eq!(promised(&c, high), ["n003"]);
    c.end_all(low, RankExit::Stopped);
    go_home(&mut c, 4).unwrap();
}

#[test]
fn a_promised_node_is_not_lent_but_may_go_home() {
    let mut c = lent();
    let low = c.submit(of_class(2, 2)).unwrap();
    assign(&mut c, low, &[3, 4]).unwrap();
    let high = c.submit(of_class(4, 9)).unwrap();
    let victims = vec![victim(&c, low, false)];
    preempt(&mut c, high, &[2, 3, 4, 5], victims).unwrap();
    let of = c.expected(&names(&[2])).remove(0);
    let lend = Command::LendNode {
        node: of.node,
        to: VclusterName::new("home").unwrap(),
        version: of.version,
    };
    match c.service(lend) {
        Err(Refusal::NodesTaken { nodes }) => {
            assert_eq!(nodes[0].by, UnavailableReason::Promised { id: high });
        }
        other => panic!("{other:?}"),
    }
    go_home(&mut c, 5).unwrap();
    assert_eq!(promised(&c, high), ["n002", "n003", "n004"]);
}

#[test]
fn borrower_yields_to_owner_only() {
    let mut c = lent();
    let low = c.submit(writes(of_class(2, 2))).unwrap();
    assign(&mut c, low, &[3, 4]).unwrap();
    c.start_all(low);
    let with = |c: &mut Cluster, id, home: &str, writes| {
        let victim = victim(c, id, writes);
        let home = VclusterName::new(home).unwrap();
        let reason = MoveReason::Reclaimed { home };
        c.service(Command::MakeRoom { victim, reason })
    };
    assert_eq!(fault(with(&mut c, low, "main", true)).0, "reason");
    let other = c.submit(of_class(1, 2)).unwrap();
    assign(&mut c, other, &[0]).unwrap();
    assert_eq!(fault(with(&mut c, other, "home", false)).0, "reason");
    recall(&mut c, 4, true).unwrap();
    with(&mut c, low, "home", true).unwrap();
    for rank in [0, 1] {
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    c.end_all(low, RankExit::Stopped);
    assert_eq!(
        (c.state_of(low), c.of(low).progress.preempted),
        (Suspended, 1)
    );
    let stop = c.of(low).stop.clone().unwrap().to_string();
    assert_eq!(
        stop,
        "its nodes went back to vCluster home, after checkpoint 1"
    );
}

#[test]
fn a_checkpoint_that_is_being_written_is_the_last_one_on_lent_nodes() {
    for (is_whole, expected) in [(true, Suspended), (false, Failed)] {
        let mut c = lent();
        let low = c.submit(writes(of_class(2, 2))).unwrap();
        assign(&mut c, low, &[3, 4]).unwrap();
        c.start_all(low);
        c.user(
            "alice",
            Command::WriteCheckpoint {
                id: low,
                directory: "/scratch".to_owned(),
                timeout_ms: 3_600_000,
            },
        )
        .unwrap();
        let asked_at = c.now();
        c.clock += 1_000;
        recall(&mut c, 4, true).unwrap();
        let leave = |number, home: &str, timeout_ms| Command::LeaveAfterCheckpoint {
            id: low,
            number,
            home: VclusterName::new(home).unwrap(),
            timeout_ms,
        };
        assert_eq!(fault(c.service(leave(1, "main", 5_000))).0, "reason");
        assert_eq!(fault(c.service(leave(1, "home", 0))).0, "timeout_ms");
        assert_eq!(code(c.admin(leave(1, "home", 5_000))), "forbidden");
        c.service(leave(1, "home", 5_000)).unwrap();
        let writing = c.of(low).progress.writing.clone().unwrap();
        assert_eq!((writing.number, writing.asked_at), (1, asked_at));
        assert_eq!(writing.until, c.now().after(5_000), "not for an hour");
        let revision = c.state.revision();
        c.clock += 1_000;
        c.service(leave(1, "home", 5_000)).unwrap();
        c.service(leave(2, "home", 5_000)).unwrap();
        assert_eq!(c.state.revision(), revision, "said once, and of this one");
        c.reopen();
        match is_whole {
            true => {
                for rank in [0, 1] {
                    c.checkpointed(low, rank, 1, written(c.now())).unwrap();
                }
            }
            false => {
                let give_up = Command::GiveUpCheckpoint { id: low, number: 1 };
                c.service(give_up).unwrap();
            }
        }
        assert_eq!(c.state_of(low), Stopping);
        c.end_all(low, RankExit::Stopped);
        assert_eq!(
            (c.state_of(low), c.of(low).progress.preempted),
            (expected, 1)
        );
        go_home(&mut c, 4).unwrap();
    }
}

#[test]
fn unneeded_reclaim_lets_job_continue() {
    let mut c = lent();
    let low = c.submit(writes(of_class(2, 2))).unwrap();
    assign(&mut c, low, &[3, 4]).unwrap();
    c.start_all(low);
    recall(&mut c, 4, true).unwrap();
    let victim = victim(&c, low, true);
    let home = VclusterName::new("home").unwrap();
    let reason = MoveReason::Reclaimed { home };
    c.service(Command::MakeRoom { victim, reason }).unwrap();
    c.checkpointed(low, 0, 1, written(c.now())).unwrap();
    recall(&mut c, 4, false).unwrap();
    c.checkpointed(low, 1, 1, written(c.now())).unwrap();
    let progress = &c.of(low).progress;
    assert_eq!((c.state_of(low), progress.preempted), (Running, 0));
    assert_eq!(progress.kept.as_ref().map(|kept| kept.number), Some(1));
}
