//! Arrays: one record for many elements; an element gets its own record only with its nodes.

use crate::common::{self, Cluster, dependencies::*};
use lattice_quorum_types::{
    AllocationId, AllocationState,
    AllocationState::*,
    Command, Refusal,
    allocation::{RankExit, StopCause},
    array::IndexSet,
    command::Privilege,
    event::EventKind,
    progress::ArrayElement,
    spec::{AllocationSpec, Requeue, Workload},
    terms::{Condition::*, Dependency},
};

fn numbers(set: &IndexSet) -> Vec<u32> {
    set.iter().collect()
}

/// Id of the element at this position.
fn at(array: AllocationId, place: u64) -> AllocationId {
    AllocationId(array.0 + 1 + place)
}

/// Places an element and ends it with this exit.
fn end(c: &mut Cluster, id: AllocationId, exit: RankExit) {
    c.place(id).unwrap();
    c.end_all(id, exit);
}

fn cancel(c: &mut Cluster, id: AllocationId) {
    c.user("alice", Command::Cancel { id }).unwrap();
}

#[test]
fn an_element_has_a_record_when_it_has_nodes_and_its_array_counts_it() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = array("1,3,5-7");
    spec.name = Some("sweep".to_owned());
    spec.class = 4;
    let id = c.submit(spec).unwrap();
    assert_eq!((id, c.state_of(id)), (AllocationId(1), Pending));
    assert_eq!(c.submit(common::spec("t", 1)).unwrap(), AllocationId(7));
    assert!(c.state.allocation(at(id, 1)).is_none());
    c.clock += 100;
    c.place(at(id, 1)).unwrap();
    c.reopen();
    let element = c.of(at(id, 1));
    let of = ArrayElement {
        array: id,
        index: 3,
    };
    assert_eq!(element.progress.element, Some(of));
    assert_eq!((element.state, element.attempt), (Starting, 1));
    assert_eq!(element.spec.workload, Workload::default());
    assert_eq!(
        (element.spec.class, element.spec.name.as_deref()),
        (4, Some("sweep"))
    );
    assert_eq!(element.submitted_at, common::START);
    let tally = c.tally(id);
    assert_eq!(
        (numbers(&tally.pending), tally.alive),
        (vec![1, 5, 6, 7], 1)
    );
    assert_eq!(c.state.project(&common::path("t")).unwrap().own.nodes, 1);
    c.end_all(at(id, 1), DONE);
    let tally = c.tally(id);
    assert_eq!((tally.alive, tally.completed), (0, 1));
    for place in [0, 2, 3, 4] {
        assert_eq!(c.state_of(id), Pending);
        c.place(at(id, place)).unwrap();
    }
    assert_eq!(c.state_of(id), Blocked, "everything is placed");
    for place in [0, 2, 3, 4] {
        assert_eq!(c.state_of(id), Blocked);
        c.end_all(at(id, place), DONE);
    }
    assert_eq!(
        (c.state_of(id), c.of(id).ended_at),
        (Completed, Some(c.now()))
    );
    assert_eq!(c.tally(id).completed, 5);
}

#[test]
fn an_array_ends_failed_before_cancelled_before_completed() {
    for (ends, expected) in [
        ([DONE, DONE], Completed),
        ([DONE, BROKEN], Failed),
        ([BROKEN, BROKEN], Failed),
    ] {
        let mut c = Cluster::with_nodes(4);
        let id = c.submit(array("0-1")).unwrap();
        for (place, exit) in (0..).zip(ends) {
            end(&mut c, at(id, place), exit);
        }
        assert_eq!(c.state_of(id), expected);
    }
    for (exit, expected) in [(DONE, Cancelled), (BROKEN, Failed)] {
        let mut c = Cluster::with_nodes(4);
        let id = c.submit(array("0-1")).unwrap();
        end(&mut c, at(id, 1), exit);
        cancel(&mut c, at(id, 0));
        assert_eq!(c.state_of(id), expected);
        let tally = c.tally(id);
        assert_eq!((numbers(&tally.cancelled), tally.stopped), (vec![0], 0));
    }
}

