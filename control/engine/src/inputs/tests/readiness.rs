//! Order of requests, and the use of replies.

use crate::{
    inputs::{
        answer::AnswerError,
        readiness::{
            AskError, LogLimiter, ReadinessChange, ReadinessSchedule, RequestPace, fraction_from,
            read,
        },
    },
    web_client::FetchError,
};
use lattice_placement::Fraction;
use lattice_quorum_types::AllocationId;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

const REFRESH: Duration = Duration::from_secs(60);
const MAX_AGE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(5);
const NOBODY: [u64; 0] = [];

fn turns() -> ReadinessSchedule {
    turns_of(2)
}

fn turns_of(at_a_time: usize) -> ReadinessSchedule {
    ReadinessSchedule::new(RequestPace {
        refresh: REFRESH,
        max_age: MAX_AGE,
        at_a_time,
        pause: PAUSE,
    })
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<AllocationId> {
    numbers.into_iter().map(AllocationId).collect()
}

fn part(millionths: u32) -> Fraction {
    Fraction::millionths(millionths)
}

fn asked(turns: &mut ReadinessSchedule, now: Instant) -> Vec<u64> {
    std::iter::from_fn(|| turns.next(now))
        .map(|id| id.0)
        .collect()
}

const LATE: AskError = AskError::Fetch(FetchError::TimedOut {
    after: Duration::from_secs(5),
});

fn disliked() -> AskError {
    FetchError::Status { status: 400 }.into()
}

/// A source replies 404 for an allocation that it does not have, as usual for web services.
#[test]
fn unknown_allocation_is_no_source_failure() {
    let status = |status| fraction_from(Err(FetchError::Status { status }));
    assert_eq!(status(404), Ok(None));
    assert_eq!(status(400), Err(disliked()));
    assert_eq!(
        fraction_from(Ok(br#"{"fraction": null}"#.to_vec())),
        Ok(None)
    );
    assert_eq!(
        fraction_from(Ok(br#"{"fraction": 1}"#.to_vec())),
        Ok(Some(part(1_000_000)))
    );
}

#[test]
fn an_outage_is_one_of_all_and_not_of_one_question() {
    let is_outage = |status| FetchError::Status { status }.is_outage();
    for status in [302, 401, 403, 429, 500, 503] {
        assert!(is_outage(status), "{status}");
    }
    for status in [204, 400, 404, 409, 410, 422] {
        assert!(!is_outage(status), "{status}");
    }
    assert!(!FetchError::TooLong { most: 1 }.is_outage());
}

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
    turns.record_result(AllocationId(1), Ok(Some(part(500_000))), start);
    assert_eq!(asked(&mut turns, start), [3]);
    turns.record_result(AllocationId(2), Ok(None), start);
    turns.record_result(AllocationId(3), Ok(Some(part(100_000))), start);
    assert_eq!(asked(&mut turns, start + REFRESH / 2), NOBODY);
    let ready = turns.ready(start);
    assert_eq!(ready.len(), 2, "{ready:?}");
    assert_eq!(ready[&AllocationId(1)], part(500_000));
    // An allocation that no longer waits is neither requested nor reported.
    turns.follow(&ids([2, 3]), start + REFRESH);
    assert_eq!(asked(&mut turns, start + REFRESH), [2, 3]);
    assert!(!turns.ready(start + REFRESH).contains_key(&AllocationId(1)));
}

#[test]
fn an_answer_counts_on_while_the_source_is_silent_and_not_for_ever() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids([1]), start);
    assert_eq!(asked(&mut turns, start), [1]);
    turns.record_result(AllocationId(1), Ok(Some(part(700_000))), start);
    assert_eq!(asked(&mut turns, start + REFRESH), [1]);
    turns.record_result(AllocationId(1), Err(LATE), start + REFRESH);
    let last = start + MAX_AGE - Duration::from_millis(1);
    assert_eq!(turns.ready(last)[&AllocationId(1)], part(700_000));
    assert!(turns.ready(start + MAX_AGE).is_empty());
}

#[test]
fn a_source_that_is_gone_is_asked_one_thing_at_a_time() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids(1..=10), start);
    assert_eq!(asked(&mut turns, start), [1, 2]);
    turns.record_result(AllocationId(1), Err(LATE), start);
    assert_eq!(asked(&mut turns, start), [3]);
    turns.record_result(AllocationId(2), Err(LATE), start);
    turns.record_result(AllocationId(3), Err(LATE), start);
    assert_eq!(asked(&mut turns, start), NOBODY);
    assert_eq!(asked(&mut turns, start + PAUSE), [4]);
    turns.record_result(AllocationId(4), Err(LATE), start + PAUSE);
    assert_eq!(asked(&mut turns, start + PAUSE), NOBODY);
    assert_eq!(asked(&mut turns, start + 2 * PAUSE), [5]);
    // The source is back, and rejects one request: that does not slow down the others.
    turns.record_result(AllocationId(5), Err(disliked()), start + 2 * PAUSE);
    assert_eq!(asked(&mut turns, start + 2 * PAUSE), [6, 7]);
}

/// Requests slow down at the same number of failures at which the source is reported as down.
#[test]
fn a_source_reported_as_down_gets_single_requests() {
    let (mut turns, start) = (turns_of(8), Instant::now());
    turns.follow(&ids(1..=20), start);
    assert_eq!(asked(&mut turns, start).len(), 8);
    for id in 1..=3 {
        assert_eq!(turns.source(), None);
        turns.record_result(AllocationId(id), Err(LATE), start);
    }
    assert_eq!(turns.source(), Some(Err(LATE)));
    for id in 4..=8 {
        turns.record_result(AllocationId(id), Err(LATE), start);
    }
    assert_eq!(asked(&mut turns, start + PAUSE), [9]);
}

