//! DAGs: accepted completely or not at all, driven by the ends of their members, over when the last member ends.

use crate::common::{self, Cluster, dependencies::*};
use lattice_quorum_types::{
    AllocationId, AllocationState,
    AllocationState::*,
    Command, Outcome, Refusal,
    allocation::StopCause,
    audit::AuditAction,
    command::Privilege,
    dag::{Dag, DagSpec, DagState, Edge, MAX_MEMBERS, MemberSpec},
    event::EventKind,
    id::DagId,
    progress::DagMembership,
    spec::{AllocationSpec, Requeue},
    terms::{Condition, Condition::*},
    view::{Answer, Query},
};

fn member(name: &str, before: &[(&str, Condition)]) -> MemberSpec {
    let edge = |(member, condition): &(&str, Condition)| Edge {
        member: (*member).to_owned(),
        condition: *condition,
    };
    MemberSpec {
        name: name.to_owned(),
        spec: common::spec("t", 1),
        after: before.iter().map(edge).collect(),
    }
}

fn graph(members: Vec<MemberSpec>) -> DagSpec {
    DagSpec {
        name: "night".to_owned(),
        members,
    }
}

fn submit(c: &mut Cluster, dag: DagSpec) -> Result<DagId, Refusal> {
    let dag = Box::new(dag);
    match c.user("alice", Command::SubmitDag { dag })?.outcome {
        Outcome::DagSubmitted { id } => Ok(id),
        other => panic!("{other:?}"),
    }
}

/// Record of a DAG, also of an ended one.
fn dag(c: &Cluster, id: DagId) -> Dag {
    match c.state.query(&Query::Dag { id }) {
        Answer::Dag(Some(dag)) => *dag,
        other => panic!("{other:?}"),
    }
}

fn ids(c: &Cluster, id: DagId) -> Vec<AllocationId> {
    let members = dag(c, id).members;
    members.iter().map(|member| member.allocation).collect()
}

fn states(c: &Cluster, id: DagId) -> Vec<AllocationState> {
    ids(c, id).into_iter().map(|id| c.state_of(id)).collect()
}

fn begun(c: &mut Cluster, members: Vec<MemberSpec>) -> (DagId, Vec<AllocationId>) {
    let id = submit(c, graph(members)).unwrap();
    (id, ids(c, id))
}

#[test]
fn a_diamond_goes_from_its_first_member_to_its_last() {
    let mut c = Cluster::with_nodes(4);
    c.submit(common::spec("t", 1)).unwrap();
    let (id, members) = begun(
        &mut c,
        vec![
            member("join", &[("left", Success), ("right", Success)]),
            member("left", &[("first", Success)]),
            member("right", &[("first", Success)]),
            member("first", &[]),
        ],
    );
    assert_eq!(id, DagId(2));
    assert_eq!(members, [3, 4, 5, 6].map(AllocationId), "behind its own");
    assert_eq!(states(&c, id), [Blocked, Blocked, Blocked, Pending]);
    let place = c.of(members[1]).progress.dag.clone();
    let member = "left".to_owned();
    assert_eq!(place, Some(DagMembership { dag: id, member }));
    c.run_to(members[3], DONE);
    assert_eq!(states(&c, id), [Blocked, Pending, Pending, Completed]);
    c.run_to(members[1], DONE);
    c.reopen();
    assert_eq!(states(&c, id), [Blocked, Completed, Pending, Completed]);
    c.run_to(members[2], DONE);
    assert_eq!(dag(&c, id).state, DagState::Running);
    assert_eq!(dag(&c, id).unfinished, 1);
    c.clock += 7;
    c.run_to(members[0], DONE);
    let ended = dag(&c, id);
    assert_eq!((ended.state, ended.unfinished), (DagState::Completed, 0));
    assert_eq!(ended.ended_at, Some(c.now()));
    assert_eq!(ended.revision, c.state.revision());
    // Ids after those of the DAG go to other allocations.
    assert_eq!(c.submit(common::spec("t", 1)).unwrap(), AllocationId(7));
}

