use super::*;
use lattice_quorum_types::AllocationState;

#[test]
fn reports_attempts_and_segments_within_size() {
    let reported = |attempt, segment| {
        let ended = EndedEntry::new(AllocationState::Failed, attempt, segment);
        (ended.state(), ended.attempt(), ended.segment())
    };
    use AllocationState::Failed;
    assert_eq!(reported(0, 0), (Failed, Some(0), 0));
    assert_eq!(reported(62, 1 << 20), (Failed, Some(62), 1 << 20));
    assert_eq!(reported(63, 7), (Failed, None, 7));
    assert_eq!(reported(u32::MAX, 7), (Failed, None, 7));
}