#[test]
fn no_more_elements_run_at_a_time_than_were_asked_for() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-9%2")).unwrap();
    c.place(at(id, 0)).unwrap();
    c.place(at(id, 7)).unwrap();
    assert_eq!(fault(c.place(at(id, 1))).0, "id");
    c.end_all(at(id, 7), DONE);
    c.place(at(id, 1)).unwrap();
    // A requeued element still counts as alive.
    c.user("alice", Command::Requeue { id: at(id, 1) }).unwrap();
    c.end_all(at(id, 1), DONE);
    assert_eq!(c.state_of(at(id, 1)), Pending);
    assert_eq!(fault(c.place(at(id, 2))).0, "id");
    c.place(at(id, 1)).unwrap();
    assert_eq!(c.of(at(id, 1)).attempt, 2);
    assert_eq!(c.tally(id).alive, 2);
}

#[test]
fn nothing_is_placed_but_elements_that_wait_for_nodes() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-3")).unwrap();
    assert_eq!(code(c.place(id)), "wrong_state", "the array itself");
    assert_eq!(code(c.place(at(id, 4))), "unknown_allocation");
    cancel(&mut c, at(id, 0));
    assert_eq!(fault(c.place(at(id, 0))).0, "id");
    c.place(at(id, 1)).unwrap();
    assert_eq!(code(c.place(at(id, 1))), "wrong_state");
    c.user("alice", Command::Hold { id }).unwrap();
    assert_eq!(code(c.place(at(id, 2))), "wrong_state");
    c.user("alice", Command::Release { id }).unwrap();
    c.place(at(id, 2)).unwrap();
    // Only the scheduler of its vCluster may place it.
    let nodes = c.free(1);
    let assign = Command::Assign {
        id: at(id, 3),
        nodes,
    };
    assert_eq!(fault(c.under("schedule.other", assign)).0, "fence");
    let mut spec = array("0-3");
    spec.terms.begin_at = Some(c.now().after(50));
    let later = c.submit(spec).unwrap();
    assert_eq!(fault(c.place(at(later, 0))).0, "id");
    c.clock += 50;
    c.place(at(later, 0)).unwrap();
}

#[test]
fn unplaced_element_error_names_array() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-3")).unwrap();
    let element = at(id, 2);
    for command in [
        Command::Hold { id: element },
        Command::Release { id: element },
        Command::Requeue { id: element },
        Command::SetWalltime {
            id: element,
            walltime_ms: 5,
        },
    ] {
        let (field, reason) = fault(c.user("alice", command));
        assert_eq!(field, "id");
        assert!(reason.contains("array element 1_2 by itself"), "{reason}");
    }
    assert_eq!(
        code(c.user("bob", Command::Cancel { id: element })),
        "forbidden"
    );
}

#[test]
fn a_cancelled_array_places_no_more_and_ends_with_what_runs() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-9")).unwrap();
    end(&mut c, at(id, 0), DONE);
    for place in [1, 2] {
        c.place(at(id, place)).unwrap();
        c.start_all(at(id, place));
    }
    c.user("alice", Command::Hold { id }).unwrap();
    assert_eq!(code(c.user("bob", Command::Cancel { id })), "forbidden");
    cancel(&mut c, id);
    assert_eq!(c.state_of(id), Blocked);
    assert_eq!(numbers(&c.tally(id).cancelled), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!([1, 2].map(|place| c.state_of(at(id, place))), [Stopping; 2]);
    let before = c.state.revision();
    cancel(&mut c, id);
    assert_eq!(c.state.revision(), before, "a repeat changes nothing");
    c.end_all(at(id, 1), DONE);
    assert_eq!(c.state_of(id), Blocked);
    c.end_all(at(id, 2), DONE);
    assert_eq!(c.state_of(id), Cancelled);
    let by = "alice".to_owned();
    assert_eq!(c.of(id).stop, Some(StopCause::Cancelled { by }));
    let tally = c.tally(id);
    assert_eq!((tally.completed, tally.stopped, tally.alive), (1, 2, 0));
}

