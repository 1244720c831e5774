//! Dependencies, mutexes and times: which allocations wait, become eligible, or can never start.

use crate::common::{self, Cluster, dependencies::*, node};
use lattice_quorum_types::{
    AllocationId, AllocationState,
    AllocationState::*,
    Command, Refusal,
    allocation::StopCause,
    audit::AuditAction,
    command::{LimitChange, Privilege},
    limit::{LimitPatch, Patch},
    spec::{AllocationSpec, Requeue},
    terms::{Condition, Condition::*, Dependency},
    view::{Answer, Query},
};

/// An allocation of alice that has ended this way.
fn ended(c: &mut Cluster, end: AllocationState) -> AllocationId {
    let id = c.submit(common::spec("t", 1)).unwrap();
    end_so(c, id, end);
    id
}

fn end_so(c: &mut Cluster, id: AllocationId, end: AllocationState) {
    match end {
        Completed => c.run_to(id, DONE),
        Failed => c.run_to(id, BROKEN),
        _ => drop(c.user("alice", Command::Cancel { id }).unwrap()),
    }
    assert_eq!(c.state_of(id), end);
}

const ENDS: [AllocationState; 3] = [Completed, Failed, Cancelled];

/// Table of ends that meet a condition, in readable form.
fn is_met(condition: Condition, end: AllocationState) -> bool {
    match condition {
        Success | Corresponding => end == Completed,
        Failure => end == Failed,
        Any => true,
    }
}

#[test]
fn each_condition_waits_and_then_goes_on_or_never_will() {
    for condition in Condition::ALL {
        for end in ENDS {
            let mut c = Cluster::with_nodes(4);
            let first = c.submit(common::spec("t", 1)).unwrap();
            let second = c.submit(after(&[(first, condition)])).unwrap();
            assert_eq!(c.state_of(second), Blocked);
            c.clock += 1_000;
            c.reopen();
            end_so(&mut c, first, end);
            let waited = c.of(second).clone();
            if is_met(condition, end) {
                assert_eq!(waited.state, Pending, "{condition} {end}");
                assert_eq!(waited.eligible_at, c.now());
                assert_eq!(waited.submitted_at.0 + 1_000, c.now().0);
                c.run_to(second, DONE);
            } else {
                assert_eq!(waited.state, Cancelled, "{condition} {end}");
                assert_eq!(waited.ended_at, Some(c.now()));
                let (on, ended) = (first, end);
                let cause = StopCause::Unsatisfiable {
                    on,
                    condition,
                    ended,
                };
                assert_eq!(waited.stop, Some(cause));
            }
        }
    }
}

#[test]
fn what_has_ended_already_is_met_at_once_or_refused_by_name() {
    for condition in Condition::ALL {
        for end in ENDS {
            let mut c = Cluster::with_nodes(4);
            let first = ended(&mut c, end);
            let second = c.submit(after(&[(first, condition)]));
            if is_met(condition, end) {
                assert_eq!(c.state_of(second.unwrap()), Pending);
                continue;
            }
            let (field, reason) = fault(second);
            assert_eq!(field, "dependencies");
            assert!(reason.contains(&format!("{first} was {end}")), "{reason}");
        }
    }
}

#[test]
fn rejects_unknown_and_duplicate_dependencies() {
    let mut c = Cluster::with_nodes(4);
    let unknown = c.submit(after(&[(AllocationId(7), Any)]));
    assert_eq!(
        unknown,
        Err(Refusal::UnknownAllocation {
            id: AllocationId(7)
        })
    );
    let first = c.submit(common::spec("t", 1)).unwrap();
    // Nor on the allocation itself: its id is not assigned yet.
    let itself = AllocationId(first.0 + 1);
    assert_eq!(
        code(c.submit(after(&[(itself, Any)]))),
        "unknown_allocation"
    );
    let (field, _) = fault(c.submit(after(&[(first, Any), (first, Any)])));
    assert_eq!(field, "dependencies");
    let many: Vec<_> = (1..=1001).map(|n| (AllocationId(n), Any)).collect();
    assert_eq!(fault(c.submit(after(&many))).0, "dependencies");
}