#[test]
fn unstarted_handler_fails_graph() {
    let mut c = Cluster::with_nodes(4);
    // The member that handles the failure depends on one that can never start once the job has failed.
    let (id, of) = begun(
        &mut c,
        vec![
            member("work", &[]),
            member("next", &[("work", Success)]),
            member("mend", &[("work", Failure), ("next", Success)]),
        ],
    );
    c.run_to(of[0], BROKEN);
    assert_eq!(states(&c, id), [Failed, Cancelled, Cancelled]);
    let over = dag(&c, id);
    let failed = over.failed.as_deref();
    assert_eq!((over.state, failed), (DagState::Failed, Some("work")));
    // Another handler that did start has handled the failure.
    let (id, of) = begun(
        &mut c,
        vec![
            member("work", &[]),
            member("next", &[("work", Success)]),
            member("mend", &[("work", Failure), ("next", Success)]),
            member("tidy", &[("work", Any)]),
        ],
    );
    c.run_to(of[0], BROKEN);
    c.run_to(of[3], DONE);
    assert_eq!(dag(&c, id).state, DagState::Completed);
}

#[test]
fn a_member_after_both_ends_of_another_is_refused() {
    let mut c = Cluster::with_nodes(4);
    let both = |one, other| {
        graph(vec![
            member("a", &[]),
            member("b", &[("a", one), ("a", other)]),
        ])
    };
    for (one, other) in [(Success, Failure), (Failure, Corresponding)] {
        let refused = submit(&mut c, both(one, other)).unwrap_err();
        let Refusal::Invalid { field, reason } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(field, "members.b.after");
        assert!(reason.contains("the conditions on a exclude each other"));
    }
    submit(&mut c, both(Success, Any)).unwrap();
}

#[test]
fn expected_failure_keeps_graph() {
    let mut c = Cluster::with_nodes(4);
    let members = || {
        vec![
            member("work", &[]),
            member("mend", &[("work", Failure)]),
            member("tidy", &[("work", Any)]),
            member("go on", &[("work", Success)]),
            member("tell", &[("go on", Any)]),
        ]
    };
    let (id, of) = begun(&mut c, members());
    c.run_to(of[0], BROKEN);
    assert_eq!(
        states(&c, id),
        [Failed, Pending, Pending, Cancelled, Pending]
    );
    for member in [of[1], of[2], of[4]] {
        c.run_to(member, DONE);
    }
    assert_eq!(dag(&c, id).state, DagState::Completed);
    // The same if the job completes: the handler is not needed.
    let (id, of) = begun(&mut c, members());
    c.run_to(of[0], DONE);
    assert_eq!(
        states(&c, id),
        [Completed, Cancelled, Pending, Pending, Blocked]
    );
    for member in [of[2], of[3], of[4]] {
        c.run_to(member, DONE);
    }
    assert_eq!(dag(&c, id).state, DagState::Completed);
}

#[test]
fn unexpected_failure_fails_graph_at_end() {
    let mut c = Cluster::with_nodes(4);
    let (id, of) = begun(
        &mut c,
        vec![
            member("a", &[]),
            member("b", &[("a", Success)]),
            member("c", &[("b", Success)]),
            member("d", &[]),
        ],
    );
    c.run_to(of[0], BROKEN);
    assert_eq!(states(&c, id), [Failed, Cancelled, Cancelled, Pending]);
    let now = dag(&c, id);
    assert_eq!((now.state, now.unfinished), (DagState::Running, 1));
    assert_eq!(now.failed.as_deref(), Some("a"));
    c.run_to(of[3], BROKEN);
    let ended = dag(&c, id);
    assert_eq!(
        (ended.state, ended.failed.as_deref()),
        (DagState::Failed, Some("a"))
    );
}

