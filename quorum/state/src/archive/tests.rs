use super::*;
use lattice_quorum_types::AllocationState;

#[test]
fn attempts_and_segments_are_told_as_far_as_they_fit() {
    let told = |attempt, segment| {
        let ended = EndedEntry::new(AllocationState::Failed, attempt, segment);
        (ended.state(), ended.attempt(), ended.segment())
    };
    use AllocationState::Failed;
    assert_eq!(told(0, 0), (Failed, Some(0), 0));
    assert_eq!(told(62, 1 << 20), (Failed, Some(62), 1 << 20));
    assert_eq!(told(63, 7), (Failed, None, 7));
    assert_eq!(told(u32::MAX, 7), (Failed, None, 7));
}