#[test]
fn one_impossible_dependency_is_enough() {
    let mut c = Cluster::with_nodes(4);
    let runs = c.running(common::spec("t", 1));
    let first = c.submit(common::spec("t", 1)).unwrap();
    let both = c
        .submit(after(&[(runs, Success), (first, Success)]))
        .unwrap();
    let next = c.submit(after(&[(both, Success)])).unwrap();
    let caught = c.submit(after(&[(next, Any), (both, Any)])).unwrap();
    c.user("alice", Command::Cancel { id: first }).unwrap();
    assert_eq!(c.state_of(runs), Running);
    assert_eq!([both, next].map(|id| c.state_of(id)), [Cancelled; 2]);
    assert_eq!(c.state_of(caught), Pending, "any is met by a cancel too");
    let stop = c.of(next).stop.clone().unwrap().to_string();
    assert_eq!(
        stop,
        format!("allocation {both} was cancelled; this one waited for success")
    );
}

#[test]
fn an_end_in_a_thousand_steps_is_one_command() {
    let mut c = Cluster::with_nodes(1);
    let first = c.submit(common::spec("t", 1)).unwrap();
    let mut last = first;
    for _ in 0..1_000 {
        last = c.submit(after(&[(last, Success)])).unwrap();
    }
    c.reopen();
    let applied = c.user("alice", Command::Cancel { id: first }).unwrap();
    assert!(applied.events.len() >= 1_001);
    assert_eq!(c.state_of(last), Cancelled);
    assert_eq!(c.state.live_allocations().count(), 0);
}

#[test]
fn a_thousand_that_wait_for_one_go_on_by_its_end() {
    let mut c = Cluster::with_nodes(1);
    let first = c.submit(common::spec("t", 1)).unwrap();
    let waiting: Vec<_> = (0..1_000)
        .map(|_| c.submit(after(&[(first, Success)])).unwrap())
        .collect();
    let before = c.state.revision();
    c.run(first);
    c.end_all(first, DONE);
    assert!(waiting.iter().all(|id| c.state_of(*id) == Pending));
    assert_eq!(
        c.state.revision().0,
        before.0 + 4,
        "a lease, nodes, start, end"
    );
}

#[test]
fn work_that_lost_its_node_is_waited_for_and_keeps_its_place_in_the_queue() {
    let mut c = Cluster::with_nodes(4);
    let again = lattice_quorum_types::spec::AllocationSpec {
        requeue: Requeue::Always,
        ..common::spec("t", 1)
    };
    let first = c.submit(again).unwrap();
    let second = c.submit(after(&[(first, Success)])).unwrap();
    let eligible_at = c.of(first).eligible_at;
    c.clock += 60_000;
    c.run_to(first, lost());
    assert_eq!(c.state_of(first), Pending);
    assert_eq!(c.of(first).eligible_at, eligible_at);
    assert_eq!(c.state_of(second), Blocked);
    c.run_to(first, DONE);
    assert_eq!(c.state_of(second), Pending);
}

#[test]
fn dependent_job_is_checked_at_submit() {
    let mut c = Cluster::with_nodes(4);
    let runs = c.running(common::spec("t", 4));
    assert_eq!(code(c.submit(common::spec("t", 1))), "limit_exceeded");
    let waits = c.submit(after(&[(runs, Any)])).unwrap();
    let mut too_many = after(&[(runs, Any)]);
    too_many.nodes = 5;
    assert_eq!(code(c.submit(too_many)), "limit_exceeded");
    // Once eligible, the allocation waits for headroom like any other.
    let other = c.submit(after(&[(waits, Any)])).unwrap();
    c.user("alice", Command::Cancel { id: waits }).unwrap();
    assert_eq!(c.state_of(other), Pending);
    c.add_nodes(1);
    let nodes = c.free(1);
    let refused = c.service(Command::Assign { id: other, nodes });
    assert_eq!(code(refused), "limit_exceeded");
    assert_eq!(c.state_of(other), Pending);
    c.end_all(runs, DONE);
    c.run(other);
}

