//! Preemption and reclaim: victims release nodes for a higher class or for the owner, and the preemptor gets its
//! promised nodes.

use crate::common::{self, Cluster, dependencies::*, node, preemption::*};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Applied, Command, Refusal,
    allocation::{RankExit, StopCause},
    audit::AuditAction,
    command::{Privilege, RankReport, Victim},
    id::ReservationName,
    node::{Lifecycle, UnavailableReason},
    progress::MoveReason,
    reservation::ReservationSpec,
    spec::{AllocationSpec, Requeue},
    view::{Answer, Query},
};

/// Low runs on n000 to n003, and part of it is to be preempted for three nodes of a high one.
fn preempted(low: AllocationSpec, writes: bool) -> (Cluster, AllocationId, AllocationId) {
    let mut c = cluster();
    let low = c.running(low);
    let high = c.submit(of_class(3, 6)).unwrap();
    let victims = vec![victim(&c, low, writes)];
    preempt(&mut c, high, &[2, 3, 4], victims).unwrap();
    (c, low, high)
}

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
fn a_victim_without_a_checkpoint_ends_as_if_its_node_was_lost() {
    for (requeue, expected) in [
        (Requeue::Never, Failed),
        (Requeue::Once, Pending),
        (Requeue::Always, Pending),
    ] {
        let spec = AllocationSpec {
            requeue,
            ..of_class(4, 2)
        };
        let (mut c, low, high) = preempted(spec, false);
        let eligible_at = c.of(low).eligible_at;
        c.clock += 4_000;
        c.end_all(low, RankExit::Stopped);
        let record = c.of(low);
        assert_eq!((record.state, record.eligible_at), (expected, eligible_at));
        let cause = StopCause::Moved {
            reason: MoveReason::Preempted { by: high },
            checkpoint: None,
            has_run: true,
        };
        assert_eq!(record.stop, Some(cause));
        assert_eq!(record.progress.preempted, 1);
        assert_eq!(record.progress.moved_at, Some(c.now()));
    }
}

#[test]
fn a_victim_with_a_checkpoint_is_suspended_and_keeps_its_place() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    assert_eq!(c.state_of(low), Checkpointing);
    for rank in [3, 1, 0, 2] {
        assert_eq!(c.state_of(low), Checkpointing);
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    assert_eq!(c.state_of(low), Stopping);
    c.end_all(low, RankExit::Stopped);
    assert_eq!(
        (c.state_of(low), c.of(low).progress.preempted),
        (Suspended, 1)
    );
    let stop = c.of(low).stop.clone().unwrap().to_string();
    assert_eq!(
        stop,
        format!("preempted by allocation {high}, after checkpoint 1")
    );
    assign(&mut c, high, &[2, 3, 4]).unwrap();
    // As for a submission, limits must allow the allocation, which then waits at its former place.
    c.clock += 9_000;
    let own = c.running(of_class(1, 0));
    c.service(Command::Resume { id: low }).unwrap();
    assert_eq!(
        (c.state_of(low), c.of(low).eligible_at),
        (Pending, common::START)
    );
    assert!(c.of(own).eligible_at > c.of(low).eligible_at);
}

#[test]
fn a_victim_that_did_not_run_yet_has_lost_nothing_in_whatever_attempt() {
    for attempts in 1..4 {
        let mut c = cluster();
        let low = c.submit(of_class(2, 1)).unwrap();
        for _ in 1..attempts {
            c.run(low);
            c.user("alice", Command::Requeue { id: low }).unwrap();
            c.end_all(low, RankExit::Stopped);
        }
        assign(&mut c, low, &[0, 1]).unwrap();
        let high = c.submit(of_class(1, 2)).unwrap();
        // A checkpoint was requested, but there is nothing to write.
        let victims = vec![victim(&c, low, true)];
        preempt(&mut c, high, &[1], victims).unwrap();
        assert_eq!(c.state_of(low), Stopping);
        c.end_all(low, RankExit::Stopped);
        assert_eq!(c.state_of(low), Pending, "attempt {attempts}");
        assert_eq!(c.of(low).progress.preempted, 1);
    }
}