#[test]
fn cancelled_elements_leave_the_others_alone() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-2")).unwrap();
    c.place(at(id, 0)).unwrap();
    cancel(&mut c, at(id, 1));
    let before = c.state.revision();
    cancel(&mut c, at(id, 1));
    assert_eq!(c.state.revision(), before);
    cancel(&mut c, at(id, 2));
    assert_eq!(c.state_of(id), Blocked, "nothing is left to place");
    cancel(&mut c, at(id, 0));
    assert_eq!(c.state_of(at(id, 0)), Stopping);
    c.end_all(at(id, 0), DONE);
    assert_eq!(c.state_of(id), Cancelled);
    assert_eq!(code(c.user("alice", Command::Cancel { id })), "wrong_state");
    // All elements are cancelled, and none ever ran.
    let id = c.submit(array("0-1")).unwrap();
    cancel(&mut c, at(id, 0));
    cancel(&mut c, at(id, 1));
    assert_eq!(c.state_of(id), Cancelled);
}

#[test]
fn an_array_on_hold_ends_with_its_last_element() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-1")).unwrap();
    c.place(at(id, 0)).unwrap();
    c.place(at(id, 1)).unwrap();
    c.user("alice", Command::Hold { id }).unwrap();
    c.end_all(at(id, 0), DONE);
    assert_eq!(c.state_of(id), Held);
    c.end_all(at(id, 1), DONE);
    assert_eq!(c.state_of(id), Completed);
    let id = c.submit(array("0-1")).unwrap();
    c.user("alice", Command::Hold { id }).unwrap();
    c.user("alice", Command::Release { id }).unwrap();
    assert_eq!(c.state_of(id), Pending);
    let mut spec = array("0-1");
    spec.hold = true;
    let id = c.submit(spec).unwrap();
    assert_eq!(c.state_of(id), Held);
}

#[test]
fn a_lost_node_puts_an_element_back_and_the_rest_goes_on() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = array("0-1");
    spec.requeue = Requeue::Always;
    let id = c.submit(spec).unwrap();
    end(&mut c, at(id, 0), lost());
    assert_eq!(c.state_of(at(id, 0)), Pending);
    assert_eq!(c.tally(id).alive, 1);
    end(&mut c, at(id, 1), DONE);
    assert_eq!(c.state_of(id), Blocked);
    // The element can be held and released by itself now.
    c.user("alice", Command::Hold { id: at(id, 0) }).unwrap();
    assert_eq!(code(c.place(at(id, 0))), "wrong_state");
    c.user("alice", Command::Release { id: at(id, 0) }).unwrap();
    c.reopen();
    end(&mut c, at(id, 0), DONE);
    assert_eq!(c.state_of(id), Completed);
}

/// An array that depends on other arrays, element by element.
fn element_by_element(indices: &str, others: &[AllocationId]) -> AllocationSpec {
    let mut spec = array(indices);
    let after = |on: &AllocationId| Dependency {
        on: *on,
        condition: Corresponding,
    };
    spec.terms.after = others.iter().map(after).collect();
    spec
}

#[test]
fn corresponding_elements_wait_for_those_of_the_same_index() {
    let mut c = Cluster::with_nodes(4);
    let first = c.submit(array("0-4")).unwrap();
    let second = c.submit(element_by_element("2-6:2", &[first])).unwrap();
    // The first array has no index 6.
    assert_eq!(c.state_of(second), Pending);
    assert_eq!(numbers(&c.tally(second).pending), [6]);
    assert_eq!(numbers(&c.tally(second).blocked), [2, 4]);
    assert_eq!(fault(c.place(at(second, 0))).0, "id");
    end(&mut c, at(second, 2), DONE);
    assert_eq!(c.state_of(second), Blocked);
    c.reopen();
    c.clock += 9;
    end(&mut c, at(first, 4), DONE);
    assert_eq!(c.state_of(second), Pending);
    assert_eq!(c.of(second).eligible_at, c.now());
    assert_eq!(numbers(&c.tally(second).pending), [4]);
    end(&mut c, at(first, 2), BROKEN);
    assert_eq!(numbers(&c.tally(second).cancelled), [2]);
    end(&mut c, at(second, 1), DONE);
    assert_eq!(c.state_of(second), Cancelled);
    assert_eq!(c.state_of(first), Pending);
}