#[test]
fn one_member_with_a_failure_edge_and_an_any_edge_waits_for_both() {
    let mut c = Cluster::with_nodes(4);
    let both = [("a", Failure), ("b", Any)];
    let (id, of) = begun(
        &mut c,
        vec![member("a", &[]), member("b", &[]), member("both", &both)],
    );
    c.run_to(of[0], BROKEN);
    assert_eq!(c.state_of(of[2]), Blocked);
    c.run_to(of[1], BROKEN);
    assert_eq!(c.state_of(of[2]), Pending);
    c.run_to(of[2], DONE);
    assert_eq!(dag(&c, id).state, DagState::Completed);
    let (id, of) = begun(
        &mut c,
        vec![member("a", &[]), member("b", &[]), member("both", &both)],
    );
    c.run_to(of[0], DONE);
    assert_eq!(c.state_of(of[2]), Cancelled, "b does not matter any more");
    c.run_to(of[1], DONE);
    assert_eq!(dag(&c, id).state, DagState::Completed);
}

#[test]
fn a_cancelled_member_makes_a_cancelled_graph() {
    let mut c = Cluster::with_nodes(4);
    let (id, of) = begun(
        &mut c,
        vec![
            member("a", &[]),
            member("b", &[("a", Success)]),
            member("c", &[("a", Any)]),
            member("d", &[("a", Failure)]),
        ],
    );
    c.user("alice", Command::Cancel { id: of[0] }).unwrap();
    assert_eq!(states(&c, id), [Cancelled, Cancelled, Pending, Cancelled]);
    c.run_to(of[2], DONE);
    let ended = dag(&c, id);
    assert_eq!(ended.state, DagState::Cancelled);
    assert_eq!(ended.cancelled_by.as_deref(), Some("alice"));
}

#[test]
fn a_cancelled_graph_stops_what_runs_and_ends_with_it() {
    let mut c = Cluster::with_nodes(4);
    let (id, of) = begun(
        &mut c,
        vec![
            member("runs", &[]),
            member("done", &[]),
            member("waits", &[("runs", Any)]),
            member("held", &[]),
        ],
    );
    c.run(of[0]);
    c.run_to(of[1], DONE);
    c.user("alice", Command::Hold { id: of[3] }).unwrap();
    assert_eq!(code(c.user("bob", Command::CancelDag { id })), "forbidden");
    c.propose("olga", Privilege::Operator, Command::CancelDag { id })
        .unwrap();
    assert_eq!(states(&c, id), [Stopping, Completed, Cancelled, Cancelled]);
    assert_eq!(dag(&c, id).state, DagState::Running);
    let before = c.state.revision();
    c.user("alice", Command::CancelDag { id }).unwrap();
    assert_eq!(c.state.revision(), before, "a repeat changes nothing");
    c.end_all(of[0], DONE);
    let by = "olga".to_owned();
    assert_eq!(
        c.of(of[0]).stop,
        Some(StopCause::DagCancelled { by: by.clone() })
    );
    let ended = dag(&c, id);
    assert_eq!(
        (ended.state, ended.cancelled_by),
        (DagState::Cancelled, Some(by))
    );
    assert_eq!(
        c.user("alice", Command::CancelDag { id }),
        Err(Refusal::UnknownDag { id })
    );
}

#[test]
fn a_member_that_lost_its_node_is_waited_for() {
    let mut c = Cluster::with_nodes(4);
    let mut first = member("first", &[]);
    first.spec = AllocationSpec {
        requeue: Requeue::Once,
        ..first.spec
    };
    let (id, of) = begun(&mut c, vec![first, member("second", &[("first", Success)])]);
    let eligible_at = c.of(of[0]).eligible_at;
    c.clock += 9_000;
    c.run_to(of[0], lost());
    assert_eq!(states(&c, id), [Pending, Blocked]);
    assert_eq!(c.of(of[0]).eligible_at, eligible_at);
    assert_eq!(dag(&c, id).unfinished, 2);
    c.run_to(of[0], lost());
    assert_eq!(states(&c, id), [Failed, Cancelled]);
    assert_eq!(dag(&c, id).state, DagState::Failed);
}