#[test]
fn returning_allocation_has_one_turn() {
    let (mut turns, start) = (turns(), Instant::now());
    turns.follow(&ids([1]), start);
    assert_eq!(asked(&mut turns, start), [1]);
    turns.follow(&ids([]), start);
    turns.follow(&ids([1]), start);
    turns.record_result(AllocationId(1), Ok(Some(part(1))), start);
    assert_eq!(asked(&mut turns, start), NOBODY);
    assert_eq!(asked(&mut turns, start + REFRESH), [1]);
}

/// A failure of the source for one allocation is reported once, for that allocation, and not for the source.
#[test]
fn rejected_allocation_keeps_source_up() {
    let (mut turns, mut now) = (turns(), Instant::now());
    let (good, bad) = (AllocationId(1), AllocationId(2));
    let nonsense = || {
        AskError::from(AnswerError::Missing {
            pointer: "/fraction".to_owned(),
        })
    };
    turns.follow(&ids([1, 2]), now);
    let round = |turns: &mut ReadinessSchedule, now, of_bad| {
        assert_eq!(asked(turns, now), [1, 2]);
        let transition = turns.record_result(good, Ok(Some(part(1))), now);
        assert_eq!(transition, None);
        assert_eq!(turns.source(), Some(Ok(())));
        let transition = turns.record_result(bad, of_bad, now);
        // In any case the source answered for others.
        let stands = turns.source();
        assert!(matches!(stands, None | Some(Ok(()))), "{stands:?}");
        transition
    };
    let first = round(&mut turns, now, Err(nonsense()));
    assert_eq!(first, Some(ReadinessChange::Fails(bad, nonsense())));
    assert_eq!(turns.failing(), 1);
    for again in [Err(nonsense()), Err(LATE), Err(disliked())] {
        now += REFRESH;
        assert_eq!(round(&mut turns, now, again), None);
        assert_eq!(turns.failing(), 1);
    }
    now += REFRESH;
    let recovered = round(&mut turns, now, Ok(None));
    assert_eq!(recovered, Some(ReadinessChange::Recovered(bad)));
    assert_eq!(turns.failing(), 0);
    // An allocation that leaves takes its failure with it.
    now += REFRESH;
    let transition = round(&mut turns, now, Err(LATE));
    assert_eq!(transition, Some(ReadinessChange::Fails(bad, LATE)));
    turns.follow(&ids([1]), now);
    assert_eq!(turns.failing(), 0);
}

#[test]
fn failing_source_is_down_and_reported_once() {
    let (mut turns, now) = (turns(), Instant::now());
    turns.follow(&ids(1..=10), now);
    let mut transitions = Vec::new();
    for n in 1..=10 {
        let at = now + PAUSE * n;
        let Some(id) = turns.next(at) else {
            panic!("nobody is asked about")
        };
        transitions.extend(turns.record_result(id, Err(LATE), at));
        let stands = turns.source();
        match n {
            1 | 2 => assert_eq!(stands, None),
            _ => assert_eq!(stands, Some(Err(LATE))),
        }
    }
    // Reported before the source counted as down.
    let fails = |id| ReadinessChange::Fails(AllocationId(id), LATE);
    assert_eq!(transitions, [fails(1), fails(2)]);
    assert_eq!(turns.failing(), 10);
    assert_eq!(turns.source(), None, "nothing was learnt since");
    let at = now + REFRESH * 2;
    assert_eq!(asked(&mut turns, at), [1]);
    turns.record_result(AllocationId(1), Ok(None), at);
    assert_eq!(turns.source(), Some(Ok(())));
}

#[test]
fn a_source_that_fails_about_the_only_one_that_waits_is_down() {
    let (mut turns, now) = (turns(), Instant::now());
    turns.follow(&ids([1]), now);
    assert_eq!(asked(&mut turns, now), [1]);
    assert_eq!(turns.record_result(AllocationId(1), Err(LATE), now), None);
    assert_eq!(turns.source(), Some(Err(LATE)));
}

/// A request that could not be sent does not count as a failure of the source either.
#[test]
fn vanished_allocation_does_not_affect_source() {
    let (mut turns, now) = (turns(), Instant::now());
    turns.follow(&ids([1, 2, 3]), now);
    assert_eq!(asked(&mut turns, now), [1, 2]);
    turns.finish_request(AllocationId(1), now);
    let reason = "invalid port number".to_owned();
    let no_url = || AskError::Url {
        reason: reason.clone(),
    };
    let transition = turns.record_result(AllocationId(2), Err(no_url()), now);
    assert_eq!(
        transition,
        Some(ReadinessChange::Fails(AllocationId(2), no_url()))
    );
    assert_eq!(turns.source(), None);
    assert_eq!(asked(&mut turns, now), [3]);
}

#[test]
fn so_many_lines_are_written_in_a_while_and_the_others_counted() {
    let start = Instant::now();
    let mut lines = LogLimiter::new(start);
    let may = (0..LogLimiter::MAX_LINES + 3)
        .filter(|_| lines.allow())
        .count();
    assert_eq!(may, LogLimiter::MAX_LINES);
    assert_eq!(lines.over(start + LogLimiter::PERIOD / 2), None);
    assert!(!lines.allow());
    assert_eq!(lines.over(start + LogLimiter::PERIOD), Some(4));
    assert!(lines.allow());
    assert_eq!(lines.over(start + LogLimiter::PERIOD * 2), None);
}
