//! Reservations: nodes reserved for a time window, and allocations that must not overlap them.

use crate::common::{self, Cluster, dependencies::*, node};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Applied, Command, NodeId, ProjectPath, Refusal, Revision, UnixMillis,
    attestation::{Attestation, Proof},
    audit::AuditAction,
    command::{AttestedNode, Privilege},
    id::ReservationName,
    reservation::{MAX_RESERVATIONS, ReservationSpec},
    spec::AllocationSpec,
    view::{Answer, Query},
};

fn name(text: &str) -> ReservationName {
    text.parse().unwrap()
}

fn names(nodes: &[u32]) -> Vec<NodeId> {
    nodes.iter().map(|n| node(&format!("n{n:03}"))).collect()
}

/// A reservation of these nodes for no user; times in milliseconds after the start.
fn kept(nodes: &[u32], from: u64, until: Option<u64>) -> ReservationSpec {
    ReservationSpec {
        nodes: names(nodes).into_iter().collect(),
        from: common::START.after(from),
        until: until.map(|until| common::START.after(until)),
        users: Default::default(),
        projects: Default::default(),
        reason: "new firmware".to_owned(),
    }
}

fn set(c: &mut Cluster, of: &str, spec: ReservationSpec) -> Result<Applied, Refusal> {
    let (name, spec, expected) = (name(of), Box::new(spec), None);
    let command = Command::SetReservation {
        name,
        spec,
        expected,
    };
    c.propose("olga", Privilege::Operator, command)
}

fn assign(c: &mut Cluster, id: AllocationId, nodes: &[u32]) -> Result<Applied, Refusal> {
    let nodes = c.expected(&names(nodes));
    c.service(Command::Assign { id, nodes })
}

/// One node, with this walltime.
fn lasting(walltime_ms: Option<u64>) -> AllocationSpec {
    AllocationSpec {
        walltime_ms,
        ..common::spec("t", 1)
    }
}

#[test]
fn work_that_would_still_run_then_is_not_placed_there() {
    let mut c = Cluster::with_nodes(6);
    set(&mut c, "firmware", kept(&[0, 1], 10_000, Some(20_000))).unwrap();
    c.reopen();
    let given = |c: &mut Cluster, walltime_ms| {
        let id = c.submit(lasting(walltime_ms)).unwrap();
        let given = assign(c, id, &[0]);
        if given.is_ok() {
            c.end_all(id, DONE);
        }
        given.map(|_| ())
    };
    let nodes = vec![(node("n000"), name("firmware"))];
    let refused = Err(Refusal::Reserved { nodes });
    assert_eq!(
        given(&mut c, Some(10_000)),
        Ok(()),
        "it ends as the window begins"
    );
    assert_eq!(given(&mut c, Some(10_001)), refused);
    assert_eq!(given(&mut c, None), refused, "nobody knows when it ends");
    c.clock = 9_000;
    assert_eq!(given(&mut c, Some(1_000)), Ok(()));
    assert_eq!(given(&mut c, Some(1_001)), refused);
    for clock in [10_000, 19_999] {
        c.clock = clock;
        assert_eq!(given(&mut c, Some(1)), refused);
    }
    c.clock = 20_000;
    assert_eq!(given(&mut c, None), Ok(()), "it is over");
    // On other nodes nothing is reserved.
    c.clock = 20_000;
    set(&mut c, "long", kept(&[1], 20_000, None)).unwrap();
    assert_eq!(given(&mut c, None), Ok(()));
    let id = c.submit(lasting(None)).unwrap();
    assert_eq!(code(assign(&mut c, id, &[1])), "reserved");
    c.clock = 1_000_000_000;
    assert_eq!(code(assign(&mut c, id, &[1])), "reserved");
    c.propose(
        "olga",
        Privilege::Operator,
        Command::DeleteReservation { name: name("long") },
    )
    .unwrap();
    assign(&mut c, id, &[1]).unwrap();
}

#[test]
fn a_checkpoint_leaves_less_time_to_run() {
    let mut c = Cluster::with_nodes(2);
    let id = c.running(writes(lasting(Some(10_000))));
    c.clock = 6_000;
    c.service(Command::WriteCheckpoint {
        id,
        directory: "/scratch".to_owned(),
        timeout_ms: 100,
    })
    .unwrap();
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    set(&mut c, "firmware", kept(&[0, 1], 10_000, None)).unwrap();
    c.user("alice", Command::Requeue { id }).unwrap();
    c.end_all(id, DONE);
    // 4 of 10 seconds are left.
    assign(&mut c, id, &[1]).unwrap();
}

#[test]
fn what_runs_goes_on_and_grows_by_the_time_that_it_still_has() {
    let mut c = Cluster::with_nodes(4);
    let id = c.running(lasting(Some(10_000)));
    set(&mut c, "firmware", kept(&[0, 1], 11_000, None)).unwrap();
    set(&mut c, "sooner", kept(&[2], 9_999, None)).unwrap();
    c.clock = 5_000;
    let grow = |c: &mut Cluster, n| {
        let nodes = c.expected(&names(&[n]));
        c.service(Command::Grow { id, nodes })
    };
    assert_eq!(code(grow(&mut c, 2)), "reserved");
    grow(&mut c, 1).unwrap();
    c.clock = 11_000;
    assert_eq!(c.state_of(id), Running, "nobody is thrown out");
}