#[test]
fn members_wait_for_work_outside_too_and_fail_the_graph_where_that_fails() {
    let mut c = Cluster::with_nodes(4);
    let outside = c.submit(common::spec("t", 1)).unwrap();
    let mut first = member("first", &[]);
    first.spec = after(&[(outside, Success)]);
    let (id, of) = begun(&mut c, vec![first, member("second", &[("first", Any)])]);
    assert_eq!(states(&c, id), [Blocked, Blocked]);
    c.run_to(outside, BROKEN);
    assert_eq!(states(&c, id), [Cancelled, Pending]);
    c.run_to(of[1], DONE);
    let ended = dag(&c, id);
    assert_eq!(
        (ended.state, ended.failed.as_deref()),
        (DagState::Failed, Some("first"))
    );
}

#[test]
fn of_members_with_one_mutex_one_is_eligible_in_the_order_of_the_list() {
    let mut c = Cluster::with_nodes(4);
    let locked = |name: &str, before: &[(&str, Condition)]| MemberSpec {
        spec: mutex("db"),
        ..member(name, before)
    };
    let (id, of) = begun(
        &mut c,
        vec![
            locked("after c", &[("c", Success)]),
            locked("b", &[]),
            locked("c", &[]),
        ],
    );
    assert_eq!(states(&c, id), [Blocked, Pending, Blocked]);
    c.run_to(of[1], DONE);
    assert_eq!(states(&c, id), [Blocked, Completed, Pending]);
    c.run_to(of[2], DONE);
    assert_eq!(states(&c, id), [Pending, Completed, Completed]);
    c.run_to(of[0], DONE);
    assert_eq!(dag(&c, id).state, DagState::Completed);
}