#[test]
fn work_on_hold_stays_there_whoever_ends_and_waits_on_when_it_is_released() {
    let mut c = Cluster::with_nodes(4);
    let (first, second) = (
        c.submit(common::spec("t", 1)).unwrap(),
        c.submit(common::spec("t", 1)).unwrap(),
    );
    let waits = c.submit(after(&[(first, Any), (second, Success)])).unwrap();
    c.user("alice", Command::Hold { id: waits }).unwrap();
    assert_eq!(c.state_of(waits), Held);
    end_so(&mut c, first, Completed);
    assert_eq!(c.state_of(waits), Held);
    c.user("alice", Command::Release { id: waits }).unwrap();
    assert_eq!(c.state_of(waits), Blocked);
    c.user("alice", Command::Hold { id: waits }).unwrap();
    c.reopen();
    // A held allocation that can never start is cancelled as well.
    end_so(&mut c, second, Failed);
    assert_eq!(c.state_of(waits), Cancelled);

    let mut on_hold = after(&[(c.submit(common::spec("t", 1)).unwrap(), Any)]);
    on_hold.hold = true;
    let on = on_hold.terms.after[0].on;
    let waits = c.submit(on_hold).unwrap();
    assert_eq!(c.state_of(waits), Held);
    end_so(&mut c, on, Cancelled);
    assert_eq!(c.state_of(waits), Held);
    c.clock += 5;
    c.user("alice", Command::Release { id: waits }).unwrap();
    assert_eq!(
        (c.state_of(waits), c.of(waits).eligible_at),
        (Pending, c.now())
    );
}

#[test]
fn what_follows_for_others_is_not_done_to_them_by_anybody() {
    let mut c = Cluster::with_nodes(4);
    let first = c.submit(common::spec("t", 1)).unwrap();
    let second = Command::Submit {
        spec: Box::new(after(&[(first, Success)])),
    };
    c.user("bob", second).unwrap();
    c.propose("olga", Privilege::Operator, Command::Cancel { id: first })
        .unwrap();
    let Answer::Audit(entries) = c.state.query(&Query::Audit {
        after: 0,
        limit: 100,
    }) else {
        panic!("audit")
    };
    let acted: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.action {
            AuditAction::AllocationActedOn { allocation, .. } => Some(*allocation),
            _ => None,
        })
        .collect();
    assert_eq!(acted, [first]);
    let other = c.state.allocation(AllocationId(first.0 + 1)).unwrap();
    assert_eq!(other.state, Cancelled);
}

#[test]
fn the_end_of_sensitive_work_that_waited_in_vain_is_written_down() {
    let mut c = Cluster::with_nodes(4);
    let first = c.submit(common::spec("t", 1)).unwrap();
    let mut spec = after(&[(first, Success)]);
    spec.sensitive = true;
    let waits = c.submit(spec).unwrap();
    c.user("alice", Command::Cancel { id: first }).unwrap();
    let Answer::Audit(entries) = c.state.query(&Query::Audit {
        after: 0,
        limit: 100,
    }) else {
        panic!("audit")
    };
    assert!(entries.iter().any(|entry| matches!(
        &entry.action,
        AuditAction::SensitiveEnded { allocation, state: Cancelled, nodes, .. }
            if *allocation == waits && nodes.is_empty()
    )));
}

#[test]
fn one_with_a_mutex_is_eligible_and_the_next_by_order_of_submits() {
    let mut c = Cluster::with_nodes(8);
    let [a, b, d] = [0; 3].map(|_| c.submit(mutex("db")).unwrap());
    let other = c.submit(mutex("disk")).unwrap();
    let states = |c: &Cluster| [a, b, d].map(|id| c.state_of(id));
    assert_eq!(states(&c), [Pending, Blocked, Blocked]);
    assert_eq!(c.state_of(other), Pending, "another name");
    let spec = Box::new(mutex("db"));
    c.user("bob", Command::Submit { spec }).unwrap();
    let bobs = AllocationId(other.0 + 1);
    assert_eq!(c.state_of(bobs), Pending, "another user");
    c.reopen();
    // While the first one is held, the next one becomes eligible, and goes first after the release.
    c.user("alice", Command::Hold { id: a }).unwrap();
    assert_eq!(states(&c), [Held, Pending, Blocked]);
    c.user("alice", Command::Release { id: a }).unwrap();
    assert_eq!(states(&c), [Blocked, Pending, Blocked]);
    c.run(b);
    assert_eq!(states(&c), [Blocked, Running, Blocked]);
    c.end_all(b, BROKEN);
    assert_eq!(states(&c), [Pending, Failed, Blocked]);
    c.user("alice", Command::Cancel { id: a }).unwrap();
    assert_eq!(states(&c), [Cancelled, Failed, Pending]);
}

