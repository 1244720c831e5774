//! End of an array and of its elements; cancellation, hold, requeue, deadline and walltime.

use super::{at, cancel, end, numbers};
use crate::common::{Cluster, dependencies::*};
use lattice_quorum_types::{
    AllocationId, AllocationState,
    AllocationState::*,
    Command, Refusal,
    allocation::{RankExit, StopCause},
    command::Privilege,
    event::EventKind,
    spec::Requeue,
};

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
    let ended: Vec<(AllocationId, AllocationState)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Allocation { record, .. } => Some((record.id, record.state)),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [(at(id, 1), Completed), (id, Completed)]);
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