#[test]
fn arrays_are_members_and_their_elements_wait_for_each_other() {
    let mut c = Cluster::with_nodes(4);
    let many = |name: &str, indices: &str, before: &[(&str, Condition)]| MemberSpec {
        spec: array(indices),
        ..member(name, before)
    };
    let (id, of) = begun(
        &mut c,
        vec![
            many("make", "0-2", &[]),
            many("take", "1-3", &[("make", Corresponding)]),
            member("sum", &[("take", Any)]),
        ],
    );
    assert_eq!(of, [2, 6, 10].map(AllocationId), "behind the elements");
    assert_eq!(states(&c, id), [Pending, Pending, Blocked]);
    assert_eq!(c.tally(of[1]).pending.iter().collect::<Vec<_>>(), [3]);
    for element in [3, 4, 5].map(AllocationId) {
        c.place(element).unwrap();
        c.end_all(element, if element.0 == 4 { BROKEN } else { DONE });
    }
    assert_eq!(states(&c, id), [Failed, Pending, Blocked]);
    let tally = c.tally(of[1]);
    assert_eq!(tally.pending.iter().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(tally.cancelled.iter().collect::<Vec<_>>(), [1]);
    for element in [8, 9].map(AllocationId) {
        c.place(element).unwrap();
        c.end_all(element, DONE);
    }
    assert_eq!(states(&c, id), [Failed, Cancelled, Pending]);
    c.run_to(of[2], DONE);
    let ended = dag(&c, id);
    assert_eq!(
        (ended.state, ended.failed.as_deref()),
        (DagState::Failed, Some("make"))
    );
}

#[test]
fn elements_that_a_person_cancels_make_a_cancelled_graph() {
    let mut c = Cluster::with_nodes(4);
    for placed in [false, true] {
        let many = MemberSpec {
            spec: array("0-1"),
            ..member("many", &[])
        };
        let (id, of) = begun(&mut c, vec![many]);
        let [first, second] = [1, 2].map(|n| AllocationId(of[0].0 + n));
        if placed {
            c.place(first).unwrap();
        }
        c.user("alice", Command::Cancel { id: first }).unwrap();
        if placed {
            c.end_all(first, DONE);
        }
        c.place(second).unwrap();
        c.end_all(second, DONE);
        assert_eq!(states(&c, id), [Cancelled]);
        let ended = dag(&c, id);
        assert_eq!(ended.state, DagState::Cancelled);
        assert_eq!(ended.cancelled_by.as_deref(), Some("alice"));
    }
}

#[test]
fn what_is_no_graph_is_refused_with_the_field_named() {
    let mut c = Cluster::with_nodes(4);
    let mut refused = |members| fault(submit(&mut c, graph(members)));
    assert_eq!(refused(vec![]).0, "members");
    assert_eq!(refused(vec![member("", &[])]).0, "members[0].name");
    assert_eq!(refused(vec![member("a\n", &[])]).0, "members[0].name");
    assert_eq!(
        refused(vec![member(&"a".repeat(129), &[])]).0,
        "members[0].name"
    );
    let (field, reason) = refused(vec![member("a", &[]), member("a", &[])]);
    assert_eq!(field, "members[1].name");
    assert_eq!(reason, "two members have the name \"a\"");
    let (field, reason) = refused(vec![member("a", &[("b", Success)])]);
    assert_eq!(
        (field.as_str(), reason.as_str()),
        ("members.a.after", "no member has the name \"b\"")
    );
    let twice = [("a", Success), ("a", Success)];
    let (field, _) = refused(vec![member("a", &[]), member("b", &twice)]);
    assert_eq!(field, "members.b.after");
    let (field, reason) = refused(vec![
        member("free", &[]),
        member("c", &[("b", Success), ("free", Any)]),
        member("b", &[("a", Any)]),
        member("a", &[("c", Failure)]),
        member("behind", &[("a", Any)]),
    ]);
    assert_eq!(field, "members");
    assert!(
        ["a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"]
            .iter()
            .any(|way| reason == format!("the members wait for each other: {way}")),
        "{reason}"
    );
    let (_, reason) = refused(vec![member("a", &[("a", Any)])]);
    assert_eq!(reason, "the members wait for each other: a -> a");
    let many = MemberSpec {
        spec: array("0-3"),
        ..member("many", &[])
    };
    let (field, _) = refused(vec![many, member("one", &[("many", Corresponding)])]);
    assert_eq!(field, "members.one.after");
    let mut nothing = member("b", &[]);
    nothing.spec.nodes = 0;
    assert_eq!(
        refused(vec![member("a", &[]), nothing]).0,
        "members.b.nodes"
    );
    assert_eq!(c.state.live_allocations().count(), 0, "all or none");
    let mut large = member("b", &[]);
    large.spec.nodes = 5;
    let refused = submit(&mut c, graph(vec![member("a", &[]), large])).unwrap_err();
    assert_eq!(refused.code(), "limit_exceeded");
    assert!(refused.to_string().starts_with("members.b: "), "{refused}");
    c.create("u", Some(common::limits(4))).unwrap();
    let mut other = member("b", &[]);
    other.spec.project = common::path("u");
    let (field, _) = fault(submit(&mut c, graph(vec![member("a", &[]), other])));
    assert_eq!(field, "members.b.project");
}

#[test]
fn a_graph_has_a_thousand_members_at_most() {
    let mut c = Cluster::with_nodes(1);
    let chain = |members: usize| {
        let names: Vec<String> = (0..members).map(|n| format!("m{n}")).collect();
        let edge = |n: usize| match n.checked_sub(1) {
            Some(before) => member(&names[n], &[(&names[before], Success)]),
            None => member(&names[n], &[]),
        };
        graph((0..members).map(edge).collect())
    };
    let refused = submit(&mut c, chain(MAX_MEMBERS + 1))
        .unwrap_err()
        .to_string();
    let mut lines = refused.lines();
    assert_eq!(
        lines.next(),
        Some("DAG exceeds maximum size (1001 allocations, limit: 1000)")
    );
    assert!(lines.next().unwrap().trim_start().starts_with("Hint: "));
    let id = submit(&mut c, chain(MAX_MEMBERS)).unwrap();
    let of = ids(&c, id);
    for member in &of[..300] {
        c.run_to(*member, DONE);
    }
    c.reopen();
    // All remaining members end by one command, with one change of the DAG.
    let applied = c.user("alice", Command::Cancel { id: of[300] }).unwrap();
    let is_dag = |kind: &EventKind| matches!(kind, EventKind::Dag { .. });
    let dags = applied.events.iter().filter(|event| is_dag(&event.kind));
    assert_eq!(dags.count(), 1);
    assert_eq!(dag(&c, id).state, DagState::Cancelled);
    assert_eq!(c.state.live_allocations().count(), 0);
}

#[test]
fn reports_member_end_before_graph_end() {
    let mut c = Cluster::with_nodes(1);
    let (_, of) = begun(
        &mut c,
        vec![member("a", &[]), member("b", &[("a", Success)])],
    );
    c.run(of[0]);
    let node = c.nodes_of(of[0]).remove(0);
    let ended = lattice_quorum_types::command::RankReport::Ended {
        at: c.now(),
        exit: DONE,
        fault: None,
    };
    let applied = c.report(of[0], &node, ended).unwrap();
    let kinds: Vec<_> = applied
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Allocation { record, .. } => Some(format!("{} {}", record.id, record.state)),
            EventKind::DagProgressed { progress, .. } => {
                Some(format!("{} left", progress.unfinished))
            }
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["2 completed", "3 pending", "1 left"]);
}