#[test]
fn mutex_holder_is_checked_for_headroom() {
    let mut c = Cluster::with_nodes(8);
    c.admin(Command::SetLimits {
        changes: vec![LimitChange {
            path: common::path("t"),
            patch: LimitPatch {
                max_nodes: Patch::Set(4),
                ..LimitPatch::default()
            },
        }],
    })
    .unwrap();
    let mut spec = mutex("db");
    spec.nodes = 4;
    let first = c.running(spec.clone());
    let next = c.submit(spec.clone()).unwrap();
    assert_eq!(c.state_of(next), Blocked);
    spec.terms.mutex = Some("disk".to_owned());
    assert_eq!(
        code(c.submit(spec)),
        "limit_exceeded",
        "nobody has that one"
    );
    c.end_all(first, DONE);
    assert_eq!(c.state_of(next), Pending);
}

#[test]
fn suspended_and_requeued_work_keeps_its_mutex() {
    let mut c = Cluster::with_nodes(8);
    let a = c.running(mutex("db"));
    let b = c.submit(mutex("db")).unwrap();
    c.user("alice", Command::Suspend { id: a }).unwrap();
    c.end_all(a, DONE);
    assert_eq!([a, b].map(|id| c.state_of(id)), [Suspended, Blocked]);
    c.user("alice", Command::Resume { id: a }).unwrap();
    assert_eq!([a, b].map(|id| c.state_of(id)), [Pending, Blocked]);
    c.run(a);
    c.user("alice", Command::Requeue { id: a }).unwrap();
    c.end_all(a, DONE);
    assert_eq!([a, b].map(|id| c.state_of(id)), [Pending, Blocked]);
    c.run_to(a, DONE);
    assert_eq!(c.state_of(b), Pending);
}

#[test]
fn of_two_that_may_go_on_by_one_end_the_first_submitted_has_the_mutex() {
    let mut c = Cluster::with_nodes(8);
    let holder = c.submit(mutex("db")).unwrap();
    let first = c.submit(mutex("db")).unwrap();
    let mut both = after(&[(holder, Success)]);
    both.terms.mutex = Some("db".to_owned());
    let second = c.submit(both).unwrap();
    c.run_to(holder, DONE);
    assert_eq!([first, second].map(|id| c.state_of(id)), [Pending, Blocked]);
    c.run_to(first, DONE);
    assert_eq!(c.state_of(second), Pending);
}

#[test]
fn dependent_job_passes_mutex_on() {
    let mut c = Cluster::with_nodes(8);
    let gate = c.submit(common::spec("t", 1)).unwrap();
    let holder = c.submit(mutex("db")).unwrap();
    let mut both = after(&[(gate, Success)]);
    both.terms.mutex = Some("db".to_owned());
    let gated = c.submit(both).unwrap();
    let free = c.submit(mutex("db")).unwrap();
    c.run_to(holder, DONE);
    assert_eq!([gated, free].map(|id| c.state_of(id)), [Blocked, Pending]);
    // The dependency has ended; now the allocation waits for the mutex.
    c.run_to(gate, DONE);
    assert_eq!(c.state_of(gated), Blocked);
    c.run_to(free, DONE);
    assert_eq!(c.state_of(gated), Pending);
}

