//! Elements of arrays: their records, their number at a time, and rejected placements and submissions.

use super::{at, cancel, numbers};
use crate::common::{self, Cluster, dependencies::*};
use lattice_quorum_types::{
    AllocationId, AllocationState::*, Command, progress::ArrayElement, spec::Workload,
};

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