#[test]
fn those_it_is_for_use_it_and_work_below_their_projects() {
    let mut c = Cluster::with_nodes(6);
    for project in ["t/a", "t/a/b", "t/c"] {
        c.create(project, Some(common::limits(2))).unwrap();
    }
    let mut spec = kept(&[0, 1, 2, 3, 4, 5], 0, None);
    spec.users.insert("bob".to_owned());
    spec.projects.insert(common::path("t/a"));
    set(&mut c, "course", spec).unwrap();
    let given = |c: &mut Cluster, user: &str, project: &str| {
        let spec = Box::new(common::spec(project, 1));
        let applied = c.user(user, Command::Submit { spec }).unwrap();
        let lattice_quorum_types::Outcome::Submitted { id } = applied.outcome else {
            panic!("{applied:?}")
        };
        let nodes = c.free(1);
        let given = c.service(Command::Assign { id, nodes });
        if given.is_ok() {
            c.end_all(id, DONE);
        }
        given.is_ok()
    };
    for (user, project, expected) in [
        ("bob", "t", true),
        ("bob", "t/c", true),
        ("alice", "t/a", true),
        ("alice", "t/a/b", true),
        ("alice", "t", false),
        ("alice", "t/c", false),
        ("bobby", "t", false),
    ] {
        assert_eq!(
            given(&mut c, user, project),
            expected,
            "{user} in {project}"
        );
    }
    // If two reservations keep a node, both must admit the allocation.
    set(&mut c, "firmware", kept(&[0, 1, 2, 3, 4, 5], 0, None)).unwrap();
    assert!(!given(&mut c, "bob", "t"));
}

#[test]
fn work_that_names_a_reservation_runs_there_and_only_while_it_holds() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = kept(&[0, 1], 1_000, Some(5_000));
    spec.users.insert("alice".to_owned());
    set(&mut c, "course", spec.clone()).unwrap();
    set(&mut c, "others", kept(&[2], 1_000, None)).unwrap();
    let named = |text: &str, nodes| {
        let mut spec = common::spec("t", nodes);
        spec.terms.reservation = Some(name(text));
        spec
    };
    let unknown = c.submit(named("nothing", 1));
    assert_eq!(code(unknown), "unknown_reservation");
    assert_eq!(fault(c.submit(named("others", 1))).0, "reservation");
    assert_eq!(fault(c.submit(named("course", 3))).0, "reservation");
    let id = c.submit(named("course", 1)).unwrap();
    assert_eq!(fault(assign(&mut c, id, &[0])).0, "reservation", "not yet");
    c.clock = 1_000;
    assert_eq!(fault(assign(&mut c, id, &[3])).0, "nodes");
    assign(&mut c, id, &[0]).unwrap();
    let late = c.submit(named("course", 1)).unwrap();
    let array = AllocationSpec {
        terms: lattice_quorum_types::terms::Terms {
            array: Some("0-1".parse().unwrap()),
            ..named("course", 1).terms
        },
        ..named("course", 1)
    };
    let array = c.submit(array).unwrap();
    let element = AllocationId(array.0 + 1);
    assert_eq!(fault(assign(&mut c, element, &[3])).0, "nodes");
    assign(&mut c, element, &[1]).unwrap();
    c.end_all(id, DONE);
    c.clock = 5_000;
    assert_eq!(
        fault(assign(&mut c, late, &[0])).0,
        "reservation",
        "not any more"
    );
    let delete = Command::DeleteReservation {
        name: name("course"),
    };
    c.propose("olga", Privilege::Operator, delete.clone())
        .unwrap();
    assert_eq!(code(assign(&mut c, late, &[0])), "unknown_reservation");
    assert_eq!(code(c.admin(delete)), "unknown_reservation");
}

#[test]
fn reserved_nodes_cannot_be_claimed() {
    let mut c = Cluster::with_nodes(2);
    let mut spec = kept(&[0], 1_000_000, None);
    spec.users.insert("bob".to_owned());
    set(&mut c, "course", spec).unwrap();
    let claim = |c: &mut Cluster, user: &str, n: u32| {
        let expected = c.expected(&names(&[n])).remove(0);
        let attestation = Attestation {
            node: expected.node.clone(),
            boot_id: "b1".to_owned(),
            cohort: None,
            classes: Default::default(),
            read_at: c.now(),
            nonce: [0; 16],
        };
        let node = AttestedNode {
            expected: lattice_quorum_types::command::ExpectedNode {
                boot: Some("b1".to_owned()),
                ..expected
            },
            proof: Proof {
                attestation,
                signature: Default::default(),
                completed: Default::default(),
                conforms: Default::default(),
            },
        };
        let command = Command::ClaimNodes {
            project: common::path("t"),
            nodes: vec![node],
            purpose: String::new(),
        };
        c.user(user, command)
    };
    assert_eq!(code(claim(&mut c, "alice", 0)), "reserved");
    claim(&mut c, "alice", 1).unwrap();
    claim(&mut c, "bob", 0).unwrap();
}