#[test]
fn work_that_begins_later_is_not_placed_before() {
    let mut c = Cluster::with_nodes(4);
    let begin_at = c.now().after(10_000);
    let mut spec = common::spec("t", 1);
    spec.terms.begin_at = Some(begin_at);
    let id = c.submit(spec.clone()).unwrap();
    assert_eq!((c.state_of(id), c.of(id).eligible_at), (Pending, begin_at));
    c.clock += 9_999;
    assert_eq!(fault(c.place(id)).0, "id");
    c.clock += 1;
    c.place(id).unwrap();
    // The later of the two times counts.
    let first = c.submit(common::spec("t", 1)).unwrap();
    spec.terms.after = vec![Dependency {
        on: first,
        condition: Any,
    }];
    spec.terms.begin_at = Some(c.now().after(500));
    let waits = c.submit(spec).unwrap();
    end_so(&mut c, first, Cancelled);
    assert_eq!(c.of(waits).eligible_at, c.now().after(500));
    c.user("alice", Command::Hold { id: waits }).unwrap();
    c.clock += 600;
    c.user("alice", Command::Release { id: waits }).unwrap();
    assert_eq!(c.of(waits).eligible_at, c.now());
}

#[test]
fn impossible_deadline_is_refused_and_missed_one_ends_job() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = common::spec("t", 1);
    spec.walltime_ms = Some(10_000);
    let with = |deadline_ms: u64, begin_ms: u64| {
        let mut spec = spec.clone();
        spec.terms.deadline_at = Some(common::START.after(deadline_ms));
        spec.terms.begin_at = Some(common::START.after(begin_ms));
        spec
    };
    assert_eq!(fault(c.submit(with(9_999, 0))).0, "deadline");
    assert_eq!(fault(c.submit(with(10_999, 1_000))).0, "deadline");
    let waits = c.submit(with(11_000, 1_000)).unwrap();
    let runs = c.submit(with(12_000, 0)).unwrap();
    let without = c.submit(spec.clone()).unwrap();
    c.run(runs);
    let expire = |c: &mut Cluster, id| c.service(Command::Expire { id });
    for id in [waits, runs, without] {
        assert_eq!(fault(expire(&mut c, id)).0, "id");
    }
    c.clock = 1_001;
    expire(&mut c, waits).unwrap();
    assert_eq!(c.state_of(waits), Cancelled);
    assert_eq!(c.of(waits).stop, Some(StopCause::Deadline));
    // A running allocation may run until the deadline.
    assert_eq!(fault(expire(&mut c, runs)).0, "id");
    c.clock = 12_001;
    expire(&mut c, runs).unwrap();
    assert_eq!(c.state_of(runs), Stopping);
    c.end_all(runs, DONE);
    assert_eq!(c.state_of(runs), Failed);
    let id = without;
    assert_eq!(code(c.admin(Command::Expire { id })), "forbidden");
}

#[test]
fn a_walltime_is_made_shorter_by_its_user_and_longer_by_operators() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = common::spec("t", 1);
    spec.walltime_ms = Some(10_000);
    let id = c.running(spec);
    let set = |walltime_ms| Command::SetWalltime { id, walltime_ms };
    assert_eq!(code(c.user("bob", set(5_000))), "forbidden");
    c.user("alice", set(5_000)).unwrap();
    assert_eq!(code(c.user("alice", set(5_001))), "forbidden");
    assert_eq!(c.of(id).spec.walltime_ms, Some(5_000));
    c.propose("olga", Privilege::Operator, set(60_000)).unwrap();
    assert_eq!(c.of(id).spec.walltime_ms, Some(60_000));
    assert_eq!(fault(c.admin(set(0))).0, "walltime");
    let before = c.state.revision();
    c.admin(set(60_000)).unwrap();
    assert_eq!(c.state.revision(), before, "nothing new");
    assert_eq!(c.of(id).progress.walltime_changes, 2, "its agents are told");
    // Used run time cannot be removed.
    c.clock += 20_000;
    let (field, reason) = fault(c.user("alice", set(15_000)));
    assert_eq!(field, "walltime");
    assert!(reason.contains("has run for 20 s already"), "{reason}");
    c.user("alice", set(30_000)).unwrap();
    c.user("alice", Command::Cancel { id }).unwrap();
    assert_eq!(
        code(c.admin(set(90_000))),
        "wrong_state",
        "it is being ended"
    );
    c.end_all(id, DONE);
    assert_eq!(code(c.admin(set(1))), "wrong_state");
    assert_eq!(c.of(id).spec.walltime_ms, Some(30_000));
    // An allocation without a walltime may get any walltime, since that is shorter.
    let id = c.submit(common::spec("t", 1)).unwrap();
    let walltime_ms = 1 << 50;
    c.user("alice", Command::SetWalltime { id, walltime_ms })
        .unwrap();
    assert_eq!(c.of(id).progress.walltime_changes, 0, "its launch says it");
}

