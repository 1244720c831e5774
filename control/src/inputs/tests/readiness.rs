//! Whose turn it is to be asked about, and what an answer counts.

use crate::inputs::{
    fetch::FetchError,
    readiness::{AskError, Pace, Turns, read},
};
use lattice_placement::Fraction;
use lattice_quorum_types::AllocationId;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

const REFRESH: Duration = Duration::from_secs(60);
const MAX_AGE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(5);
const NOBODY: [u64; 0] = [];

fn turns() -> Turns {
    Turns::new(Pace {
        refresh: REFRESH,
        max_age: MAX_AGE,
        at_a_time: 2,
        pause: PAUSE,
    })
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<AllocationId> {
    numbers.into_iter().map(AllocationId).collect()
}

fn part(millionths: u32) -> Fraction {
    Fraction::millionths(millionths)
}

fn asked(turns: &mut Turns, now: Instant) -> Vec<u64> {
    std::iter::from_fn(|| turns.next(now))
        .map(|id| id.0)
        .collect()
}

const LATE: AskError = AskError::Fetch(FetchError::Late {
    after: Duration::from_secs(5),
});

#[test]
fn an_answer_is_a_part_of_a_whole_or_unknown() {
    assert_eq!(read(br#"{"fraction": 0.8}"#), Ok(Some(part(800_000))));
    assert_eq!(read(br#"{"fraction": 0}"#), Ok(Some(part(0))));
    assert_eq!(
        read(br#"{"fraction": 1, "tier": "hot"}"#),
        Ok(Some(part(1_000_000)))
    );
    assert_eq!(read(br#"{"fraction": null}"#), Ok(None));
    for body in [
        "",
        "ok",
        "{}",
        r#"{"fraction": 80}"#,
        r#"{"fraction": -0.1}"#,
        r#"{"fraction": "NaN"}"#,
    ] {
        assert!(read(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn so_many_are_asked_about_at_a_time_and_each_again_after_a_while() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids([1, 2, 3]), start);
    assert_eq!(asked(&mut turns, start), [1, 2]);
    turns.came(AllocationId(1), &Ok(Some(part(500_000))), start);
    assert_eq!(asked(&mut turns, start), [3]);
    turns.came(AllocationId(2), &Ok(None), start);
    turns.came(AllocationId(3), &Ok(Some(part(100_000))), start);
    assert_eq!(asked(&mut turns, start + REFRESH / 2), NOBODY);
    let ready = turns.ready(start);
    assert_eq!(ready.len(), 2, "{ready:?}");
    assert_eq!(ready[&AllocationId(1)], part(500_000));
    // Who no longer waits is neither asked about nor told of.
    turns.follow(&ids([2, 3]), start + REFRESH);
    assert_eq!(asked(&mut turns, start + REFRESH), [2, 3]);
    assert!(!turns.ready(start + REFRESH).contains_key(&AllocationId(1)));
}

#[test]
fn an_answer_counts_on_while_the_source_is_silent_and_not_for_ever() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids([1]), start);
    assert_eq!(asked(&mut turns, start), [1]);
    turns.came(AllocationId(1), &Ok(Some(part(700_000))), start);
    assert_eq!(asked(&mut turns, start + REFRESH), [1]);
    turns.came(AllocationId(1), &Err(LATE), start + REFRESH);
    let last = start + MAX_AGE - Duration::from_millis(1);
    assert_eq!(turns.ready(last)[&AllocationId(1)], part(700_000));
    assert!(turns.ready(start + MAX_AGE).is_empty());
}

#[test]
fn a_source_that_is_gone_is_asked_one_thing_at_a_time() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids(1..=10), start);
    assert_eq!(asked(&mut turns, start), [1, 2]);
    turns.came(AllocationId(1), &Err(LATE), start);
    assert_eq!(asked(&mut turns, start), [3]);
    turns.came(AllocationId(2), &Err(LATE), start);
    turns.came(AllocationId(3), &Err(LATE), start);
    assert_eq!(asked(&mut turns, start), NOBODY);
    assert_eq!(asked(&mut turns, start + PAUSE), [4]);
    turns.came(AllocationId(4), &Err(LATE), start + PAUSE);
    assert_eq!(asked(&mut turns, start + PAUSE), NOBODY);
    assert_eq!(asked(&mut turns, start + 2 * PAUSE), [5]);
    // It is back, and dislikes one question: no reason to spare it.
    let unknown = Err(FetchError::Status { status: 404 }.into());
    turns.came(AllocationId(5), &unknown, start + 2 * PAUSE);
    assert_eq!(asked(&mut turns, start + 2 * PAUSE), [6, 7]);
}

#[test]
fn who_goes_and_comes_back_while_being_asked_about_has_one_turn() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids([1]), start);
    assert_eq!(asked(&mut turns, start), [1]);
    turns.follow(&ids([]), start);
    turns.follow(&ids([1]), start);
    turns.came(AllocationId(1), &Ok(Some(part(1))), start);
    assert_eq!(asked(&mut turns, start), NOBODY);
    assert_eq!(asked(&mut turns, start + REFRESH), [1]);
}