#[test]
fn corresponding_elements_are_lost_with_those_that_are_cancelled() {
    for whole in [false, true] {
        let mut c = Cluster::with_nodes(4);
        let first = c.submit(array("0-2")).unwrap();
        let second = c.submit(element_by_element("0-3", &[first])).unwrap();
        let third = c.submit(element_by_element("0-3", &[second])).unwrap();
        if whole {
            cancel(&mut c, first);
        } else {
            (0..3).for_each(|place| cancel(&mut c, at(first, place)));
        }
        for array in [second, third] {
            assert_eq!(numbers(&c.tally(array).cancelled), [0, 1, 2]);
        }
        assert_eq!([second, third].map(|id| c.state_of(id)), [Pending, Blocked]);
        end(&mut c, at(second, 3), DONE);
        assert_eq!(c.state_of(third), Pending);
        end(&mut c, at(third, 3), DONE);
        assert_eq!([second, third].map(|id| c.state_of(id)), [Cancelled; 2]);
    }
}

#[test]
fn impossible_array_cancels_indexed_dependents() {
    let mut c = Cluster::with_nodes(4);
    let gate = c.submit(common::spec("t", 1)).unwrap();
    let mut spec = array("0-2");
    spec.terms.after = after(&[(gate, Success)]).terms.after;
    let first = c.submit(spec).unwrap();
    let second = c.submit(element_by_element("0-2", &[first])).unwrap();
    assert_eq!([first, second].map(|id| c.state_of(id)), [Blocked; 2]);
    assert_eq!(code(c.place(at(first, 0))), "wrong_state");
    c.run_to(gate, BROKEN);
    assert_eq!([first, second].map(|id| c.state_of(id)), [Cancelled; 2]);
    assert_eq!(numbers(&c.tally(first).cancelled), [0, 1, 2]);
}

/// Ends enough other allocations that no earlier record is in memory.
fn bury(c: &mut Cluster) {
    for _ in 0..2_100 {
        let id = c.submit(common::spec("t", 1)).unwrap();
        cancel(c, id);
    }
    let _ = c.state.take_sealed();
}

#[test]
fn dependent_elements_need_no_old_record() {
    let mut c = Cluster::with_nodes(4);
    let gate = c.submit(common::spec("t", 1)).unwrap();
    let old = c.submit(array("0-2")).unwrap();
    let new = c.submit(array("0-2")).unwrap();
    let mut spec = element_by_element("0-3", &[old, new]);
    spec.terms.after.extend(after(&[(gate, Any)]).terms.after);
    let waits = c.submit(spec).unwrap();
    end(&mut c, at(old, 0), DONE);
    end(&mut c, at(old, 1), BROKEN);
    cancel(&mut c, at(old, 2));
    assert_eq!(c.state_of(old), Failed);
    assert_eq!(numbers(&c.tally(waits).cancelled), [1, 2]);
    bury(&mut c);
    assert!(c.state.allocation(old).is_none(), "it is in a segment");
    end(&mut c, at(new, 0), DONE);
    assert_eq!(c.state_of(waits), Blocked, "the gate is closed");
    end(&mut c, at(new, 1), DONE);
    end(&mut c, at(new, 2), DONE);
    c.run_to(gate, DONE);
    assert_eq!(numbers(&c.tally(waits).pending), [0, 3]);
    end(&mut c, at(waits, 0), DONE);
    end(&mut c, at(waits, 3), DONE);
    assert_eq!(c.state_of(waits), Cancelled);
}

#[test]
fn after_an_array_that_has_ended_each_index_is_as_that_one_left_it() {
    let mut c = Cluster::with_nodes(4);
    let old = c.submit(array("0-2")).unwrap();
    end(&mut c, at(old, 0), DONE);
    end(&mut c, at(old, 1), BROKEN);
    cancel(&mut c, at(old, 2));
    let mut held = element_by_element("0-3", &[old]);
    held.hold = true;
    let held = c.submit(held).unwrap();
    let waits = c.submit(element_by_element("0-3", &[old])).unwrap();
    let never = c.submit(element_by_element("1-2", &[old])).unwrap();
    assert_eq!((c.state_of(waits), c.state_of(never)), (Pending, Cancelled));
    assert_eq!(numbers(&c.tally(waits).pending), [0, 3]);
    bury(&mut c);
    c.user("alice", Command::Release { id: held }).unwrap();
    assert_eq!(numbers(&c.tally(held).pending), [0, 3]);
    assert_eq!(numbers(&c.tally(held).cancelled), [1, 2]);
    let (field, reason) = fault(c.submit(element_by_element("0-3", &[old])));
    assert_eq!(field, "dependencies");
    assert!(reason.contains("long ago"), "{reason}");
    // The end of the whole array is known for ever.
    assert_eq!(
        c.submit(after(&[(old, Failure)])).map(|id| c.state_of(id)),
        Ok(Pending)
    );
}