/// A requeued allocation is launched with the walltime of that time, and gets no change of walltime.
#[test]
fn a_walltime_that_is_changed_while_work_runs_counts_for_that_attempt() {
    let mut c = Cluster::with_nodes(4);
    let id = c.running(common::spec("t", 1));
    let set = |walltime_ms| Command::SetWalltime { id, walltime_ms };
    c.user("alice", set(50_000)).unwrap();
    assert_eq!(c.of(id).progress.walltime_changes, 1);
    c.user("alice", Command::Requeue { id }).unwrap();
    c.user("alice", set(40_000)).unwrap();
    c.end_all(id, DONE);
    c.run(id);
    let record = c.of(id);
    assert_eq!((record.attempt, record.progress.walltime_changes), (2, 0));
    assert_eq!(record.walltime_left_ms(), Some(40_000));
}

#[test]
fn requeued_work_gives_its_nodes_back_and_waits_at_its_place() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(common::spec("t", 1)).unwrap();
    c.clock += 1_000;
    assert_eq!(code(c.user("bob", Command::Requeue { id })), "forbidden");
    c.user("alice", Command::Requeue { id }).unwrap();
    c.run(id);
    c.user("alice", Command::Requeue { id }).unwrap();
    assert_eq!(c.state_of(id), Stopping);
    assert!(c.state.node(&node("n000")).unwrap().holder.is_some());
    let by = "alice".to_owned();
    assert_eq!(c.of(id).stop, Some(StopCause::Requeued { by }));
    assert_eq!(
        code(c.user("alice", Command::Requeue { id })),
        "wrong_state"
    );
    c.end_all(id, DONE);
    assert_eq!((c.state_of(id), c.of(id).attempt), (Pending, 1));
    assert_eq!(c.of(id).eligible_at, common::START);
    c.run_to(id, DONE);
    assert_eq!((c.state_of(id), c.of(id).stop.clone()), (Completed, None));
}

#[test]
fn a_project_with_work_that_waits_is_not_empty() {
    let mut c = Cluster::with_nodes(4);
    c.create("t/a", None).unwrap();
    c.admin(Command::DeleteProject {
        path: common::path("t/a"),
    })
    .unwrap();
    let first = c.submit(common::spec("t", 1)).unwrap();
    c.submit(after(&[(first, Success)])).unwrap();
    c.user("alice", Command::Cancel { id: first }).unwrap();
    c.admin(Command::DeleteProject {
        path: common::path("t"),
    })
    .unwrap();
}

/// Dependencies already met do not make an allocation wait, so they cannot bypass the first limit check.
#[test]
fn independent_job_must_fit_at_submit() {
    let mut c = Cluster::with_nodes(4);
    c.create("t/full", Some(common::limits(1))).unwrap();
    let first = c.submit(common::spec("t", 1)).unwrap();
    c.run_to(first, DONE);
    let holds = c.running(common::spec("t/full", 1));
    let on = |on| AllocationSpec {
        terms: after(&[(on, Condition::Success)]).terms,
        ..common::spec("t/full", 1)
    };
    assert_eq!(code(c.submit(on(first))), "limit_exceeded");
    let waits = c.submit(on(holds)).unwrap();
    assert_eq!(
        c.state_of(waits),
        Blocked,
        "it is asked when it is eligible"
    );
}
