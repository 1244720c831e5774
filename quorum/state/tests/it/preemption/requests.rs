//! Requests for preemption: which victims, nodes, preemptors and requesters are permitted.

use crate::common::{self, Cluster, dependencies::*, node, preemption::*};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Applied, Command, Refusal,
    allocation::RankExit,
    audit::AuditAction,
    command::{Privilege, Victim},
    id::ReservationName,
    node::{Lifecycle, UnavailableReason},
    progress::MoveReason,
    reservation::ReservationSpec,
    spec::AllocationSpec,
    view::{Answer, Query},
};

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