#[test]
fn work_waits_for_one_element_placed_or_not() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("10-13")).unwrap();
    let waits: Vec<_> = (0..4)
        .map(|place| c.submit(after(&[(at(id, place), Any)])).unwrap())
        .collect();
    let gate = c.submit(common::spec("t", 1)).unwrap();
    let mut both = after(&[(at(id, 2), Any), (gate, Any)]);
    both.hold = true;
    let both = c.submit(both).unwrap();
    let whole = c.submit(after(&[(id, Success)])).unwrap();
    let states = |c: &Cluster| waits.iter().map(|id| c.state_of(*id)).collect::<Vec<_>>();
    c.reopen();
    end(&mut c, at(id, 0), DONE);
    cancel(&mut c, at(id, 1));
    assert_eq!(states(&c), [Pending, Pending, Blocked, Blocked]);
    c.place(at(id, 3)).unwrap();
    cancel(&mut c, id);
    assert_eq!(states(&c), [Pending, Pending, Pending, Blocked]);
    c.end_all(at(id, 3), DONE);
    assert_eq!(states(&c), [Pending; 4]);
    assert_eq!(c.state_of(whole), Cancelled);
    // The record of the array is gone, but the end of its element is still known.
    bury(&mut c);
    c.user("alice", Command::Release { id: both }).unwrap();
    assert_eq!(c.state_of(both), Blocked);
    cancel(&mut c, gate);
    assert_eq!(c.state_of(both), Pending);
}

#[test]
fn what_an_element_has_come_to_is_refused_as_of_any_other() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-3")).unwrap();
    cancel(&mut c, at(id, 1));
    let (field, reason) = fault(c.submit(after(&[(at(id, 1), Success)])));
    assert_eq!(field, "dependencies");
    assert!(reason.contains("was cancelled"), "{reason}");
    c.submit(after(&[(at(id, 1), Any)])).unwrap();
    // Element-wise dependencies exist only between arrays.
    for on in [at(id, 0), c.submit(common::spec("t", 1)).unwrap()] {
        assert_eq!(
            fault(c.submit(element_by_element("0-3", &[on]))).0,
            "dependencies"
        );
    }
    assert_eq!(
        fault(c.submit(after(&[(id, Corresponding)]))).0,
        "dependencies"
    );
    cancel(&mut c, id);
    assert_eq!(
        fault(c.submit(after(&[(id, Corresponding)]))).0,
        "dependencies"
    );
}

#[test]
fn an_array_has_its_mutex_until_the_last_element_that_runs_has_ended() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = array("0-2");
    spec.terms.mutex = Some("db".to_owned());
    let first = c.submit(spec.clone()).unwrap();
    let second = c.submit(spec).unwrap();
    assert_eq!([first, second].map(|id| c.state_of(id)), [Pending, Blocked]);
    assert_eq!(code(c.place(at(second, 0))), "wrong_state");
    // Cancelling elements of a waiting array does not release it.
    cancel(&mut c, at(second, 0));
    assert_eq!(c.state_of(second), Blocked);
    c.place(at(first, 0)).unwrap();
    c.place(at(first, 1)).unwrap();
    c.user("alice", Command::Hold { id: first }).unwrap();
    assert_eq!(c.state_of(second), Blocked, "two of them run");
    c.end_all(at(first, 0), DONE);
    c.end_all(at(first, 1), DONE);
    assert_eq!([first, second].map(|id| c.state_of(id)), [Held, Pending]);
    c.user("alice", Command::Release { id: first }).unwrap();
    assert_eq!(c.state_of(first), Blocked);
    c.place(at(second, 1)).unwrap();
    cancel(&mut c, second);
    assert_eq!(c.state_of(first), Blocked);
    c.end_all(at(second, 1), DONE);
    assert_eq!(c.state_of(first), Pending);
    end(&mut c, at(first, 2), DONE);
    assert_eq!(c.state_of(first), Completed);
}