#[test]
fn held_member_learns_impossibility() {
    let mut c = Cluster::with_nodes(4);
    let mut held = member("held", &[("first", Success)]);
    held.spec.hold = true;
    let (id, of) = begun(
        &mut c,
        vec![member("first", &[]), held, member("last", &[("held", Any)])],
    );
    assert_eq!(states(&c, id), [Pending, Held, Blocked]);
    c.run_to(of[0], BROKEN);
    assert_eq!(states(&c, id), [Failed, Cancelled, Pending]);
    c.run_to(of[2], DONE);
    assert_eq!(dag(&c, id).state, DagState::Failed);
}

#[test]
fn graphs_are_listed_by_number_and_project() {
    let mut c = Cluster::with_nodes(4);
    c.create("t/a", Some(common::limits(4))).unwrap();
    let mut inner = member("x", &[]);
    inner.spec.project = common::path("t/a");
    let first = submit(&mut c, graph(vec![member("x", &[])])).unwrap();
    let second = submit(&mut c, graph(vec![inner])).unwrap();
    c.run_to(ids(&c, first)[0], DONE);
    let list = |c: &Cluster, after: DagId, within: Option<&str>| {
        let (limit, within) = (10, within.map(common::path));
        let query = Query::Dags {
            after,
            limit,
            within,
        };
        match c.state.query(&query) {
            Answer::Dags(dags) => dags.into_iter().map(|dag| dag.id).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list(&c, DagId(0), None), [first, second]);
    assert_eq!(list(&c, first, None), [second]);
    assert_eq!(list(&c, DagId(0), Some("t/a")), [second]);
    let id = DagId(999);
    assert_eq!(c.state.query(&Query::Dag { id }), Answer::Dag(None));
}

#[test]
fn what_operators_do_to_others_graphs_and_work_is_written_down() {
    let mut c = Cluster::with_nodes(4);
    let mut first = member("a", &[]);
    first.spec = writes(first.spec);
    let (id, of) = begun(&mut c, vec![first, member("b", &[("a", Any)])]);
    c.run(of[0]);
    let a = of[0];
    for command in [
        Command::SetWalltime {
            id: a,
            walltime_ms: 5_000,
        },
        Command::WriteCheckpoint {
            id: a,
            directory: "/scratch".to_owned(),
            timeout_ms: 5,
        },
        Command::Requeue { id: a },
        Command::CancelDag { id },
    ] {
        c.propose("olga", Privilege::Operator, command).unwrap();
    }
    let Answer::Audit(entries) = c.state.query(&Query::Audit {
        after: 0,
        limit: 100,
    }) else {
        panic!("audit")
    };
    let acts: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.action {
            AuditAction::AllocationActedOn {
                allocation, what, ..
            } => Some(format!("{} {what} {allocation}", entry.by.name)),
            _ => None,
        })
        .collect();
    let expected = [
        "olga set the walltime of 2",
        "olga checkpoint 2",
        "olga requeue 2",
        "olga cancel 2",
        "olga cancel 3",
    ];
    assert_eq!(acts, expected);
    // A member that would have been requeued is cancelled.
    c.end_all(a, DONE);
    assert_eq!(dag(&c, id).state, DagState::Cancelled);
}
