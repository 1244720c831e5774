//! Promised nodes: how long they are kept for the preemptor, and what ends a promise.

use super::preempted;
use crate::common::{self, Cluster, dependencies::*, node, preemption::*};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Command, Refusal,
    allocation::RankExit,
    command::RankReport,
    node::{Lifecycle, UnavailableReason},
};

#[test]
fn freed_nodes_are_kept_for_preemptor() {
    let (mut c, low, high) = preempted(of_class(4, 2), false);
    assert_eq!(c.state_of(low), Stopping);
    assert_eq!(promised(&c, high), ["n002", "n003", "n004"]);
    c.reopen();
    // No other allocation gets the free node or those that become free.
    let other = c.submit(of_class(1, 9)).unwrap();
    let by_high = |c: &mut Cluster, other, n| match assign(c, other, &[n]) {
        Err(Refusal::NodesTaken { nodes }) => {
            nodes[0].by == UnavailableReason::Promised { id: high }
        }
        other => panic!("{other:?}"),
    };
    assert!(by_high(&mut c, other, 4));
    assert_eq!(
        code(assign(&mut c, high, &[2, 3, 4])),
        "ownership_conflict",
        "held"
    );
    c.end_all(low, RankExit::Stopped);
    assert!(by_high(&mut c, other, 3));
    assert_eq!(promised(&c, high), ["n002", "n003", "n004"]);
    assign(&mut c, other, &[0]).unwrap();
    assign(&mut c, high, &[2, 3, 4]).unwrap();
    assert!(promised(&c, high).is_empty());
    assert_eq!(c.state_of(high), Starting);
}

#[test]
fn promised_nodes_count_against_no_limit_until_they_are_had() {
    let (mut c, low, high) = preempted(of_class(4, 2), false);
    let used = |c: &Cluster| c.state.project(&common::path("t")).unwrap().own.nodes;
    assert_eq!(used(&c), 4);
    c.end_all(low, RankExit::Stopped);
    assert_eq!(used(&c), 0);
    assign(&mut c, high, &[2, 3, 4]).unwrap();
    assert_eq!(used(&c), 3);
}

#[test]
fn a_promise_goes_with_what_it_was_made_to() {
    type Step = fn(&mut Cluster, AllocationId);
    let ways: [(&str, Step); 5] = [
        ("cancel", |c, id| {
            drop(c.user("alice", Command::Cancel { id }).unwrap())
        }),
        ("hold", |c, id| {
            drop(c.user("alice", Command::Hold { id }).unwrap())
        }),
        ("withdraw", |c, id| {
            drop(c.service(Command::WithdrawPromise { id }).unwrap())
        }),
        ("other nodes", |c, id| {
            c.add_nodes(3);
            assign(c, id, &[6, 7, 8]).unwrap();
        }),
        ("deadline", |c, id| {
            c.clock += 100_000;
            c.service(Command::Expire { id }).unwrap();
        }),
    ];
    for (what, step) in ways {
        let mut c = cluster();
        let low = c.running(of_class(4, 2));
        let mut high = of_class(3, 6);
        high.terms.deadline_at = Some(c.now().after(50_000));
        let high = c.submit(high).unwrap();
        let victims = vec![victim(&c, low, false)];
        preempt(&mut c, high, &[2, 3, 4], victims).unwrap();
        let versions = |c: &Cluster| c.expected(&names(&[2, 3, 4]));
        let before = versions(&c);
        step(&mut c, high);
        assert!(promised(&c, high).is_empty(), "{what}");
        let is_newer = |(was, is): (_, _)| {
            let (was, is): (&lattice_quorum_types::command::ExpectedNode, _) = (was, is);
            let is: &lattice_quorum_types::command::ExpectedNode = is;
            is.version > was.version
        };
        assert!(before.iter().zip(&versions(&c)).all(is_newer), "{what}");
        c.end_all(low, RankExit::Stopped);
        let other = c.submit(of_class(2, 0)).unwrap();
        assign(&mut c, other, &[3, 4]).unwrap();
    }
    let mut c = cluster();
    let before = c.state.revision();
    let id = AllocationId(5);
    c.service(Command::WithdrawPromise { id }).unwrap();
    assert!(c.state.revision().0 <= before.0 + 1, "the lease alone");
}

#[test]
fn one_promised_node_is_enough_to_make_room() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    for n in [2, 4] {
        let (node, reason) = (names(&[n]).remove(0), Some("noisy fan".to_owned()));
        let expected = None;
        c.admin(Command::Drain {
            node,
            reason,
            expected,
        })
        .unwrap();
    }
    assert_eq!(promised(&c, high), ["n003"]);
    for rank in 0..4 {
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    assert_eq!(c.state_of(low), Stopping);
}

#[test]
fn node_out_of_service_is_not_promised() {
    let drain = || Command::Drain {
        node: node("n003"),
        reason: Some("noisy fan".to_owned()),
        expected: None,
    };
    let quarantine = Command::SetLifecycle {
        node: node("n003"),
        lifecycle: Lifecycle::Quarantined,
    };
    let force = Command::ForceRelease {
        node: node("n003"),
        reason: "it burns".to_owned(),
        expected: None,
    };
    for command in [drain(), quarantine, force] {
        let (mut c, low, high) = preempted(of_class(4, 2), false);
        c.admin(command).unwrap();
        assert_eq!(promised(&c, high), ["n002", "n004"]);
        let left: Vec<_> = c.nodes_of(low);
        for (rank, node) in left.iter().enumerate() {
            let has = c.state.node(node).unwrap().holder;
            if has.is_some_and(|has| has.allocation == low) {
                c.end_rank(low, rank, RankExit::Stopped);
            }
        }
        assert_eq!(c.state_of(low), Failed);
        assert_eq!(promised(&c, high), ["n002", "n004"]);
        c.service(Command::WithdrawPromise { id: high }).unwrap();
        assign(&mut c, high, &[0, 1, 2]).unwrap();
    }
    // Also by the report of a hook.
    let (mut c, low, high) = preempted(of_class(4, 2), false);
    let (at, exit) = (c.now(), RankExit::Stopped);
    let fault = Some("the epilog failed".to_owned());
    c.report(low, &node("n003"), RankReport::Ended { at, exit, fault })
        .unwrap();
    assert_eq!(promised(&c, high), ["n002", "n004"]);
}