#[test]
fn past_its_deadline_an_array_places_no_more_and_what_runs_has_its_own() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = array("0-2");
    spec.walltime_ms = Some(1_000);
    spec.terms.deadline_at = Some(c.now().after(1_500));
    let id = c.submit(spec).unwrap();
    c.place(at(id, 0)).unwrap();
    c.start_all(at(id, 0));
    assert_eq!(fault(c.service(Command::Expire { id })).0, "id");
    c.clock += 501;
    c.service(Command::Expire { id }).unwrap();
    assert_eq!(c.state_of(at(id, 0)), Running, "it may be done in time");
    assert_eq!(numbers(&c.tally(id).cancelled), [1, 2]);
    // No element waits any more, so the command cannot be repeated.
    assert_eq!(fault(c.service(Command::Expire { id })).0, "id");
    assert_eq!(fault(c.service(Command::Expire { id: at(id, 0) })).0, "id");
    c.clock += 1_000;
    c.service(Command::Expire { id: at(id, 0) }).unwrap();
    c.end_all(at(id, 0), DONE);
    assert_eq!(c.state_of(id), Failed);
    assert_eq!(c.of(id).stop, Some(StopCause::Deadline));
}

#[test]
fn arrays_are_refused_where_their_elements_would_be() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = array("0-2");
    spec.nodes = 5;
    assert_eq!(code(c.submit(spec)), "limit_exceeded");
    let mut spec = array("0-2");
    spec.sensitive = true;
    assert_eq!(fault(c.submit(spec)).0, "array");
    for text in ["", "5-1", "0-9:0", "0-9%0", "0-100000", "4000001", "x"] {
        assert!(
            text.parse::<lattice_quorum_types::array::ArraySpec>()
                .is_err(),
            "{text}"
        );
    }
    // Each element is checked by itself, so the array may be of any size.
    let id = c.submit(array("0-999")).unwrap();
    for place in 0..4 {
        c.place(at(id, place)).unwrap();
    }
    c.add_nodes(1);
    assert_eq!(code(c.place(at(id, 4))), "limit_exceeded");
    assert_eq!(
        c.tally(id).pending.len(),
        996,
        "refused, it changes nothing"
    );
}

#[test]
fn another_walltime_is_for_all_elements_that_have_not_ended() {
    let mut c = Cluster::with_nodes(4);
    let mut spec = array("0-3");
    spec.walltime_ms = Some(9_000);
    let id = c.submit(spec).unwrap();
    end(&mut c, at(id, 0), DONE);
    c.place(at(id, 1)).unwrap();
    c.start_all(at(id, 1));
    c.place(at(id, 2)).unwrap();
    cancel(&mut c, at(id, 2));
    assert_eq!(c.state_of(at(id, 2)), Stopping);
    let change = |c: &mut Cluster, walltime_ms| {
        let by = c.user("alice", Command::SetWalltime { id, walltime_ms });
        by.map(|applied| applied.events.len())
    };
    assert_eq!(change(&mut c, 5_000), Ok(2), "the array, and who runs");
    c.place(at(id, 3)).unwrap();
    let of = |c: &Cluster, place| c.of(at(id, place)).spec.walltime_ms;
    let each = |c: &Cluster| [1, 2, 3].map(|place| of(c, place));
    assert_eq!(each(&c), [Some(5_000), Some(9_000), Some(5_000)]);
    assert_eq!(c.of(at(id, 1)).progress.walltime_changes, 1);
    // A walltime too short for a running element changes nothing, and the refusal names the element.
    c.clock += 3_000;
    let refused = change(&mut c, 2_000).unwrap_err().to_string();
    assert!(
        refused.contains(&format!("allocation {id}_1 has run for 3 s")),
        "{refused}"
    );
    assert_eq!(each(&c), [Some(5_000), Some(9_000), Some(5_000)]);
    // Only operators may lengthen a walltime, as for any allocation.
    assert_eq!(code(change(&mut c, 6_000)), "forbidden");
}

