//! Counting by lease. Counts over the committed life of an allocation are tested in `http/tests/movement_metrics.rs`.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::testing::{KEY, allocation, view_of};
use lattice_quorum_types::AllocationId;

fn makes_room(reason: MoveReason) -> Allocation {
    Allocation {
        stop: Some(StopCause::Moved {
            reason,
            checkpoint: None,
            has_run: true,
        }),
        ..allocation(AllocationState::Stopping, Vec::new())
    }
}

fn preempted() -> Allocation {
    makes_room(MoveReason::Preempted {
        by: AllocationId(KEY.allocation.0 + 1),
    })
}

/// The allocation becomes a victim at this revision.
fn begins(moved: &PreemptionCounters, at: u64, after: &Allocation) {
    let view = view_of([], allocation(AllocationState::Running, Vec::new()));
    moved.follow(&view, Revision(at), after);
}

fn counted(moved: &PreemptionCounters) -> u64 {
    moved.counts().preemptions.values().sum()
}

#[test]
fn a_change_is_counted_by_whoever_dispatched_when_it_was_committed() {
    let (first, second) = (PreemptionCounters::default(), PreemptionCounters::default());
    let both = |at: u64| {
        begins(&first, at, &preempted());
        begins(&second, at, &preempted());
    };
    first.start_counting(Some(Revision(10)));
    both(11);
    // The first control releases the lease. The second is granted it at 20, and learns so after 21 was committed.
    first.start_counting(None);
    both(19);
    both(21);
    assert_eq!((counted(&first), counted(&second)), (1, 0));
    second.start_counting(Some(Revision(20)));
    assert_eq!((counted(&first), counted(&second)), (1, 1));
    both(22);
    // Repeated grants and changes older than the lease count nothing.
    second.start_counting(Some(Revision(20)));
    begins(&second, 20, &preempted());
    assert_eq!((counted(&first), counted(&second)), (1, 2));
}

#[test]
fn what_is_remembered_for_a_lease_that_comes_late_is_bounded() {
    let moved = PreemptionCounters::default();
    for at in 1..=3 * RECENT as u64 {
        begins(&moved, at, &preempted());
    }
    moved.start_counting(Some(Revision(0)));
    assert_eq!(counted(&moved), RECENT as u64);
}

#[test]
fn suspended_job_preempts_no_job() {
    let moved = PreemptionCounters::default();
    moved.start_counting(Some(Revision(0)));
    let by = "alice".to_owned();
    begins(&moved, 1, &makes_room(MoveReason::Asked { by }));
    assert_eq!(counted(&moved), 0);
    let home = VclusterName::new("owner").unwrap();
    begins(&moved, 2, &makes_room(MoveReason::Reclaimed { home }));
    let line = "lattice_preemptions_total{vcluster=\"default\",reason=\"reclaim\"} 1\n";
    let mut exposition = Exposition::default();
    moved.expose(&mut exposition);
    let text = exposition.text();
    assert!(text.contains(line), "{text}");
}
