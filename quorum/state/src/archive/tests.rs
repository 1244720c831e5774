use super::*;
use lattice_quorum_types::{
    AllocationState, ProjectPath, Revision, VclusterName,
    spec::{AllocationSpec, Workload},
};

fn record(id: u64, revision: u64) -> Allocation {
    #[expect(clippy::unwrap_used, reason = "tests")]
    let spec = AllocationSpec::new(
        ProjectPath::new("t/a").unwrap(),
        VclusterName::new("main").unwrap(),
        1,
        Workload::default(),
    );
    let at = UnixMillis(revision);
    Allocation {
        id: AllocationId(id),
        user: "alice".to_owned(),
        spec,
        state: AllocationState::Completed,
        state_since: at,
        submitted_at: at,
        eligible_at: at,
        started_at: Some(at),
        ended_at: Some(at),
        attempt: 1,
        ranks: Vec::new(),
        stop: None,
        revision: Revision(revision),
        course: Default::default(),
    }
}

fn encoded(archive: &Archive) -> Vec<u8> {
    #[expect(clippy::unwrap_used, reason = "tests")]
    postcard::to_stdvec(archive).unwrap()
}

/// A snapshot of a former format has them by number; they ended in another order.
#[test]
fn records_of_a_former_snapshot_give_what_applying_them_gave() {
    let count = 3000;
    // Each hundredth runs long.
    let ended_at = |id: u64| {
        if id.is_multiple_of(100) {
            id * 3 + 5000
        } else {
            id * 3
        }
    };
    let mut by_end: Vec<u64> = (1..=count).collect();
    by_end.sort_by_key(|id| ended_at(*id));
    let mut applied = Archive::new(Bounds::default());
    let appended = by_end.iter().map(|id| record(*id, ended_at(*id)));
    let sealed: Vec<Sealed> = appended.filter_map(|r| applied.append(r)).collect();
    let by_number = (1..=count).map(|id| record(id, ended_at(id)));
    let (restored, resealed) = Archive::of(by_number);
    assert_eq!(sealed.len(), 1);
    assert_eq!(sealed, resealed);
    assert_eq!(encoded(&applied), encoded(&restored));
    assert_eq!(applied.tail().len(), 3000 - 1024);
}

#[test]
fn attempts_and_segments_are_told_as_far_as_they_fit() {
    let told = |attempt, segment| {
        let ended = Ended::new(AllocationState::Failed, attempt, segment);
        (ended.state(), ended.attempt(), ended.segment())
    };
    use AllocationState::Failed;
    assert_eq!(told(0, 0), (Failed, Some(0), 0));
    assert_eq!(told(62, 1 << 20), (Failed, Some(62), 1 << 20));
    assert_eq!(told(63, 7), (Failed, None, 7));
    assert_eq!(told(u32::MAX, 7), (Failed, None, 7));
}