#[test]
fn requeued_array_requeues_running_elements() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-3")).unwrap();
    end(&mut c, at(id, 0), DONE);
    c.place(at(id, 1)).unwrap();
    c.start_all(at(id, 1));
    c.place(at(id, 2)).unwrap();
    c.user("alice", Command::Requeue { id }).unwrap();
    let states = |c: &Cluster| [0, 1, 2].map(|place| c.state_of(at(id, place)));
    assert_eq!(states(&c), [Completed, Stopping, Stopping]);
    for place in [1, 2] {
        c.end_all(at(id, place), RankExit::Stopped);
    }
    c.reopen();
    assert_eq!(states(&c), [Completed, Pending, Pending]);
    let before = c.state.revision();
    c.user("alice", Command::Requeue { id }).unwrap();
    assert_eq!(c.state.revision(), before, "nothing holds nodes");
}

#[test]
fn element_end_precedes_array_end() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-1")).unwrap();
    end(&mut c, at(id, 0), DONE);
    c.place(at(id, 1)).unwrap();
    let node = c.nodes_of(at(id, 1)).remove(0);
    let (at_, fault) = (c.now(), None);
    let report = lattice_quorum_types::command::RankReport::Ended {
        at: at_,
        exit: DONE,
        fault,
    };
    let events = c.report(at(id, 1), &node, report).unwrap().events;
    let told: Vec<(AllocationId, AllocationState)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Allocation { record, .. } => Some((record.id, record.state)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(at(id, 1), Completed), (id, Completed)]);
}

#[test]
fn operators_may_cancel_others_elements() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(array("0-1")).unwrap();
    let cancel = Command::Cancel { id: at(id, 0) };
    c.propose("olga", Privilege::Operator, cancel).unwrap();
    let by = "olga".to_owned();
    assert_eq!(c.of(id).stop, Some(StopCause::Cancelled { by }));
    assert_eq!(c.state_of(id), Pending);
    let unknown = Command::Cancel { id: at(id, 9) };
    let id = at(id, 9);
    assert_eq!(c.admin(unknown), Err(Refusal::UnknownAllocation { id }));
}

#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "prints what it took"
)]
fn ten_thousand_elements_run_to_the_end() {
    const ELEMENTS: u64 = 10_000;
    let mut c = Cluster::with_nodes(1);
    let mut spec = array("0-9999");
    spec.workload.script = Some("x".repeat(4_000));
    let empty = c.state.snapshot().len();
    let id = c.submit(spec).unwrap();
    let submitted = c.state.snapshot().len() - empty;
    assert!(submitted < 5_000, "{submitted} bytes for one record");
    c.admin(Command::AcquireLease {
        lease: lattice_quorum_types::id::LeaseName::new("schedule.main").unwrap(),
        holder: "c1".to_owned(),
        ttl_ms: 3_600_000,
    })
    .unwrap();
    let begun = std::time::Instant::now();
    let (mut first, mut sealed, mut events) = (None, 0, 0);
    for place in 0..ELEMENTS {
        let nodes = c.free(1);
        let id = at(id, place);
        let assigned = c.admin(Command::Assign { id, nodes }).unwrap();
        events += assigned.events.len();
        c.end_all(id, DONE);
        sealed += c
            .state
            .take_sealed()
            .iter()
            .map(|s| s.bytes.len())
            .sum::<usize>();
        if place == 99 {
            first = Some(begun.elapsed());
        }
        c.log.clear();
    }
    let took = begun.elapsed();
    println!(
        "10,000 elements: submitted {submitted} bytes, at the end {} bytes and {sealed} in segments; \
         {took:?}, the first hundred {:?}; {} events an assignment",
        c.state.snapshot().len(),
        first.unwrap(),
        events as u64 / ELEMENTS,
    );
    assert_eq!(c.state_of(id), Completed);
    assert_eq!(c.tally(id).completed, 10_000);
    assert_eq!(c.state.live_allocations().count(), 0);
    // Rows in memory, and four bytes for each ended element.
    assert!(c.state.snapshot().len() < 1_000_000);
}
