//! Dependencies between arrays by element, dependencies on single elements, and mutexes of arrays.

use super::{at, cancel, end, numbers};
use crate::common::{self, Cluster, dependencies::*};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Command,
    spec::AllocationSpec,
    terms::{Condition::*, Dependency},
};

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