#[test]
fn what_cannot_be_kept_is_refused_with_the_field_named() {
    let mut c = Cluster::with_nodes(2);
    c.clock = 5_000;
    let good = || kept(&[0], 1_000, Some(9_000));
    let change = |edit: fn(&mut ReservationSpec)| {
        let mut spec = good();
        edit(&mut spec);
        spec
    };
    type Edit = fn(&mut ReservationSpec);
    let wrong: [(&str, Edit); 9] = [
        ("nodes", |spec| spec.nodes.clear()),
        ("until", |spec| spec.until = Some(spec.from)),
        ("until", |spec| {
            spec.until = Some(UnixMillis(spec.from.0 + 1))
        }),
        ("reason", |spec| spec.reason = " ".to_owned()),
        ("reason", |spec| spec.reason = "x".repeat(1_025)),
        ("reason", |spec| spec.reason = "a\u{1b}b".to_owned()),
        ("users", |spec| {
            spec.users.insert(String::new());
        }),
        ("users", |spec| {
            spec.users.insert("a\nb".to_owned());
        }),
        ("users", |spec| {
            spec.users = (0..1_001).map(|n| format!("u{n}")).collect();
        }),
    ];
    for (field, edit) in wrong {
        assert_eq!(fault(set(&mut c, "x", change(edit))).0, field);
    }
    let unknown = change(|spec| {
        spec.nodes.insert(node("n999"));
    });
    assert_eq!(code(set(&mut c, "x", unknown)), "unknown_node");
    let unknown = change(|spec| {
        spec.projects.insert(ProjectPath::new("t/none").unwrap());
    });
    assert_eq!(code(set(&mut c, "x", unknown)), "unknown_project");
    for (principal, power) in [
        ("alice", Privilege::User),
        ("service:c1", Privilege::Service),
    ] {
        let command = Command::SetReservation {
            name: name("x"),
            spec: Box::new(good()),
            expected: None,
        };
        assert_eq!(code(c.propose(principal, power, command)), "forbidden");
        let command = Command::DeleteReservation { name: name("x") };
        assert_eq!(code(c.propose(principal, power, command)), "forbidden");
    }
    for n in 0..MAX_RESERVATIONS {
        set(&mut c, &format!("r{n}"), good()).unwrap();
    }
    assert_eq!(fault(set(&mut c, "one-more", good())).0, "name");
    set(&mut c, "r7", kept(&[1], 1_000, None)).unwrap();
}

#[test]
fn reservation_change_needs_version_and_is_audited() {
    let mut c = Cluster::with_nodes(4);
    let changed = |c: &mut Cluster, spec: ReservationSpec, expected: Revision| {
        let (name, spec, expected) = (name("course"), Box::new(spec), Some(expected));
        let command = Command::SetReservation {
            name,
            spec,
            expected,
        };
        c.propose("olga", Privilege::Operator, command)
    };
    assert_eq!(
        code(changed(&mut c, kept(&[0], 1, None), Revision(3))),
        "reservation_changed"
    );
    let made = changed(&mut c, kept(&[0], 1, None), Revision(0)).unwrap();
    assert_eq!(
        code(changed(&mut c, kept(&[0], 2, None), Revision(0))),
        "reservation_changed"
    );
    let again = changed(&mut c, kept(&[0], 1, None), made.revision).unwrap();
    assert!(again.events.is_empty(), "it is so already");
    let other = changed(&mut c, kept(&[1, 2], 1, None), made.revision).unwrap();
    assert!(other.revision > made.revision);
    // The former nodes of the reservation are free.
    let id = c.submit(lasting(None)).unwrap();
    c.clock += 5;
    assert_eq!(code(assign(&mut c, id, &[2])), "reserved");
    assign(&mut c, id, &[0]).unwrap();
    c.propose(
        "olga",
        Privilege::Operator,
        Command::DeleteReservation {
            name: name("course"),
        },
    )
    .unwrap();
    assert_eq!(
        c.state.query(&Query::Reservations),
        Answer::Reservations(vec![])
    );
    let Answer::Audit(entries) = c.state.query(&Query::Audit {
        after: 0,
        limit: 100,
    }) else {
        panic!("audit")
    };
    let changes: Vec<String> = entries
        .iter()
        .filter_map(|entry| match &entry.action {
            AuditAction::ReservationSet {
                nodes,
                before,
                after,
                ..
            } => Some(format!(
                "{} set {nodes:?}: {} {}",
                entry.by.name,
                before.len(),
                after[0]
            )),
            AuditAction::ReservationDeleted { nodes, .. } => {
                Some(format!("{} deleted {}", entry.by.name, nodes.len()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert!(
        changes[0].starts_with("olga set") && changes[0].ends_with("0 nodes: n000"),
        "{changes:?}"
    );
    assert!(changes[1].ends_with("6 nodes: n[001-002]"), "{changes:?}");
    assert_eq!(changes[2], "olga deleted 2");
}