#[test]
fn only_lower_classes_make_room_and_never_class_10_or_sensitive_work() {
    let mut c = cluster();
    let why = |result: Result<Applied, Refusal>| match result {
        Err(Refusal::NotMovable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    for class in [0, 4, 9, 10] {
        let low = c.running(of_class(1, class));
        let n = c.nodes_of(low)[0].clone();
        let with = |c: &mut Cluster, high: u8| {
            let id = c.submit(of_class(1, high)).unwrap();
            let command = Command::Preempt {
                id,
                nodes: vec![n.clone()],
                victims: vec![victim(c, low, false)],
            };
            c.service(command)
        };
        for high in (0..=10).filter(|high| *high <= class) {
            assert!(why(with(&mut c, high)).contains("only classes below"));
        }
        match class {
            10 => {
                let victim = victim(&c, low, false);
                let by = "x".to_owned();
                let reason = MoveReason::Asked { by };
                let given = c.service(Command::MakeRoom { victim, reason });
                assert!(why(given).contains("class is 10"));
            }
            _ => drop(with(&mut c, class + 1).unwrap()),
        }
        c.user("alice", Command::Cancel { id: low }).unwrap();
    }
    let mut c = cluster();
    let low = c.sensitive_work("t", 1);
    c.assign_sensitive(low);
    c.start_all(low);
    let high = c.submit(of_class(1, 10)).unwrap();
    let nodes = c.nodes_of(low);
    let victims = vec![victim(&c, low, false)];
    let given = c.service(Command::Preempt {
        id: high,
        nodes,
        victims,
    });
    assert!(why(given).contains("sensitive"));
}

#[test]
fn unmovable_job_is_left_alone() {
    let mut c = cluster();
    let low = c.running(writes(of_class(4, 2)));
    let high = c.submit(of_class(3, 6)).unwrap();
    let mut old = victim(&c, low, false);
    old.attempt = 0;
    assert_eq!(
        code(preempt(&mut c, high, &[0, 1, 2], vec![old])),
        "stale_attempt"
    );
    let now = victim(&c, low, true);
    let unknown = Victim {
        id: AllocationId(99),
        ..now.clone()
    };
    let given = preempt(&mut c, high, &[0, 1, 2], vec![unknown]);
    assert_eq!(code(given), "unknown_allocation");
    c.service(Command::WriteCheckpoint {
        id: low,
        directory: "/scratch".to_owned(),
        timeout_ms: 100,
    })
    .unwrap();
    assert_eq!(
        code(preempt(&mut c, high, &[0, 1, 2], vec![now.clone()])),
        "wrong_state"
    );
    c.user("alice", Command::Cancel { id: low }).unwrap();
    assert_eq!(
        code(preempt(&mut c, high, &[0, 1, 2], vec![now.clone()])),
        "wrong_state"
    );
    c.end_all(low, RankExit::Stopped);
    assert_eq!(
        code(preempt(&mut c, high, &[0, 1, 2], vec![now])),
        "wrong_state"
    );
    let waits = c.submit(of_class(1, 0)).unwrap();
    let waiting = victim(&c, waits, false);
    let (field, reason) = fault(preempt(&mut c, high, &[0, 1, 2], vec![waiting]));
    assert_eq!(field, "victims");
    assert!(reason.contains("none of the nodes"), "{reason}");
    let by = "x".to_owned();
    let make_room = Command::MakeRoom {
        victim: victim(&c, waits, false),
        reason: MoveReason::Asked { by },
    };
    assert_eq!(code(c.service(make_room)), "wrong_state");
    // If the checkpoint cannot be requested, the whole command is rejected.
    let low = c.running(of_class(4, 2));
    let cannot = victim(&c, low, true);
    assert_eq!(
        fault(preempt(&mut c, high, &[0, 1, 2], vec![cannot])).0,
        "checkpoint"
    );
    assert_eq!(c.state_of(low), Running);
    assert!(promised(&c, high).is_empty());
}

#[test]
fn requests_exactly_the_needed_nodes() {
    let mut c = cluster();
    let low = c.running(of_class(2, 2));
    let other = c.running(of_class(1, 2));
    let high = c.submit(of_class(2, 6)).unwrap();
    let of = |c: &Cluster, id| victim(c, id, false);
    let low_is = of(&c, low);
    let other_is = of(&c, other);
    for (nodes, victims, field) in [
        (vec![0], vec![low_is.clone()], "nodes"),
        (vec![0, 1, 3], vec![low_is.clone()], "nodes"),
        (vec![0, 0], vec![low_is.clone()], "nodes"),
        (vec![0, 1], vec![], "victims"),
        (vec![0, 1], vec![low_is.clone(); 2], "victims"),
        (vec![0, 1], vec![low_is.clone(); 65], "victims"),
        (
            vec![0, 1],
            vec![low_is.clone(), other_is.clone()],
            "victims",
        ),
        (vec![4, 5], vec![low_is.clone()], "victims"),
    ] {
        assert_eq!(
            fault(preempt(&mut c, high, &nodes, victims)).0,
            field,
            "{nodes:?}"
        );
    }
    let taken = |result: Result<Applied, Refusal>| match result {
        Err(Refusal::NodesTaken { nodes }) => nodes.into_iter().next().unwrap().by,
        other => panic!("{other:?}"),
    };
    let by = taken(preempt(&mut c, high, &[1, 2], vec![low_is.clone()]));
    assert!(matches!(by, UnavailableReason::Allocation { id, .. } if id == other));
    assert_eq!(
        code(preempt(&mut c, high, &[1, 9], vec![low_is.clone()])),
        "unknown_node"
    );
    for (lifecycle, owner) in [
        (Lifecycle::Quarantined, None),
        (Lifecycle::Ready, Some("noisy fan")),
    ] {
        let set = |lifecycle| Command::SetLifecycle {
            node: node("n005"),
            lifecycle,
        };
        c.admin(set(lifecycle)).unwrap();
        if let Some(reason) = owner {
            c.admin(Command::Drain {
                node: node("n005"),
                reason: Some(reason.to_owned()),
                expected: None,
            })
            .unwrap();
        }
        let by = taken(preempt(&mut c, high, &[1, 5], vec![low_is.clone()]));
        assert!(
            matches!(by, UnavailableReason::OutOfService { .. }),
            "{by:?}"
        );
        c.admin(set(Lifecycle::Ready)).unwrap();
    }
    preempt(&mut c, high, &[1, 5], vec![low_is.clone()]).unwrap();
    assert_eq!(fault(preempt(&mut c, high, &[1, 5], vec![low_is])).0, "id");
    // A node promised to one allocation is promised to no other.
    let highest = c.submit(of_class(2, 9)).unwrap();
    let by = taken(preempt(&mut c, highest, &[2, 5], vec![other_is]));
    assert_eq!(by, UnavailableReason::Promised { id: high });
}

#[test]
fn nodes_are_promised_to_what_waits_for_nodes_and_may_have_them() {
    let mut c = cluster();
    let low = c.running(of_class(2, 2));
    let now = victim(&c, low, false);
    let with = |c: &mut Cluster, id| preempt(c, id, &[0, 1], vec![now.clone()]);
    let blocked = c
        .submit(AllocationSpec {
            nodes: 2,
            class: 6,
            ..after(&[(low, lattice_quorum_types::terms::Condition::Any)])
        })
        .unwrap();
    assert_eq!(code(with(&mut c, blocked)), "wrong_state");
    let held = c.submit(of_class(2, 6)).unwrap();
    c.user("alice", Command::Hold { id: held }).unwrap();
    assert_eq!(code(with(&mut c, held)), "wrong_state");
    let mut many = of_class(2, 6);
    many.terms.array = Some("0-3".parse().unwrap());
    let many = c.submit(many).unwrap();
    assert_eq!(fault(with(&mut c, many)).0, "id");
    assert_eq!(fault(with(&mut c, AllocationId(many.0 + 1))).0, "id");
    let mut later = of_class(2, 6);
    later.terms.begin_at = Some(c.now().after(1));
    let later = c.submit(later).unwrap();
    assert_eq!(fault(with(&mut c, later)).0, "id");
    // Limits: no victim is preempted for an allocation that could not be assigned the nodes.
    let high = c.submit(of_class(2, 6)).unwrap();
    c.running(of_class(4, 9));
    c.admin(Command::SetLimits {
        changes: vec![lattice_quorum_types::command::LimitChange {
            path: common::path("t"),
            patch: lattice_quorum_types::limit::LimitPatch {
                max_nodes: lattice_quorum_types::limit::Patch::Set(7),
                ..Default::default()
            },
        }],
    })
    .unwrap();
    assert_eq!(code(with(&mut c, high)), "limit_exceeded");
    assert_eq!(c.state_of(low), Running);
    // Nor for nodes that others have reserved.
    c.create("u", Some(common::limits(4))).unwrap();
    let mut own = of_class(2, 6);
    own.project = common::path("u");
    let own = c.submit(own).unwrap();
    let spec = ReservationSpec {
        nodes: names(&[1]).into_iter().collect(),
        from: c.now().after(60_000),
        until: None,
        users: Default::default(),
        projects: Default::default(),
        reason: "new firmware".to_owned(),
    };
    let name: ReservationName = "firmware".parse().unwrap();
    c.admin(Command::SetReservation {
        name: name.clone(),
        spec: Box::new(spec),
        expected: None,
    })
    .unwrap();
    assert_eq!(code(with(&mut c, own)), "reserved");
    c.admin(Command::DeleteReservation { name }).unwrap();
    with(&mut c, own).unwrap();
    // Only the scheduler may preempt.
    let nodes = names(&[0, 1]);
    let (id, victims) = (high, vec![now.clone()]);
    let command = Command::Preempt { id, nodes, victims };
    assert_eq!(code(c.admin(command.clone())), "forbidden");
    let unfenced = c.propose("service:c1", Privilege::Service, command.clone());
    assert_eq!(code(unfenced), "forbidden");
    // Nor may the scheduler of another vCluster, which does not hold the plans of this one.
    let before = c.state_of(now.id);
    for lease in ["schedule.other", "dispatch"] {
        let withdraw = Command::WithdrawPromise { id };
        for command in [command.clone(), withdraw] {
            let (field, reason) = fault(c.under(lease, command));
            assert_eq!(field, "fence");
            assert!(reason.contains("under the lease schedule.main"), "{reason}");
        }
    }
    assert_eq!(c.state_of(now.id), before);
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

/// The promise to high ends in every possible way while low writes its checkpoint.
#[test]
fn unneeded_preemption_lets_job_continue() {
    type Step = fn(&mut Cluster, AllocationId);
    let ways: [Step; 3] = [
        |c, high| drop(c.user("alice", Command::Cancel { id: high }).unwrap()),
        |c, high| drop(c.service(Command::WithdrawPromise { id: high }).unwrap()),
        |c, high| {
            c.add_nodes(3);
            assign(c, high, &[6, 7, 8]).unwrap();
        },
    ];
    for step in ways {
        for is_whole in [true, false] {
            let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
            c.checkpointed(low, 0, 1, written(c.now())).unwrap();
            step(&mut c, high);
            c.reopen();
            assert_eq!(c.state_of(low), Checkpointing, "it is written to its end");
            match is_whole {
                true => {
                    for rank in 1..4 {
                        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
                    }
                }
                false => c
                    .checkpointed(low, 2, 1, not_written(c.now()))
                    .map(drop)
                    .unwrap(),
            }
            let record = c.of(low);
            let (progress, stop) = (&record.progress, &record.stop);
            assert_eq!((record.state, stop), (Running, &None));
            assert_eq!((&progress.writing, progress.preempted), (&None, 0));
            assert_eq!(progress.kept.is_some(), is_whole);
        }
    }
}

#[test]
fn unneeded_rank_end_ends_only_its_part() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    c.user("alice", Command::Cancel { id: high }).unwrap();
    c.end_rank(low, 1, DONE);
    assert_eq!((c.state_of(low), &c.of(low).stop), (Running, &None));
    assert_eq!(c.of(low).progress.failed_checkpoints, 1);
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

#[test]
fn forced_victim_leaves_with_others() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    c.checkpointed(low, 0, 1, written(c.now())).unwrap();
    let command = Command::ForceRelease {
        node: node("n003"),
        reason: "it burns".to_owned(),
        expected: None,
    };
    c.propose("olga", Privilege::Operator, command.clone())
        .unwrap();
    // The checkpoint is incomplete, and the cause is the node.
    assert_eq!(c.state_of(low), Stopping);
    let lost = StopCause::NodeLost { node: node("n003") };
    assert_eq!(c.of(low).stop, Some(lost));
    for rank in 0..3 {
        c.end_rank(low, rank, RankExit::Stopped);
    }
    assert_eq!(c.state_of(low), Failed);
    assert_eq!(c.of(low).progress.kept, None);
    assert_eq!(promised(&c, high), ["n002", "n004"]);
    // Once the checkpoint is complete, force takes a node without failing the allocation.
    let (mut c, low, _) = preempted(writes(of_class(4, 2)), true);
    for rank in 0..4 {
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    c.propose("olga", Privilege::Operator, command).unwrap();
    for rank in 0..3 {
        c.end_rank(low, rank, RankExit::Stopped);
    }
    assert_eq!(
        (c.state_of(low), c.of(low).progress.preempted),
        (Suspended, 1)
    );
}

#[test]
fn several_make_room_at_once_and_one_that_may_not_keeps_all() {
    let mut c = cluster();
    let small = c.running(of_class(1, 1));
    let large = c.running(writes(of_class(3, 2)));
    let fixed = c.running(of_class(1, 6));
    let high = c.submit(of_class(4, 6)).unwrap();
    let all = |c: &Cluster, ids: &[AllocationId]| {
        ids.iter()
            .map(|id| victim(c, *id, *id == large))
            .collect::<Vec<_>>()
    };
    let victims = all(&c, &[small, large, fixed]);
    assert_eq!(
        code(preempt(&mut c, high, &[0, 1, 2, 4], victims)),
        "not_movable"
    );
    assert_eq!([small, large, fixed].map(|id| c.state_of(id)), [Running; 3]);
    let victims = all(&c, &[small, large]);
    preempt(&mut c, high, &[0, 1, 2, 3], victims).unwrap();
    assert_eq!(
        [small, large].map(|id| c.state_of(id)),
        [Stopping, Checkpointing]
    );
}

#[test]
fn cancelled_while_it_makes_room_it_is_cancelled() {
    for writes_first in [false, true] {
        let (mut c, low, high) = preempted(writes(of_class(4, 2)), writes_first);
        c.user("alice", Command::Cancel { id: low }).unwrap();
        c.end_all(low, RankExit::Stopped);
        let record = c.of(low);
        // Without a checkpoint the victim was already failing. The victim must not be requeued, and the cancellation is
        // less informative than the cause of the stop.
        let expected = if writes_first { Cancelled } else { Failed };
        assert_eq!(
            (record.state, record.progress.preempted),
            (expected, u32::from(!writes_first))
        );
        assign(&mut c, high, &[2, 3, 4]).unwrap();
    }
}

#[test]
fn requester_is_the_person() {
    let mut c = cluster();
    let low = c.running(of_class(2, 2));
    let victim = victim(&c, low, false);
    let make_room = |reason| Command::MakeRoom {
        victim: victim.clone(),
        reason,
    };
    let by = low;
    let given = c.service(make_room(MoveReason::Preempted { by }));
    assert_eq!(
        fault(given).0,
        "reason",
        "without a promise nobody is preempted"
    );
    let asked = || MoveReason::Asked {
        by: "somebody else".to_owned(),
    };
    assert_eq!(code(c.user("alice", make_room(asked()))), "forbidden");
    c.propose("olga", Privilege::Operator, make_room(asked()))
        .unwrap();
    let stop = c.of(low).stop.clone().unwrap().to_string();
    assert_eq!(stop, "suspended by olga, without a checkpoint");
    let Answer::Audit(entries) = c.state.query(&Query::Audit {
        after: 0,
        limit: 1_000,
    }) else {
        panic!("audit")
    };
    assert!(entries.iter().any(|entry| matches!(
        &entry.action,
        AuditAction::AllocationActedOn { allocation, what, .. }
            if *allocation == low && what == "move" && entry.by.name == "olga"
    )));
}

#[test]
fn a_member_that_made_room_is_waited_for() {
    let mut c = cluster();
    let low = c.running(writes(of_class(4, 2)));
    let waits = c
        .submit(after(&[(
            low,
            lattice_quorum_types::terms::Condition::Success,
        )]))
        .unwrap();
    let high = c.submit(of_class(3, 6)).unwrap();
    let victims = vec![victim(&c, low, true)];
    preempt(&mut c, high, &[2, 3, 4], victims).unwrap();
    for rank in 0..4 {
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    c.end_all(low, RankExit::Stopped);
    assert_eq!([low, waits].map(|id| c.state_of(id)), [Suspended, Blocked]);
    c.user("alice", Command::Cancel { id: high }).unwrap();
    c.service(Command::Resume { id: low }).unwrap();
    c.run_to(low, DONE);
    assert_eq!(c.state_of(waits), Pending);
}
